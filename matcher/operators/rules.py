"""The rules of named operators for covering, called so that no fault of an operator reaches the caller.

A rule that raises, or returns what it must not, counts as one that says nothing: filters then cover less, and
no event is lost. Of each operator and rule the first fault is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from covey.matcher.operators.table import find

Intervals = Sequence[tuple[Any, Any]]

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


def bounds_of(name: str, arguments: Sequence[Any]) -> Sequence[Intervals | None]:
    """`NamedOperator.bounds`: one entry per argument; none for an operator without it, or an unknown one."""
    operator = find(name)
    if operator is None or operator.bounds is None:
        return ()
    try:
        bounds = operator.bounds(arguments)
        if len(bounds) != len(arguments):
            raise ValueError(f"bounds of {len(bounds)} arguments, expected {len(arguments)}")
    except Exception as error:  # of code that Covey does not know
        _note(name, "bounds", error)
        return ()
    return bounds


def _note(name: str, rule: str, error: Exception) -> None:
    _faults.setdefault((name, rule), f"raised {type(error).__name__}: {error}")


def note_bounds(name: str, error: Exception) -> None:
    """The bounds of an operator do not fit its attribute."""
    _note(name, "bounds", error)


def faults() -> tuple[tuple[str, str, str], ...]:
    """The operators with a rule that has failed: operator, rule, what happened first."""
    return tuple([(name, rule, reason) for (name, rule), reason in _faults.items()])
