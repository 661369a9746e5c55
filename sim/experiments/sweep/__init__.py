"""Sweeps: grids of scenarios."""

from covey.sim.experiments.sweep.plan import Sweep, SweepError, load_sweep

__all__ = ["Sweep", "SweepError", "load_sweep"]
