"""Named operators: functions that a filter calls on attributes, such as `within(lat, lon, $lat, $lon, 500)`.

Parser, builder, evaluation, covering, brokers and documents read `NamedOperator` alone, so a new operator is
one entry in the table (`table.py`). (Liu et al., section 2.1.) An operator's function gets one argument per
argument of the call, in order: the Arrow array of an attribute, without nulls, or the value of a constant or
variable, in its inner form (`expressions/values.py`). Free variables have no argument. State comes before all
others. Invariant: rows in which an attribute of the call is missing are never passed, since a call on a
missing attribute is false, and so is its negation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from functools import cached_property
from typing import Any

from covey.matcher.events.event_type import Kind

NUMBERS = frozenset({Kind.INT64, Kind.FLOAT64})


class Takes(Flag):
    ATTRIBUTE = auto()
    CONSTANT = auto()  # or a variable
    FREE = auto()  # a free variable, `?name`


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: its name, the kinds of attributes that it takes, and what it accepts. A constant has the
    kind `kinds` if that is one, else float64 for numbers."""

    name: str
    kinds: frozenset[Kind]
    takes: Takes = Takes.ATTRIBUTE | Takes.CONSTANT

    @property
    def kind(self) -> Kind:
        """The kind of constants, and of the bindings of a free variable."""
        return Kind.FLOAT64 if self.kinds == NUMBERS else min(self.kinds)


Evaluate = Callable[..., Any]
"""`evaluate(*arguments)` for n events: a BooleanArray or bool array of length n; with free variables a
ListArray of length n, whose item i has the solutions of event i (of one free variable its values, of several
a struct with a field per parameter's name), none where the call is false."""

Covers = Callable[[Sequence[Any], Sequence[Any]], bool]
"""`covers(wider, narrower)`: is the operator true for the arguments `wider` wherever it is for `narrower`?
With free variables: does it have every solution for `wider` that it has for `narrower`? Each has one entry
per argument: a value, or None for an attribute, a free variable or an unset variable, equal in both."""

Bounds = Callable[[Sequence[Any]], Sequence[Sequence[tuple[Any, Any]] | None]]
"""`bounds(arguments)`: per argument closed intervals, outside of which no value of the attribute makes the
operator true; None if any value but NaN may, and for other arguments than attributes. Arguments as in
`Covers`, all variables with values. Bounds of wider arguments should contain the bounds of narrower ones."""

Check = Callable[[Sequence[Any]], None]
"""`check(arguments)` raises ValueError, with a text such as `pattern "[": missing ]`, for values that the
operator refuses. One entry per argument: a value, or None for an attribute, a free variable or a variable
without a value. It is called with the constants of a filter, and with the values of a subscription."""


@dataclass(frozen=True, eq=False)
class NamedOperator:
    """The entry of one named operator.

    `variadic`: the last parameter takes one or more arguments. `optional`: how many of the last parameters
    may be left out. `cost_us` is the declared cost per event in microseconds; None: it is measured. `version`
    is part of the identity of results: raise it when results change. `state` creates the state of an operator
    whose results depend on earlier events; brokers then pass events on, and the reader evaluates. `bounds`,
    intervals outside of which it is false, keep most events and filters away from it (for `within` the box
    around the circle). `bounded`: it always takes little time, so that brokers call it without a time limit.
    `package` must be installed for it, for messages."""

    name: str
    parameters: tuple[Parameter, ...]
    evaluate: Evaluate
    summary: str = ""
    variadic: bool = False
    cost_us: float | None = None
    covers: Covers | None = None
    bounds: Bounds | None = None
    check: Check | None = None
    state: Callable[[], object] | None = None
    optional: int = 0
    bounded: bool = False
    version: int = 1
    package: str = ""

    def parameter(self, place: int) -> Parameter:
        """The parameter of the argument at a place, counted from 0."""
        return self.parameters[min(place, len(self.parameters) - 1)]

    @property
    def stateful(self) -> bool:
        return self.state is not None

    @cached_property
    def takes_integers(self) -> bool:
        return any(parameter.kind is Kind.INT64 for parameter in self.parameters)

    @property
    def argument_counts(self) -> tuple[int, int | None]:
        """The least and the greatest number of arguments; None if there is no greatest."""
        count = len(self.parameters)
        return count - self.optional, None if self.variadic else count

    @property
    def signature(self) -> str:
        """Its form for people: `within(lat, lon, center_lat, center_lon, metres)`."""
        names = [("?" if Takes.FREE in p.takes else "") + p.name for p in self.parameters]
        needed = len(names) - self.optional
        listed = ", ".join(names[:needed]) + "".join(f"[, {name}" for name in names[needed:])
        return f"{self.name}({listed}{', ...' if self.variadic else ''}{']' * self.optional})"
