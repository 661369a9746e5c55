"""The table of named operators, by name: shipped ones, entry points, and registered ones.

An entry point of the group `covey.operators` is loaded when a filter first calls it. No fault of an
operator's rule for covering reaches the caller: the rule then counts as none, so filters cover less, and no
event is lost. The first fault per operator and rule is kept."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from importlib.metadata import EntryPoint, entry_points
from math import inf
from typing import Any

from covey.matcher.errors import CoveyError
from covey.matcher.events.event_type import RESERVED, Kind
from covey.matcher.operators.named_operator import NamedOperator, Parameter, Takes

GROUP = "covey.operators"  # of entry points

_SHIPPED = "covey."  # prefix of the entry points of shipped operators
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
changes = 0  # of the table, for caches of what is computed from it

_registered: dict[str, NamedOperator] = {}
_failed: dict[str, str] = {}
_found: dict[str, EntryPoint] | None = None


def register(operator: NamedOperator) -> NamedOperator:
    """Add an operator to the table of this process, and return it. `CoveyError` for an object that is no
    operator, a field of the wrong type, a name that is no identifier or a word of the filter language, or a
    name that another operator has, shipped ones included."""
    if not isinstance(operator, NamedOperator):
        raise CoveyError(f"operator {operator!r}: expected a NamedOperator")
    name = operator.name
    if not isinstance(name, str) or not _NAME.match(name) or name in RESERVED:
        raise CoveyError(
            f"operator name {name!r}: expected letters, digits and _, not starting with a digit and no word "
            "of the filter language"
        )
    _check_fields(operator)
    if not 0 <= operator.optional < len(operator.parameters):
        raise CoveyError(f"operator {name}: {operator.optional} optional parameters, expected fewer than all")
    if operator.variadic and operator.parameters[-1].takes is Takes.FREE:
        raise CoveyError(f"operator {name}: a free variable as the variadic parameter, expected another")
    is_shipped = name in _entry_points() and _entry_points()[name].value.startswith(_SHIPPED)
    if is_shipped and find(name) is not operator:
        raise CoveyError(f"operator {name}: the name is that of an operator of Covey, expected another")
    return _add(operator)


def _add(operator: NamedOperator) -> NamedOperator:
    name = operator.name
    if _registered.setdefault(name, operator) is not operator:
        raise CoveyError(f"operator {name}: the name is taken, expected another")
    _changed(name)
    return operator


def _check_fields(operator: NamedOperator) -> None:
    """`CoveyError` for a field of the wrong type: it would raise when filters call it."""
    where, parameters = f"operator {operator.name}", operator.parameters
    if not isinstance(parameters, tuple | list) or not all(isinstance(p, Parameter) for p in parameters):
        raise CoveyError(f"{where}: parameters {parameters!r}, expected a tuple of Parameter")
    if not parameters:
        raise CoveyError(f"{where}: no parameters, expected at least one")
    for parameter in parameters:
        kinds, takes = parameter.kinds, parameter.takes
        if not isinstance(kinds, Set) or not kinds or not kinds <= set(Kind):
            expected = f"a set of one or more of {', '.join(Kind)}"
            raise CoveyError(f"{where}: kinds of {parameter.name} are {kinds!r}, expected {expected}")
        if not isinstance(takes, Takes) or not takes:
            raise CoveyError(f"{where}: takes of {parameter.name} is {takes!r}, expected some of Takes")
    free = [parameter.name for parameter in parameters if Takes.FREE in parameter.takes]
    if len(set(free)) < len(free):
        raise CoveyError(f"{where}: parameters {', '.join(free)}, expected different names of free variables")
    if not callable(operator.evaluate):
        raise CoveyError(f"{where}: evaluate is {operator.evaluate!r}, expected a function")
    for field in ("covers", "bounds", "check", "state"):
        value = getattr(operator, field)
        if value is not None and not callable(value):
            raise CoveyError(f"{where}: {field} is {value!r}, expected a function or None")
    cost = operator.cost_us
    if cost is not None and not (isinstance(cost, int | float) and 0 <= cost < inf):
        raise CoveyError(f"{where}: cost_us is {cost!r}, expected microseconds or None")


def unregister(name: str) -> None:
    """Remove a registered operator, for tests and interactive use; no error if there is none."""
    _registered.pop(name, None)
    _changed(name)


def _changed(name: str) -> None:
    global changes
    changes += 1
    _failed.pop(name, None)


def find(name: str) -> NamedOperator | None:
    """The operator of a name; None if there is none, or its package is not installed (`why_missing`)."""
    operator = _registered.get(name)
    return operator if operator is not None or name in _failed else _load(name)


def why_missing(name: str) -> str:
    """Why `find` has no operator of this name, as the end of a sentence."""
    return _failed.get(name, "") or "unknown"


def names() -> tuple[str, ...]:
    """The names of all operators, in order, whether or not their packages are installed."""
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
        is_shipped = point.value.startswith(_SHIPPED) and isinstance(operator, NamedOperator)
        return _add(operator) if is_shipped else register(operator)
    except ModuleNotFoundError as error:
        package = "; `pip install 'covey[operators]'`" if point.value.startswith(_SHIPPED) else ""
        _failed[name] = f"needs the module {error.name}, which is not installed{package}"
    except Exception as error:  # of a package that Covey does not know
        _failed[name] = f"not usable: {' '.join(str(error).split()) or type(error).__name__}"
    return None


# --- rules of operators ---------------------------------------------------------------------------


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
    """`NamedOperator.covers`; false for an operator without it, or an unknown one."""
    operator = find(name)
    if operator is None or operator.covers is None:
        return False
    try:
        return bool(operator.covers(wider, narrower))
    except Exception as error:  # of code that Covey does not know
        _note(name, "covers", error)
        return False


def bounds_of(name: str, arguments: Sequence[Any]) -> Sequence[Intervals | None]:
    """`NamedOperator.bounds`: one entry per argument; empty for an operator without it, or an unknown one."""
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
    _note(name, "bounds", error)


def faults() -> tuple[tuple[str, str, str], ...]:
    """The first fault of each rule: operator, rule, reason."""
    return tuple([(name, rule, reason) for (name, rule), reason in _faults.items()])
