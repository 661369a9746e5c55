"""Sweeps: a grid of scenarios, each run as one task of Spark, and measured together."""

from covey.sim.experiments.sweep.plan import Sweep, SweepError, load_sweep
from covey.sim.experiments.sweep.tasks import RunOutcome, run_sweep

__all__ = ["RunOutcome", "Sweep", "SweepError", "load_sweep", "run_sweep"]
