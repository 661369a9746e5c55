"""The fuzzer: random histories of whole overlays, judged by the checkers."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from covey.sim.experiments.fuzz.options import FuzzOptions, HistoryOutcome

if TYPE_CHECKING:
    from covey.sim.experiments.fuzz.history import FuzzHistory
    from covey.sim.experiments.fuzz.stalling import StallingHistory

__all__ = ["FuzzOptions", "HistoryOutcome", "play_history"]


def play_history(seed: int, options: FuzzOptions) -> HistoryOutcome:
    """Kernels are loaded first: a background thread would load them at a time that is not reproducible."""
    from covey.matcher import compile_kernels

    compile_kernels()
    collects = gc.isenabled()
    gc.disable()  # looking for garbage takes a quarter of the time; a history leaves some megabytes
    try:
        return _history(seed, options).play()
    finally:
        if collects:
            gc.enable()


def _history(seed: int, options: FuzzOptions) -> FuzzHistory | StallingHistory:
    from covey.sim.experiments.fuzz.faulty import FaultyHistory
    from covey.sim.experiments.fuzz.history import FuzzHistory
    from covey.sim.experiments.fuzz.repairing import RepairHistory
    from covey.sim.experiments.fuzz.stalling import StallingHistory

    if options.stalls:
        return StallingHistory(seed, options.steps)
    if options.faults:
        return FaultyHistory(seed, options)
    if options.repair:
        return RepairHistory(seed, options)
    return FuzzHistory(seed, options)
