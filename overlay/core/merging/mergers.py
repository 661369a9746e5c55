"""The kinds of merging by name: off, perfect, or within a budget."""

from __future__ import annotations

from collections.abc import Callable

from covey.overlay.core.merging.budget_merger import BudgetMerger
from covey.overlay.core.merging.merging import Merger
from covey.overlay.core.merging.perfect import PerfectMerger

MERGINGS = ("off", "perfect", "budget")
MERGING_BUDGET = 64
"""The default for bundles per neighbour and event type."""


def merger_factory(merging: str, budget: int, routing: str) -> Callable[[], Merger | None]:
    """Creates the merger of one neighbour and event type, None if nothing is merged.

    Raises `ValueError` for another name, a budget below 1, and for merging in the static mode, where slots do
    not change.
    """
    if merging not in MERGINGS:
        raise ValueError(f"merging {merging!r}: expected one of {', '.join(MERGINGS)}")
    if budget < 1:
        raise ValueError(f"merging_budget {budget}: expected a number from 1 up")
    if merging == "off":
        return lambda: None
    if routing == "static":
        raise ValueError(f"merging {merging!r}: expected off with static routing, where no slot changes")
    return PerfectMerger if merging == "perfect" else lambda: BudgetMerger(budget)
