"""Sweeps: a grid of scenarios, each run as one task of Spark, and measured together."""

from covey.sim.experiments.sweep.plan import Sweep, SweepError, load_sweep
from covey.sim.experiments.sweep.tasks import Outcome, run_sweep

__all__ = ["Outcome", "Sweep", "SweepError", "load_sweep", "run_sweep"]
