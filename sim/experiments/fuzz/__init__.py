"""The fuzzer: random histories of whole overlays, judged by the checkers."""

from covey.sim.experiments.fuzz.options import FuzzError, FuzzOptions, HistoryOutcome
from covey.sim.experiments.fuzz.playing import play_histories, play_history

__all__ = ["FuzzError", "FuzzOptions", "HistoryOutcome", "play_histories", "play_history"]
