"""Sweeps: a grid of scenarios, each run as one Spark task."""

from covey.sim.experiments.sweep.plan import Sweep, SweepError, load_sweep

__all__ = ["Sweep", "SweepError", "load_sweep"]
