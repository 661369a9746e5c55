"""The fuzzer: random histories of whole overlays, judged by the checkers."""

from covey.sim.experiments.fuzz.history import HistoryOutcome, play_histories, play_history
from covey.sim.experiments.fuzz.options import FuzzError, FuzzOptions

__all__ = ["FuzzError", "FuzzOptions", "HistoryOutcome", "play_histories", "play_history"]
