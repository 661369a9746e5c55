"""Regions: what a filter accepts once its variables have values, in the form on which covering is decided.

A region is a union of *conjunctions*; a conjunction restricts some attributes, each to a set of intervals
(see `intervals.py`), and holds *atoms*: predicates that are no intervals (suffix, contains), or whose
variables have no value and which therefore say nothing but themselves. Invariants: no conjunction is empty,
as far as its cuts and atoms tell (`x > 5 and x < 6` leaves none over int64); no set of cuts is empty or
everything; conjunctions that restrict one and the same attribute alone are one. An attribute that a
conjunction does not name may have any value, or none.

Over the cap of the normal form a region is a tree: the conjunction or disjunction of the regions of its
parts.

`plan_region` works once per filter what does not depend on values; `RegionPlan.region(values)` does the rest
in a few microseconds, without making a filter. Figures: see the docstring of `covering.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter

from covey.matcher.boxes import Forms, conjunctions
from covey.matcher.conjunction import OPAQUE, Conjunction, settled
from covey.matcher.event_type import EventType, Kind
from covey.matcher.expression import And, Constant, Expression, Operand, Operator, Predicate, Scalar
from covey.matcher.intervals import (
    LINES,
    Cut,
    Cuts,
    Line,
    difference,
    intersection,
    interval,
    prefix,
    union,
)
from covey.matcher.values import affine, evaluate, normal

Values = Mapping[str, Scalar]


class Region:
    """A union of conjunctions; or, where `conjunctions` is None, `parts` joined: by `and` if `every`.

    Immutable, hashable; regions of one event type are compared only. Equal regions accept the same events.
    """

    __slots__ = ("conjunctions", "event_type", "every", "parts")

    def __init__(
        self,
        event_type: EventType,
        conjunctions: tuple[Conjunction, ...] | None,
        parts: tuple[Region, ...] = (),
        every: bool = False,
    ) -> None:
        self.event_type = event_type
        self.conjunctions = conjunctions
        self.parts = parts
        self.every = every

    @property
    def is_empty(self) -> bool:
        """Is it known that no event lies in this region?"""
        return self.conjunctions == ()

    def box_of(self, attribute: str) -> tuple[Cut, Cut] | None:
        """The smallest half-open interval of cuts that holds the attribute of every event in the region.

        None when the region does not restrict the attribute, is empty, or is a tree.
        """
        low = high = None
        for conjunction in self.conjunctions or ():
            cuts = conjunction.cuts.get(attribute)
            if cuts is None:
                return None
            low = cuts[0] if low is None else min(low, cuts[0])
            high = cuts[-1] if high is None else max(high, cuts[-1])
        return None if low is None else (low, high)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Region) or self.event_type != other.event_type:
            return False
        pending = [(self, other)]
        while pending:  # without recursion: trees may be deep
            a, b = pending.pop()
            if a is b:
                continue
            if a.conjunctions != b.conjunctions or a.every != b.every or len(a.parts) != len(b.parts):
                return False
            pending.extend(zip(a.parts, b.parts, strict=True))
        return True

    def __hash__(self) -> int:
        return hash((self.conjunctions, self.every, len(self.parts)))


class RegionPlan:
    """What of a filter's region does not depend on the values of its variables."""

    __slots__ = ("_event_type", "_every", "_forms", "_parts")

    def __init__(
        self, event_type: EventType, expression: Expression, known: dict[int, Forms | None] | None = None
    ) -> None:
        known = {} if known is None else known
        self._event_type = event_type
        self._every = isinstance(expression, And)
        self._parts: tuple[RegionPlan, ...] = ()
        self._forms: tuple[_FormPlan, ...] | None = None
        forms = conjunctions(expression, known)
        if forms is not None:
            self._forms = tuple([_FormPlan(event_type, form) for form in forms])
        elif not isinstance(expression, Predicate):  # which always has a form
            # What joins into few conjunctions stays together: predicates under `and`, intervals under `or`.
            near: list[Predicate] = []
            parts: list[RegionPlan] = []
            for part in expression.parts:
                if isinstance(part, Predicate) and (self._every or _fixed(part)):
                    near.append(part)
                else:
                    parts.append(RegionPlan(event_type, part, known))
            if near:
                together = RegionPlan(event_type, And())
                forms = (tuple(near),) if self._every else tuple([(part,) for part in near])
                together._forms = tuple([_FormPlan(event_type, form) for form in forms])
                parts.append(together)
            self._parts = tuple(parts)

    def region(self, values: Values) -> Region:
        """The region for checked values; predicates with a variable that has none stay symbolic."""
        forms = self._forms
        if forms is None:
            parts: list[Region] = []
            for part in self._parts:
                parts.append(part.region(values))  # noqa: PERF401 (saves stack)
            return Region(self._event_type, None, tuple(parts), self._every)
        if len(forms) == 1:
            only = forms[0].conjunction(values)
            return Region(self._event_type, () if only is None else (only,))
        found = [form.conjunction(values) for form in forms]
        return Region(
            self._event_type, _joined(self._event_type, [form for form in found if form is not None])
        )


