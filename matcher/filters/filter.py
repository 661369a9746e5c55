"""Filters: boolean expressions of predicates over the attributes of one event type.

docs/filters.md describes the language and the rules of truth. Invariant: the expression is checked and in
normal form (`checking.py`), so filters of one event type are equal exactly when their expressions are, and
the text of a filter parses to an equal filter. Equal filters may have schemas that differ in attributes that
the filter does not name: a filter stays equal when its event type is widened."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import EllipsisType
from typing import Any

from covey.matcher.covering.boxes import Box, boxes_of
from covey.matcher.covering.covering import Region, RegionPlan, covers_region, intersects_region, plan_region
from covey.matcher.covering.cutting import Getter, getter
from covey.matcher.errors import FilterError, VariableError
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.events.value_columns import check_mapping
from covey.matcher.expressions.calls import Kinds, kinds_of
from covey.matcher.expressions.checking import check_call_values, check_expression
from covey.matcher.expressions.evaluation import has_solution, holds
from covey.matcher.expressions.expression import Call, Expression, Operand, Predicate, Scalar, Variable
from covey.matcher.expressions.language import parse_expression
from covey.matcher.expressions.rewriting import (
    attributes_of,
    contents_of,
    gate_of,
    lifted,
    residue_of,
    stateless_of,
    substituted,
    texts_of,
)
from covey.matcher.expressions.values import Family, coerce
from covey.matcher.expressions.writing import write
from covey.matcher.filters.bounded_gate import CallBounds
from covey.matcher.operators import table
from covey.matcher.operators.table import is_stateful

LiftingStep = tuple[str, str, float, float, Getter]
"""A variable of the structure and its operand: for a float variable, the most frequent operand, its name,
scale and offset, which need no call; for others the name is empty and the function computes it."""


def lifting_steps(operands: tuple[Operand, ...], kinds: tuple[Kind | None, ...]) -> tuple[LiftingStep, ...]:
    pairs = zip(operands, kinds, strict=True)
    return tuple([_step(str(number), *pair) for number, pair in enumerate(pairs, 1)])


def _step(name: str, operand: Operand, kind: Kind | None) -> LiftingStep:
    get = getter(operand, kind)
    if kind is Kind.FLOAT64 and isinstance(operand, Variable):
        return name, operand.name, float(operand.scale), float(operand.offset), get
    return name, "", 1.0, 0.0, get


_NO_VALUES: Mapping[str, Scalar] = {}


class Filter:
    """An immutable filter; hashable by its event type's name and its expression.

    Raises `FilterError` for an unknown attribute, an operator or operand that does not fit its attribute, a
    call that does not fit its operator, a variable used with attributes of two families (say, string and
    float64), or nesting over 200 deep. With `unknown_operators`, calls of unknown operators are accepted as
    they are."""

    __slots__ = (
        "_bounded",
        "_boxes",
        "_families",
        "_gate",
        "_hash",
        "_lifted",
        "_over",
        "_plan",
        "_region",
        "_stateless",
        "_text",
        "_texts",
        "calls",
        "event_type",
        "expression",
        "plan_key",
    )

    event_type: EventType
    expression: Expression
    plan_key: tuple[Any, tuple[Operand, ...]] | None  # cached by `plan.plan_key` for engines
    calls: tuple[Call, ...]
    """The distinct calls of named operators, in order, each as expected to be true."""
    _families: dict[str, Family]
    _gate: Filter

    def __init__(
        self, event_type: EventType, expression: Expression, *, unknown_operators: bool = False
    ) -> None:
        checked = check_expression(event_type, expression, unknown_operators)
        self._set(event_type, checked, *contents_of(event_type.attributes, checked))

    def _set(
        self,
        event_type: EventType,
        expression: Expression,
        families: dict[str, Family],
        calls: tuple[Call, ...],
    ) -> None:
        self.event_type = event_type
        self.expression = expression
        self.calls = calls
        self._families = families
        self.plan_key = None
        self._hash: int | None = None
        self._text: str | None = None
        self._texts: tuple[Predicate, ...] | None = None
        self._boxes: tuple[Box, ...] | EllipsisType | None = ...
        self._bounded: tuple[Filter, CallBounds | None] | None = None
        self._lifted: _Lifted | None = None
        self._over: Filter | None = None
        self._plan: RegionPlan | None = None
        self._region: Region | None = None
        self._stateless: Filter | None = None

    @classmethod
    def of_checked(cls, event_type: EventType, expression: Expression) -> Filter:
        """A filter of an expression that is checked and in normal form."""
        filter = cls.__new__(cls)
        families, calls = contents_of(event_type.attributes, expression)
        filter._set(event_type, expression, families, calls)
        return filter

    def over(self, event_type: EventType) -> Filter:
        """This filter over another schema of its type; `FilterError` if that lacks one of the filter's
        attributes."""
        if self.event_type is event_type or self.event_type == event_type:
            return self
        if self.event_type.name != event_type.name:
            raise FilterError(f"filter over {self.event_type.name}: expected one over {event_type.name}")
        if self._over is None or self._over.event_type != event_type:
            if not event_type.includes(self.event_type) and not self._fits(event_type):
                raise self._misfit(event_type)
            self._over = Filter.of_checked(event_type, self.expression)
        return self._over

    def _fits(self, event_type: EventType) -> bool:
        mine, theirs = self.event_type.attributes, event_type.attributes
        return self.event_type.name == event_type.name and all(
            theirs.get(attribute) is mine[attribute] for attribute in attributes_of(self.expression)
        )

    def _misfit(self, event_type: EventType) -> FilterError:
        mine, theirs = self.event_type.attributes, event_type.attributes
        name = next(name for name in attributes_of(self.expression) if theirs.get(name) is not mine[name])
        if name in theirs:
            problem = f"attribute {name} of kind {mine[name]}: expected {theirs[name]}"
        else:
            problem = (
                f"unknown attribute {name!r}: expected one of {', '.join(theirs)}; widen adds attributes"
            )
        return FilterError(f"filter {str(self)!r} over {event_type.name}: {problem}")

    # --- variables ------------------------------------------------------------------------------------------

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables, in order of first appearance."""
        return tuple(self._families)

    def check_values(self, values: Mapping[str, object], *, partial: bool = False) -> dict[str, Scalar]:
        """The values in their inner form, a new dict.

        `VariableError` names a variable that is unknown, lacks a value (unless `partial`), or has one of the
        wrong kind: None, NaN, an integer over 64 bits. Infinities are numbers; int and float both fit both
        number kinds. An operator that checks its arguments may refuse others."""
        check_mapping(values)
        families = self._families
        checked: dict[str, Scalar] = {}
        for name, value in values.items():
            family = families.get(name)
            if family is None:
                known = ", ".join([f"${variable}" for variable in families]) or "none"
                raise VariableError(f"variable ${name} is unknown: {self} has {known}")
            if family is Family.NUMBER and value.__class__ is float and value == value:
                checked[name] = value + 0.0
                continue
            try:
                checked[name] = coerce(family, value)
            except ValueError as error:
                raise VariableError(f"variable ${name}: value {value!r}, {error}") from None
        if not partial and len(checked) != len(families):
            raise self.no_value_for(checked)
        if self.calls:
            check_call_values(self.calls, checked)
        return checked

    def family(self, name: str) -> Family | None:
        """The family of a variable; None for an unknown variable."""
        return self._families.get(name)

    def no_value_for(self, set_variables: Container[str]) -> VariableError:
        """The error for the first variable that is not among these."""
        missing = next(name for name in self._families if name not in set_variables)
        return VariableError(f"variable ${missing} has no value: expected {self._families[missing]}")

    def substitute(self, values: Mapping[str, object]) -> Filter:
        """This filter with constants for variables that have a value; `VariableError` as `check_values`."""
        checked = self.check_values(values, partial=True)
        if not checked:
            return self
        expression = substituted(self.expression, checked, self._kinds())
        if self.calls:
            return Filter.of_checked(self.event_type, expression)
        filter = Filter.__new__(Filter)
        unset = {name: family for name, family in self._families.items() if name not in checked}
        filter._set(self.event_type, expression, unset, ())
        return filter

    def lift(self) -> tuple[Filter, tuple[Operand, ...]]:
        """The structure of this filter and its operands; computed once. The structure has fresh variables
        "1", "2", ... in place of the operands, in order. Two filters have equal structures exactly when they
        differ in operands alone."""
        lifted = self._lift()
        return lifted.structure, lifted.operands

    def lift_values(self, values: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """The values of the structure's variables, from checked values of this filter's variables.
        `f.substitute(v) == structure.substitute(f.lift_values(v))`. `VariableError` names a variable without
        a value."""
        lifted = self._lifted or self._lift()
        if lifted.steps is None:
            lifted.steps = lifting_steps(lifted.operands, lifted.kinds)
        result: dict[str, Scalar] = {}
        try:
            for name, variable, scale, offset, get in lifted.steps:
                value = values[variable] if variable else None
                result[name] = scale * value + offset if value.__class__ is float else get(values)
        except KeyError as missing:
            raise VariableError(f"variable ${missing.args[0]} has no value") from None
        return result

    def _lift(self) -> _Lifted:
        if self._lifted is None:
            operands: list[Operand] = []
            kinds: list[Kind | None] = []
            expression = lifted(self.expression, self._kinds(), operands, kinds)
            same = all(operand == Variable(str(number)) for number, operand in enumerate(operands, 1))
            structure = self if same else Filter.of_checked(self.event_type, expression)
            self._lifted = _Lifted(structure, tuple(operands), tuple(kinds))
        return self._lifted

    def _kinds(self) -> Kinds:
        attributes = self.event_type.attributes
        return kinds_of(attributes, self.calls) if self.calls else attributes

    @property
    def texts(self) -> tuple[Predicate, ...]:
        """Its predicates `contains`, `not contains`, `not suffix`, whose constants have columns in engines;
        computed once."""
        if self._texts is None:
            self._texts = texts_of(self.expression)
        return self._texts

    # --- calls of named operators ---------------------------------------------------------------------------

    @property
    def gate(self) -> Filter:
        """This filter with true for every call and constraint; without calls the filter itself. Computed
        once."""
        if not self.calls:
            return self
        try:
            return self._gate
        except AttributeError:  # which few filters need
            self._gate = Filter.of_checked(self.event_type, gate_of(self.expression))
            return self._gate

    @property
    def stateless(self) -> Filter:
        """This filter with true for every call with state, as brokers compare and forward it; else itself.
        Computed once."""
        if not self.calls:
            return self
        if self._stateless is None:
            expression = stateless_of(self.expression, is_stateful)
            same = expression is self.expression
            self._stateless = self if same else Filter.of_checked(self.event_type, expression)
        return self._stateless

    def gate_at(self, values: Mapping[str, Scalar]) -> tuple[Filter, dict[str, Scalar]]:
        """A gate narrowed by the bounds of operators (`bounded_gate.py`), the same for all values, and its
        variables' values for these checked values."""
        if not self.calls:
            return self, dict(values)
        if self._bounded is None:
            bounds = CallBounds(self.event_type, self.calls, values)
            bounded = (
                Filter.of_checked(self.event_type, gate_of(self.expression, bounds.boxes)) if bounds else None
            )
            if bounded is None or (bounded.boxes() is None and self.gate.boxes() is not None):
                self._bounded = self.gate, None
            else:
                self._bounded = bounded, bounds
        gate, chosen = self._bounded
        known = values if chosen is None else chosen.values(values)
        return gate, {name: known[name] for name in gate.variables}

    @property
    def residue(self) -> Expression | None:
        """What is left to evaluate where the gate is true; None without calls."""
        return residue_of(self.expression) if self.calls else None

    # --- normal forms and relations -------------------------------------------------------------------------

    def boxes(self) -> tuple[Box, ...] | None:
        """The disjunctive normal form (see `boxes.py`); None over the cap. Computed once."""
        if self._boxes is ...:
            self._boxes = boxes_of(self.event_type, self.expression)
        return self._boxes

    def region(self, values: Mapping[str, Scalar] | None = None) -> Region:
        """The events that this filter accepts for these checked values, in the form for covering, in a few
        microseconds. Variables without a value stay symbolic."""
        if self._plan is None:
            self._plan = plan_region(self.event_type, self.expression, self.calls)
        if not self._families or not values:
            if self._region is None:
                self._region = self._plan.region(_NO_VALUES)
            return self._region
        return self._plan.region(values)

    def covers(self, other: Filter) -> bool:
        """Does this filter match every event that `other` matches, for all values of variables?

        A yes is always right. A no is always right for conjunctions of interval predicates without variables,
        and for disjunctions of these within the cap; else it may be overcautious. A variable of one name is
        the same in both."""
        if self.event_type.name != other.event_type.name:
            return False
        return self is other or covers_region(self.region(), other.region())

    def intersects(self, other: Filter) -> bool:
        """Is there an event that matches both? A no is always right, a yes not always."""
        return self.event_type.name == other.event_type.name and intersects_region(
            self.region(), other.region()
        )

    def matches(self, event: Mapping[str, object], values: Mapping[str, object] | None = None) -> bool:
        """Does this one event match? Keys that are no attributes are ignored; None is the same as no key.
        `VariableError` for values that do not fit, `EventError` for an attribute's value of the wrong kind.
        Operators with state have seen no earlier events; exceptions of operators are raised."""
        checked = self.check_values(values or _NO_VALUES)
        attributes = self.event_type.attributes
        if not self.calls:
            return holds(self.expression, attributes, event, checked)
        return has_solution(self.expression, self._kinds(), attributes, event, checked)

    # --- identity -------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        # Equal texts are equal expressions, and compare without walking trees.
        return (
            isinstance(other, Filter)
            and str(self) == str(other)
            and (self.event_type == other.event_type or self._fits(other.event_type))
        )

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.event_type.name, str(self)))
        return self._hash

    def __str__(self) -> str:
        if self._text is None:
            self._text = write(self.expression)
        return self._text

    def __repr__(self) -> str:
        return f"parse({str(self)!r}, {self.event_type.name})"

    def __reduce__(self) -> tuple[Callable[[str, EventType], Filter], tuple[str, EventType]]:
        return _unpickled, (str(self), self.event_type)


