"""The table of named operators, by name: the shipped ones, those of entry points, and those that are
registered.

An entry point of the group `covey.operators` names a `NamedOperator`; it is loaded when a filter first calls
it. An operator whose package is not installed is as good as unknown.
"""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint, entry_points

from covey.matcher.errors import CoveyError
from covey.matcher.events.event_type import RESERVED
from covey.matcher.operators.named_operator import NamedOperator, Takes

GROUP = "covey.operators"
"""The group of entry points."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
changes = 0
"""How often an operator was added or removed, for what is computed from the table."""

_registered: dict[str, NamedOperator] = {}
_failed: dict[str, str] = {}
_found: dict[str, EntryPoint] | None = None


def register(operator: NamedOperator) -> NamedOperator:
    """Add an operator to the table of this process, and return it.

    `CoveyError` for what is no operator, a name that is no identifier or a word of the filter language, or
    one that another operator has.
    """
    if not isinstance(operator, NamedOperator):
        raise CoveyError(f"operator {operator!r}: expected a NamedOperator")
    name = operator.name
    if not isinstance(name, str) or not _NAME.match(name) or name in RESERVED:
        raise CoveyError(
            f"operator name {name!r}: expected letters, digits and _, not starting with a digit and no word "
            "of the filter language"
        )
    if not operator.parameters:
        raise CoveyError(f"operator {name}: no parameters, expected at least one")
    if not 0 <= operator.optional < len(operator.parameters):
        raise CoveyError(f"operator {name}: {operator.optional} optional parameters, expected fewer than all")
    if operator.variadic and operator.parameters[-1].takes is Takes.FREE:
        raise CoveyError(f"operator {name}: a free variable as the variadic parameter, expected another")
    if _registered.setdefault(name, operator) is not operator:
        raise CoveyError(f"operator {name}: the name is taken, expected another")
    _changed(name)
    return operator


def unregister(name: str) -> None:
    """Remove an operator that was registered, for tests and interactive use; no error where there is none."""
    _registered.pop(name, None)
    _changed(name)


def _changed(name: str) -> None:
    global changes
    changes += 1
    _failed.pop(name, None)


def find(name: str) -> NamedOperator | None:
    """The operator of a name; None where there is none, or its package is not installed (`why_missing`)."""
    operator = _registered.get(name)
    return operator if operator is not None or name in _failed else _load(name)


def why_missing(name: str) -> str:
    """Why `find` has no operator of this name, as the end of a sentence."""
    return _failed.get(name, "") or "unknown"


def names() -> tuple[str, ...]:
    """The names of all operators, whether or not their packages are installed, in order."""
    return tuple(sorted({*_registered, *_entry_points()}))


def _entry_points() -> dict[str, EntryPoint]:
    global _found
    if _found is None:
        _found = {point.name: point for point in entry_points(group=GROUP)}
    return _found


def _load(name: str) -> NamedOperator | None:
    point = _entry_points().get(name)
    if point is None:
        return None
    try:
        operator = point.load()
        if isinstance(operator, NamedOperator) and operator.name != name:
            raise CoveyError(f"its entry point has another name, {name}, than the operator, {operator.name}")
        return register(operator)
    except ModuleNotFoundError as error:
        package = "; `pip install 'covey[operators]'`" if point.value.startswith("covey.") else ""
        _failed[name] = f"needs the module {error.name}, which is not installed{package}"
    except Exception as error:  # of a package that Covey does not know
        _failed[name] = f"not usable: {' '.join(str(error).split()) or type(error).__name__}"
    return None