def _fixed(predicate: Predicate) -> bool:
    """Is the predicate a set of intervals whatever the values?"""
    return predicate.operator not in OPAQUE and all(isinstance(o, Constant) for o in predicate.operands)


def plan_region(event_type: EventType, expression: Expression) -> RegionPlan:
    """The plan of a checked expression."""
    return RegionPlan(event_type, expression)


def _joined(event_type: EventType, found: list[Conjunction]) -> tuple[Conjunction, ...]:
    """Without repetition, and with those that restrict one same attribute alone joined into one."""
    kept: dict[Conjunction, None] = {}
    alone: dict[str, list[Cuts]] = {}
    for conjunction in found:
        if len(conjunction.cuts) == 1 and not conjunction.atoms:
            ((attribute, cuts),) = conjunction.cuts.items()
            alone.setdefault(attribute, []).append(cuts)
        else:
            kept[conjunction] = None
    for attribute, sets in alone.items():
        cuts = union(sets) if len(sets) > 1 else sets[0]
        if cuts == LINES[event_type.attributes[attribute]].everything:
            return (Conjunction({}),)
        kept[Conjunction({attribute: cuts})] = None
    return tuple(kept)


class _FormPlan:
    """One conjunction of predicates: what is known of its cuts and atoms, and what waits for values."""

    __slots__ = ("_cuts", "_event_type", "_steps", "_texts")

    def __init__(self, event_type: EventType, form: Iterable[Predicate]) -> None:
        self._event_type = event_type
        self._steps: list[tuple[str, Callable[[Values], Cuts], Predicate]] = []
        self._texts: list[Predicate] = []
        self._cuts: dict[str, Cuts] | None = {}
        for predicate in form:
            attribute = predicate.attribute
            kind = event_type.attributes[attribute]
            if predicate.operator in OPAQUE:
                self._texts.append(predicate)
                self._restrict(attribute, LINES[kind].present)
                continue
            compute = _cuts_of(predicate, kind)
            if all(isinstance(operand, Constant) for operand in predicate.operands):
                self._restrict(attribute, compute({}))
            else:
                self._steps.append((attribute, compute, predicate))

    def _restrict(self, attribute: str, cuts: Cuts) -> None:
        if self._cuts is not None:
            held = self._cuts.get(attribute)
            cuts = cuts if held is None else intersection(held, cuts)
            self._cuts[attribute] = cuts
            if not cuts:
                self._cuts = None  # a contradiction, whatever the values

    def conjunction(self, values: Values) -> Conjunction | None:
        """The conjunction for these values, or None when it is empty."""
        if self._cuts is None:
            return None
        cuts = self._cuts.copy()
        symbolic: list[Predicate] = []
        for attribute, compute, predicate in self._steps:
            try:
                found = compute(values)
            except KeyError:
                symbolic.append(predicate)
                found = LINES[self._event_type.attributes[attribute]].present
            held = cuts.get(attribute)
            if held is not None:
                found = intersection(held, found)
            if not found:
                return None
            cuts[attribute] = found
        if not symbolic and not self._texts:
            return Conjunction(cuts)
        atoms = frozenset([self._given(predicate, values) for predicate in (*self._texts, *symbolic)])
        return settled(cuts, atoms)

    def _given(self, predicate: Predicate, values: Values) -> Predicate:
        kind = self._event_type.attributes[predicate.attribute]
        operands: list[Operand] = [
            operand
            if isinstance(operand, Constant) or operand.name not in values
            else Constant(evaluate(operand, values, kind))
            for operand in predicate.operands
        ]
        return Predicate(predicate.attribute, predicate.operator, tuple(operands))