@dataclass(slots=True)
class _Lifted:
    structure: Filter
    operands: tuple[Operand, ...]
    kinds: tuple[Kind | None, ...]
    steps: tuple[LiftingStep, ...] | None = None  # computed at first use: matching engines never use them


def parse(text: str, event_type: EventType, *, unknown_operators: bool = False) -> Filter:
    """The filter of a text in the filter language (docs/filters.md); "" matches every event.

    `FilterSyntaxError` has the column, and what was expected. With `unknown_operators`, calls of operators
    that are unknown here are accepted as they are: a broker passes their events on. The last 4,096 texts are
    cached."""
    if not isinstance(text, str):
        raise FilterError(f"filter {text!r}: expected text")
    parsed = _parse_cached if len(text) <= _CACHED_LENGTH else _parse
    return parsed(text, event_type, unknown_operators, table.changes)


def _parse(text: str, event_type: EventType, unknown_operators: bool, changes: int) -> Filter:
    """`changes` of the table of operators is part of the cache's key: a text's filter may depend on it."""
    return Filter.of_checked(event_type, parse_expression(text, event_type, unknown_operators))


def _unpickled(text: str, event_type: EventType) -> Filter:
    return parse(text, event_type, unknown_operators=True)


_CACHED_LENGTH = 4096
_parse_cached = lru_cache(maxsize=4096)(_parse)


def check_filter(filter: object) -> None:
    """`FilterError` for an object that is no `Filter`."""
    if not isinstance(filter, Filter):
        raise FilterError(f"filter {filter!r}: expected a Filter, as `parse` and `filter_of` return")
