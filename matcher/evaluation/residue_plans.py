"""Compiled residues: a tree whose leaves are slots, shared by residues that differ only in calls and values.

A residue with few alternatives is also their list: conjunctions of calls, the chains of a strategy. Others
are walked as trees (`walking.py`). Invariant: a slot stands for one call and whether it is expected to be
true, an operand for one value; residues have both (`residues.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from covey.matcher.evaluation.bound_calls import is_stateful
from covey.matcher.events.event_type import Kind
from covey.matcher.expressions.calls import Kinds, operand_kinds, operands_of
from covey.matcher.expressions.expression import (
    And,
    Call,
    Constraint,
    Expression,
    Free,
    Operand,
    Predicate,
    leaves,
)
from covey.matcher.expressions.operators import Operator

MOST_ALTERNATIVES = 16  # residues with more are walked
_MOST_LEAVES = 256  # of all alternatives of a residue


@dataclass(frozen=True, slots=True)
class CallLeaf:
    """The call in a slot; `names` are its free variables."""

    slot: int
    names: tuple[int, ...] = ()
    is_stateful: bool = False


@dataclass(frozen=True, slots=True)
class PredicateLeaf:
    """A predicate, with the numbers of its operands."""

    attribute: str
    operator: Operator
    operands: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConstraintLeaf:
    """A value constraint: scales and free variables, and the number of the operand."""

    terms: tuple[tuple[int | float, int], ...]
    operator: Operator
    operand: int


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Node, ...]


Leaf = CallLeaf | PredicateLeaf | ConstraintLeaf
Node = Leaf | AllOf | AnyOf


@dataclass(frozen=True)
class Alternative:
    leaves: tuple[Leaf, ...]

    @cached_property
    def slots(self) -> tuple[int, ...]:
        """Of the stateless calls, which a strategy may evaluate in any order."""
        stateless = [leaf for leaf in self.leaves if isinstance(leaf, CallLeaf) and not leaf.is_stateful]
        return tuple(dict.fromkeys([leaf.slot for leaf in stateless]))

    @cached_property
    def late(self) -> tuple[CallLeaf, ...]:
        """The calls with state, evaluated where all others are true."""
        return tuple([leaf for leaf in self.leaves if isinstance(leaf, CallLeaf) and leaf.is_stateful])

    @cached_property
    def tests(self) -> tuple[PredicateLeaf, ...]:
        return tuple([leaf for leaf in self.leaves if isinstance(leaf, PredicateLeaf)])

    @cached_property
    def join(self) -> AllOf | None:
        """The test that is left where all calls are true: of their joint solutions; None if there is none."""
        names = [name for leaf in self.leaves if isinstance(leaf, CallLeaf) for name in set(leaf.names)]
        if len(set(names)) == len(names) and not any(
            isinstance(leaf, ConstraintLeaf) for leaf in self.leaves
        ):
            return None
        return AllOf(
            tuple(
                leaf
                for leaf in self.leaves
                if isinstance(leaf, ConstraintLeaf) or (isinstance(leaf, CallLeaf) and leaf.names)
            )
        )


@dataclass(frozen=True, eq=False)
class Plan:
    """A tree, its numbers of slots and operands, and its alternatives; None where they are too many."""

    node: Node
    slots: int
    operands: int
    alternatives: tuple[Alternative, ...] | None

    @cached_property
    def is_late(self) -> bool:
        return bool(_late_slots(leaves_of(self.node)))

    @cached_property
    def takes_turns(self) -> bool:
        """Whether a call with state is in several places: it then needs events one by one, to see them in
        order."""
        slots = _late_slots(leaves_of(self.node))
        return len(set(slots)) < len(slots)


@dataclass(frozen=True, slots=True)
class Template:
    """How a filter's residue fills its plan's slots: `calls[i]` has the operands `of_calls[i]`; `kept` are
    the plan's."""

    node: Node
    calls: tuple[Call, ...]
    operands: tuple[Operand, ...]
    kinds: tuple[Kind | None, ...]
    of_calls: tuple[tuple[int, ...], ...]
    kept: tuple[int, ...]


def template_of(residue: Expression, kinds: Kinds) -> Template:
    return _Compiler(kinds).template(residue)


def plan_of(template: Template) -> Plan:
    alternatives = _alternatives(template.node)
    if alternatives is not None and len(alternatives) > 1:
        slots = [slot for each in alternatives for slot in _late_slots(each)]
        if len(set(slots)) < len(slots):
            alternatives = None  # each by itself would ask a call with state about its events
    return Plan(
        template.node,
        len(template.calls),
        len(template.kept),
        None if alternatives is None else tuple(map(Alternative, alternatives)),
    )