# --- the cuts of one predicate ------------------------------------------------------------------------------


def _getter(operand: Operand, kind: Kind) -> Callable[[Values], Scalar]:
    """The value of an operand, `KeyError` when its variable has none."""
    if isinstance(operand, Constant):
        constant = operand.value
        return lambda values: constant
    if operand.scale == 1 and operand.offset == 0:
        return itemgetter(operand.name)
    variable, name = operand, operand.name
    if kind is not Kind.FLOAT64:
        return lambda values: normal(kind, affine(variable, values[name]))
    scale, offset = float(operand.scale), float(operand.offset)

    def of_float(values: Values) -> Scalar:
        value = values[name]
        if value.__class__ is float:  # by far the most usual: in one step what the others come to
            return scale * value + offset
        return normal(kind, affine(variable, value))

    return of_float


def _cuts_of(predicate: Predicate, kind: Kind) -> Callable[[Values], Cuts]:
    """How to come from values to the set of the attribute's values that satisfy a predicate."""
    line, operator = LINES[kind], predicate.operator
    getters = [_getter(operand, kind) for operand in predicate.operands]
    if operator is Operator.EXISTS:
        return lambda values: line.present
    if operator is Operator.NOT_EXISTS:
        return lambda values: (line.missing, line.low)
    if operator is Operator.EQ:
        return _points(line, getters[0])
    if operator in (Operator.NE, Operator.IN, Operator.NOT_IN):
        outside = operator is not Operator.IN
        points = [_points(line, getter) for getter in getters]

        def members(values: Values) -> Cuts:
            inside = union([point(values) for point in points])
            return difference(line.present, inside, line) if outside else inside

        return members
    if operator is Operator.PREFIX:
        return lambda values: prefix(str(getters[0](values)))
    if operator is Operator.NOT_PREFIX:
        return lambda values: difference(line.present, prefix(str(getters[0](values))), line)
    if operator is Operator.BETWEEN:
        return lambda values: interval(line.before(getters[0](values)), line.after(getters[1](values)))
    if operator is Operator.NOT_BETWEEN:
        below, above = _below(line, getters[0], True), _above(line, getters[1], True)
        return lambda values: union([below(values), above(values)])
    strict = operator is Operator.LT or operator is Operator.GT
    if operator is Operator.LT or operator is Operator.LE:
        return _below(line, getters[0], strict)
    return _above(line, getters[0], strict)


def _points(line: Line, get: Callable[[Values], Scalar]) -> Callable[[Values], Cuts]:
    before, after = line.before, line.after

    def cuts(values: Values) -> Cuts:
        value = get(values)
        low, high = before(value), after(value)
        return (low, high) if low < high else ()

    return cuts


def _below(line: Line, get: Callable[[Values], Scalar], strict: bool) -> Callable[[Values], Cuts]:
    edge, low = line.before if strict else line.after, line.low

    def cuts(values: Values) -> Cuts:
        cut = edge(get(values))
        return (low, cut) if low < cut else ()

    return cuts


def _above(line: Line, get: Callable[[Values], Scalar], strict: bool) -> Callable[[Values], Cuts]:
    edge, top = line.after if strict else line.before, line.top

    def cuts(values: Values) -> Cuts:
        cut = edge(get(values))
        return (cut, top) if cut < top else ()

    return cuts
