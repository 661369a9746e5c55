"""The strategies of evaluation, by name."""

from __future__ import annotations

from collections.abc import Callable

from covey.matcher.errors import CoveyError
from covey.matcher.evaluation.greedy import Greedy
from covey.matcher.evaluation.naive import Naive
from covey.matcher.evaluation.problem import Strategy
from covey.matcher.evaluation.sequential import Sequential
from covey.matcher.evaluation.sub_order import SubOrder

DEFAULT = Greedy.name

STRATEGIES: dict[str, Callable[[], Strategy]] = {
    each.name: each for each in (Greedy, SubOrder, Sequential, Naive)
}


def create_strategy(name: str) -> Strategy:
    """A new strategy. `CoveyError` for a name that none has."""
    if name not in STRATEGIES:
        raise CoveyError(f"evaluation {name!r}: expected one of {', '.join(STRATEGIES)}")
    return STRATEGIES[name]()
