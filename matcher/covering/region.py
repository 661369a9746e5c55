"""Regions: the events that a filter accepts for given values, in the form on which covering is decided.

A region is a union of *conjunctions*; a conjunction restricts some attributes to sets of intervals
(`cuts.py`) and has *atoms* (`conjunction.py`). Invariants: no conjunction is empty, as far as its cuts and
atoms show (`x > 5 and x < 6` is, over int64); no set of cuts is empty or everything; conjunctions that
restrict only the same one attribute are joined. An attribute without cuts may have any value, or none. Over
the cap of the normal form a region is a tree of the regions of its parts. Free variables connect parts, so
with them it is the filter's gate and one atom instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from covey.matcher.covering.boxes import Forms, conjunctions
from covey.matcher.covering.call_atoms import CallPlan, JointPlan, Restriction, WholePlan, joint_plans
from covey.matcher.covering.conjunction import Atom, Conjunction, settled
from covey.matcher.covering.cuts import LINES, Cut, Cuts, common, intersection, union
from covey.matcher.covering.cutting import Span, Values, cuts_of, span_of
from covey.matcher.events.event_type import EventType
from covey.matcher.expressions.expression import (
    And,
    Call,
    Constant,
    Constraint,
    Expression,
    Leaf,
    Operand,
    Or,
    Predicate,
)
from covey.matcher.expressions.operators import OPAQUE
from covey.matcher.expressions.rewriting import gate_of
from covey.matcher.expressions.values import evaluate

_Step = tuple[str, Callable[[Values], Cuts], Predicate]


class Region:
    """A union of conjunctions; or, if `conjunctions` is None, the `parts`, joined by `and` if `every`, else
    by `or`. Immutable, hashable; compare only regions of one event type. Equal regions accept the same
    events."""

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
        """Whether it is certain that no event lies in this region."""
        return self.conjunctions == ()

    def box_of(self, attribute: str) -> tuple[Cut, Cut] | None:
        """The smallest half-open interval of cuts that contains the attribute of every event in the region;
        None if the region does not restrict the attribute, is empty, or is a tree."""
        low = high = None
        for conjunction in self.conjunctions or ():
            cuts = conjunction.cuts.get(attribute)
            if cuts is None:
                return None
            low = cuts[0] if low is None else min(low, cuts[0])
            high = cuts[-1] if high is None else max(high, cuts[-1])
        return None if low is None else (low, high)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Region) or self.event_type.name != other.event_type.name:
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


class RegionPlan(Protocol):
    """The part of a filter's region that does not depend on the values of its variables."""

    def region(self, values: Values) -> Region:
        """The region for checked values; predicates with a variable without a value stay symbolic."""


class _ExpressionPlan:
    __slots__ = ("_event_type", "_every", "_forms", "_only", "_parts")

    def __init__(
        self, event_type: EventType, expression: Expression, cache: dict[int, Forms | None] | None = None
    ) -> None:
        cache = {} if cache is None else cache
        self._event_type = event_type
        self._every = isinstance(expression, And)
        self._parts: tuple[_ExpressionPlan, ...] = ()
        self._forms: tuple[_FormPlan, ...] | None = None
        self._only: _FormPlan | None = None
        forms = conjunctions(expression, cache)
        if forms is not None:
            self._take(forms)
        elif isinstance(expression, And | Or):  # predicates always have a form
            # What joins into few conjunctions stays together: predicates under `and`, intervals under `or`.
            near: list[Leaf] = []
            parts: list[_ExpressionPlan] = []
            for part in expression.parts:
                if not isinstance(part, (And, Or)) and (self._every or _fixed(part)):
                    near.append(part)
                else:
                    parts.append(_ExpressionPlan(event_type, part, cache))
            if near:
                together = _ExpressionPlan(event_type, And())
                forms = (tuple(near),) if self._every else tuple([(part,) for part in near])
                together._take(forms)
                parts.append(together)
            self._parts = tuple(parts)

    def _take(self, forms: Forms) -> None:
        self._forms = tuple([_FormPlan(self._event_type, form) for form in forms])
        self._only = self._forms[0] if len(forms) == 1 else None

    def region(self, values: Values) -> Region:
        if self._only is not None:
            only = self._only.conjunction(values)
            return Region(self._event_type, () if only is None else (only,))
        forms = self._forms
        if forms is None:
            parts: list[Region] = []
            for part in self._parts:
                parts.append(part.region(values))  # noqa: PERF401 (saves stack)
            return Region(self._event_type, None, tuple(parts), self._every)
        conjunctions = [form.conjunction(values) for form in forms]
        return Region(
            self._event_type, _joined(self._event_type, [form for form in conjunctions if form is not None])
        )


def _fixed(leaf: Leaf) -> bool:
    if not isinstance(leaf, Predicate):
        return False
    return leaf.operator not in OPAQUE and all(isinstance(o, Constant) for o in leaf.operands)


class _BoundPlan:
    """A filter with free variables over the cap of the normal form: its gate, and all of it as one atom."""

    __slots__ = ("_event_type", "_gate", "_whole")

    def __init__(self, event_type: EventType, expression: Expression, calls: Sequence[Call]) -> None:
        self._event_type = event_type
        self._gate = _ExpressionPlan(event_type, gate_of(expression))
        self._whole = WholePlan(event_type, expression, calls)

    def region(self, values: Values) -> Region:
        atom: frozenset[Atom] = frozenset([self._whole.atom(values)])
        whole = Region(self._event_type, (Conjunction({}, atom),))
        return Region(self._event_type, None, (self._gate.region(values), whole), every=True)


