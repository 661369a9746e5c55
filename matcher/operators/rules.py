"""The rules of named operators for covering, called so that no fault of an operator reaches the caller.

A rule that raises, or returns what it must not, counts as one that says nothing: filters then cover less, and
no event is lost. Of each operator and rule the first fault is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from covey.matcher.operators.table import find

Interval = tuple[Any, Any]

_faults: dict[tuple[str, str], str] = {}


def is_stateful(name: str) -> bool:
    """Whether an operator's results depend on earlier events; false for an unknown operator."""
    operator = find(name)
    return operator is not None and operator.stateful


def has_covering_rule(name: str) -> bool:
    """Whether calls of an operator may cover others with other values."""
    operator = find(name)
    return operator is not None and operator.covers is not None


def covers_arguments(name: str, wider: Sequence[Any], narrower: Sequence[Any]) -> bool:
    """`NamedOperator.covers`; false for an operator without it, or that is unknown."""
    operator = find(name)
    if operator is None or operator.covers is None:
        return False
    try:
        return bool(operator.covers(wider, narrower))
    except Exception as error:  # of code that Covey does not know
        _note(name, "covers", error)
        return False


def bounds_of(name: str, arguments: Sequence[Any]) -> Sequence[Interval | None]:
    """`NamedOperator.bounds`: one entry per argument, or none for an operator that has none, or is unknown.

    An interval with NaN as an end is None.
    """
    operator = find(name)
    if operator is None or operator.bounds is None:
        return ()
    try:
        intervals = [None if each is None else _interval(each) for each in operator.bounds(arguments)]
        if len(intervals) != len(arguments):
            raise ValueError(f"{len(intervals)} intervals for {len(arguments)} arguments")
    except Exception as error:  # of code that Covey does not know
        _note(name, "bounds", error)
        return ()
    return intervals


def _interval(interval: Interval) -> Interval | None:
    low, high = interval
    return (low, high) if low == low and high == high else None


def _note(name: str, rule: str, error: Exception) -> None:
    _faults.setdefault((name, rule), f"raised {type(error).__name__}: {error}")


def note_bounds(name: str, error: Exception) -> None:
    """The bounds of an operator do not fit its attribute."""
    _note(name, "bounds", error)


def faults() -> tuple[tuple[str, str, str], ...]:
    """The operators with a rule that has failed: operator, rule, what happened first."""
    return tuple([(name, rule, reason) for (name, rule), reason in _faults.items()])