def leaves_of(node: Node) -> list[Leaf]:
    leaves: list[Leaf] = []
    pending = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, AllOf | AnyOf):
            pending += part.parts[::-1]
        else:
            leaves.append(part)
    return leaves


def _late_slots(leaves: Sequence[Leaf]) -> list[int]:
    return [leaf.slot for leaf in leaves if isinstance(leaf, CallLeaf) and leaf.is_stateful]


class _Compiler:
    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._slots: dict[Call, int] = {}
        self._of_calls: list[tuple[int, ...]] = []
        self._operands: list[Operand] = []
        self._operand_kinds: list[Kind | None] = []
        self._kept: list[int] = []
        self._names: dict[str, int] = {}
        self._joint: set[str] = set()

    def template(self, residue: Expression) -> Template:
        self._joint = _joint_names(residue)
        node = self._node(residue)
        return Template(
            node, tuple(self._slots), tuple(self._operands), tuple(self._operand_kinds),
            tuple(self._of_calls), tuple(self._kept),
        )  # fmt: skip

    def _node(self, part: Expression) -> Node:
        if isinstance(part, Call):
            return self._call(part)
        if isinstance(part, Predicate):
            kinds = [self._kinds[part.attribute]] * len(part.operands)
            return PredicateLeaf(part.attribute, part.operator, self._keep(part.operands, kinds))
        if isinstance(part, Constraint):
            (operand,) = self._keep([part.operand], operand_kinds(part, self._kinds))
            terms = tuple([(scale, self._name(name)) for scale, name in part.terms])
            return ConstraintLeaf(terms, part.operator, operand)
        parts: list[Node] = []
        for each in part.parts:
            parts.append(self._node(each))  # noqa: PERF401 (saves stack)
        parts.sort(key=_urgency)
        return AllOf(tuple(parts)) if isinstance(part, And) else AnyOf(tuple(parts))

    def _call(self, call: Call) -> CallLeaf:
        slot = self._slots.get(call)
        if slot is None:
            slot = self._slots[call] = len(self._slots)
            first = len(self._operands)
            self._operands += operands_of(call)
            self._operand_kinds += operand_kinds(call, self._kinds)
            self._of_calls.append(tuple(range(first, len(self._operands))))
        joint = not self._joint.isdisjoint(call.free)
        names = tuple([self._name(a.name) for a in call.arguments if isinstance(a, Free)]) if joint else ()
        return CallLeaf(slot, names, is_stateful(call))

    def _name(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))

    def _keep(self, operands: Sequence[Operand], kinds: Sequence[Kind | None]) -> tuple[int, ...]:
        first = len(self._kept)
        self._kept += range(len(self._operands), len(self._operands) + len(operands))
        self._operands += operands
        self._operand_kinds += kinds
        return tuple(range(first, len(self._kept)))


def _joint_names(residue: Expression) -> set[str]:
    seen: set[str] = set()
    joint: set[str] = set()
    for leaf in leaves(residue):
        if isinstance(leaf, Constraint):
            joint.update(name for _, name in leaf.terms)
        elif isinstance(leaf, Call):
            joint.update(seen.intersection(leaf.free))
            seen.update(leaf.free)
    return joint


def _urgency(node: Node) -> int:
    """Order in a conjunction: free tests, calls, disjunctions, constraints on bindings, calls with state."""
    if isinstance(node, PredicateLeaf):
        return 0
    if isinstance(node, CallLeaf):
        return 4 if node.is_stateful else 1
    if isinstance(node, ConstraintLeaf):
        return 3
    return 4 if any(isinstance(leaf, CallLeaf) and leaf.is_stateful for leaf in leaves_of(node)) else 2


def _alternatives(node: Node) -> list[tuple[Leaf, ...]] | None:
    """The conjunctions of a tree; None if there are too many."""
    if isinstance(node, CallLeaf | PredicateLeaf | ConstraintLeaf):
        return [(node,)]
    parts: list[list[tuple[Leaf, ...]]] = []
    for each in node.parts:
        alternatives = _alternatives(each)
        if alternatives is None:
            return None
        parts.append(alternatives)
    if isinstance(node, AnyOf):
        joined = [alternative for part in parts for alternative in part]
    else:
        count = 1
        for part in parts:
            count *= len(part)
            if count > MOST_ALTERNATIVES:
                return None
        joined = [tuple(leaf for one in chosen for leaf in one) for chosen in product(*parts)]
    if len(joined) > MOST_ALTERNATIVES or (len(joined) > 1 and sum(map(len, joined)) > _MOST_LEAVES):
        return None
    return joined
