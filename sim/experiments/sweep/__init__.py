"""Sweeps: a grid of scenarios, each run as one Spark task."""

from covey.sim.experiments.sweep.plan import Sweep, SweepError, load_sweep
from covey.sim.experiments.sweep.tasks import RunOutcome, run_sweep

__all__ = ["RunOutcome", "Sweep", "SweepError", "load_sweep", "run_sweep"]
