"""The fuzzer: random histories of whole overlays, judged by the checkers."""

from covey.sim.experiments.fuzz.history import play_histories, play_history
from covey.sim.experiments.fuzz.options import FuzzError, FuzzOptions
from covey.sim.experiments.fuzz.outcome import HistoryOutcome

__all__ = ["FuzzError", "FuzzOptions", "HistoryOutcome", "play_histories", "play_history"]