def plan_region(event_type: EventType, expression: Expression, calls: Sequence[Call] = ()) -> RegionPlan:
    """The plan of a checked expression; `calls` are all its calls."""
    cache: dict[int, Forms | None] = {}
    if any(call.free for call in calls) and conjunctions(expression, cache) is None:
        return _BoundPlan(event_type, expression, calls)
    return _ExpressionPlan(event_type, expression, cache)


def _joined(event_type: EventType, conjunctions: list[Conjunction]) -> tuple[Conjunction, ...]:
    """Without repetitions; conjunctions that restrict only the same one attribute are joined."""
    kept: dict[Conjunction, None] = {}
    alone: dict[str, list[Cuts]] = {}
    for conjunction in conjunctions:
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
    """One conjunction of predicates: its constant cuts and atoms, and the steps that need values."""

    __slots__ = (
        "_atoms",
        "_calls",
        "_cuts",
        "_event_type",
        "_joints",
        "_others",
        "_spans",
        "_steps",
        "_texts",
    )

    def __init__(self, event_type: EventType, form: Sequence[Leaf]) -> None:
        self._event_type = event_type
        self._steps: list[_Step] = []
        self._texts: list[Predicate] = []
        self._calls: list[CallPlan] = []
        self._joints: list[JointPlan] = []
        self._cuts: dict[str, Cuts] | None = {}
        predicates = [leaf for leaf in form if isinstance(leaf, Predicate)]
        if len(predicates) < len(form):
            self._take_calls(form)
        constant: dict[str, list[Cuts]] = {}
        for predicate in predicates:
            attribute = predicate.attribute
            kind = event_type.attributes[attribute]
            if predicate.operator in OPAQUE:
                self._texts.append(predicate)
                constant.setdefault(attribute, []).append(LINES[kind].present)
                continue
            compute = cuts_of(predicate, kind)
            if all(isinstance(operand, Constant) for operand in predicate.operands):
                constant.setdefault(attribute, []).append(compute({}))
            else:
                self._steps.append((attribute, compute, predicate))
        for attribute, sets in constant.items():
            self._restrict(attribute, common(sets))
        self._spans: list[tuple[str, Span]] = []
        self._others: list[_Step] = []
        by_attribute: dict[str, list[_Step]] = {}
        for step in self._steps:
            by_attribute.setdefault(step[0], []).append(step)
        for attribute, steps in by_attribute.items():
            span = span_of([predicate for _, _, predicate in steps], event_type.attributes[attribute])
            if span is None or attribute in (self._cuts or ()):
                self._others += steps
            else:
                self._spans.append((attribute, span))
        self._atoms = bool(self._texts or self._calls or self._joints)  # whatever the values

    def _take_calls(self, form: Sequence[Leaf]) -> None:
        calls = [leaf for leaf in form if isinstance(leaf, Call)]
        constraints = [leaf for leaf in form if isinstance(leaf, Constraint)]
        self._calls = [CallPlan(self._event_type, call) for call in calls if not call.free]
        self._joints = joint_plans(self._event_type, [call for call in calls if call.free], constraints)
        for call in (*self._calls, *[call for joint in self._joints for call in joint.calls]):
            for attribute, cuts in call.present():
                self._restrict(attribute, cuts)

    def _restrict(self, attribute: str, cuts: Cuts) -> None:
        if self._cuts is not None:
            previous = self._cuts.get(attribute)
            cuts = cuts if previous is None else intersection(previous, cuts)
            self._cuts[attribute] = cuts
            if not cuts:
                self._cuts = None  # a contradiction, whatever the values

    def conjunction(self, values: Values) -> Conjunction | None:
        if self._cuts is None:
            return None
        cuts, steps = self._cuts.copy(), self._others
        try:
            for attribute, span in self._spans:
                ends = span(values)
                if ends[0] >= ends[1]:
                    return None
                cuts[attribute] = ends
        except KeyError:  # a variable without a value
            cuts, steps = self._cuts.copy(), self._steps
        if steps or self._atoms:
            return self._restricted(cuts, steps, values)
        return Conjunction(cuts)

    def _restricted(self, cuts: dict[str, Cuts], steps: list[_Step], values: Values) -> Conjunction | None:
        symbolic: list[Predicate] = []
        for attribute, compute, predicate in steps:
            try:
                allowed = compute(values)
            except KeyError:
                symbolic.append(predicate)
                allowed = LINES[self._event_type.attributes[attribute]].present
            previous = cuts.get(attribute)
            if previous is not None:
                allowed = intersection(previous, allowed)
            if not allowed:
                return None
            cuts[attribute] = allowed
        if not symbolic and not self._atoms:
            return Conjunction(cuts)
        atoms: list[Atom] = [self._given(predicate, values) for predicate in (*self._texts, *symbolic)]
        if self._calls or self._joints:
            for attribute, allowed in self._bounds_of_calls(values, atoms):
                allowed = intersection(cuts[attribute], allowed)
                if not allowed:
                    return None
                cuts[attribute] = allowed
        return settled(cuts, frozenset(atoms))

    def _bounds_of_calls(self, values: Values, atoms: list[Atom]) -> list[Restriction]:
        """The bounds of all calls; appends the calls' atoms to `atoms`."""
        bounds: list[Restriction] = []
        for call in self._calls:
            atom = call.atom(values)
            atoms.append(atom)
            bounds += call.bounds(atom)
        for joint in self._joints:
            joint_atom = joint.atom(values)
            atoms.append(joint_atom)
            bounds += joint.bounds(joint_atom)
        return bounds

    def _given(self, predicate: Predicate, values: Values) -> Predicate:
        kind = self._event_type.attributes[predicate.attribute]
        operands: list[Operand] = [
            operand
            if isinstance(operand, Constant) or operand.name not in values
            else Constant(evaluate(operand, values, kind))
            for operand in predicate.operands
        ]
        return Predicate(predicate.attribute, predicate.operator, tuple(operands))
