"""Walks residues as trees, for many pairs of an event and a residue at once.

Trees without free variables have a truth in Kleene's logic. Trees with free variables have *solutions*:
relations, which And joins and Or unites; a value constraint selects from a relation as soon as that binds its
variables (Liu et al., section 2.2). A line of a relation belongs to a pair; all pairs of a plan are joined
together. Invariants: an operator is called only for pairs that its truth may still decide; the solutions of a
pair are bounded, and over the bound the pair is undecided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.matcher.evaluation.problem import FALSE, TRUE, UNDECIDED, Int64s, Truths
from covey.matcher.evaluation.residue_plans import (
    AllOf,
    AnyOf,
    CallLeaf,
    ConstraintLeaf,
    Node,
    PredicateLeaf,
    leaves_of,
)
from covey.matcher.expressions.evaluation import passes
from covey.matcher.expressions.operators import Operator

Mask = npt.NDArray[np.bool_]
Columns = dict[int, npt.NDArray[Any]]

_COMPARE: dict[Operator, Callable[[Any, Any], Any]] = {
    Operator.EQ: np.equal,
    Operator.NE: np.not_equal,
    Operator.LT: np.less,
    Operator.LE: np.less_equal,
    Operator.GT: np.greater,
    Operator.GE: np.greater_equal,
}

MOST_SOLUTIONS = 10_000  # of one pair of an event and a residue, at any point of the join
_RELATIONS = 64  # with different variables, from alternatives under `or`
_LINES = 1 << 21  # of one join; more pairs are joined in halves


@dataclass(frozen=True, slots=True)
class Pairs:
    """How leaves of one plan are evaluated on pairs, by number: `ask` returns the truths of a slot's call,
    `solve` its solutions (the pair of each, and a column per free variable), `test` the truths of a
    predicate, `operand` the values of an operand. `on_excess` is called with the number of pairs with too
    many solutions."""

    ask: Callable[[CallLeaf, Int64s], Truths]
    solve: Callable[[CallLeaf, Int64s], tuple[Int64s, list[npt.NDArray[Any]]]]
    test: Callable[[PredicateLeaf, Int64s], Mask]
    operand: Callable[[int, Int64s], npt.NDArray[Any]]
    on_excess: Callable[[int], None]


def walk(node: Node, pairs: Pairs, at: Int64s) -> Truths:
    if _has_names(node):
        return _solved(node, pairs, at)
    return _truths(node, pairs, at)


def _truths(node: Node, pairs: Pairs, at: Int64s) -> Truths:
    if isinstance(node, CallLeaf):
        return pairs.ask(node, at)
    if isinstance(node, PredicateLeaf):
        return np.where(pairs.test(node, at), TRUE, FALSE)
    assert isinstance(node, AllOf | AnyOf)
    start, end = (TRUE, FALSE) if isinstance(node, AllOf) else (FALSE, TRUE)
    join = np.minimum if isinstance(node, AllOf) else np.maximum
    truths = np.full(len(at), start)
    left = np.arange(len(at))
    for part in node.parts:
        if not len(left):
            break
        truths[left] = join(truths[left], _truths(part, pairs, at[left]))
        left = left[truths[left] != end]
    return truths


# --- trees with free variables --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Relation:
    """The pair of each solution, and a column per free variable. `pending` constraints have an unbound
    variable."""

    at: Int64s
    columns: Columns
    pending: tuple[ConstraintLeaf, ...] = ()


@dataclass(frozen=True, slots=True)
class _Solutions:
    """Relations with different variables, and the pairs with undecided calls, which may have further
    solutions."""

    relations: list[_Relation]
    maybe: Int64s

    def alive(self) -> Int64s:
        return np.unique(np.concatenate([self.maybe, *[relation.at for relation in self.relations]]))


def _solved(node: Node, pairs: Pairs, at: Int64s) -> Truths:
    start = _Solutions([_Relation(at, {})], np.zeros(0, np.int64))
    try:
        solutions = _extended(node, pairs, start)
    except _TooManyError:
        if len(at) == 1:
            pairs.on_excess(1)
            return np.full(1, UNDECIDED)
        half = len(at) // 2
        return np.concatenate([_solved(node, pairs, at[:half]), _solved(node, pairs, at[half:])])
    truths = np.full(len(at), FALSE)
    truths[np.isin(at, solutions.maybe)] = UNDECIDED
    for relation in solutions.relations:
        if not relation.pending:
            truths[np.isin(at, relation.at)] = TRUE
    return truths


class _TooManyError(Exception):
    """A join has too many lines."""


def _extended(node: Node, pairs: Pairs, given: _Solutions) -> _Solutions:
    """The solutions `given`, joined with the solutions of a tree."""
    if isinstance(node, AllOf):
        for part in node.parts:
            given = _extended(part, pairs, given)
        return given
    if isinstance(node, AnyOf):
        parts = [_extended(part, pairs, given) for part in node.parts]
        return _united(parts)
    if isinstance(node, ConstraintLeaf):
        return replace(given, relations=[_select(relation, (node,), pairs) for relation in given.relations])
    alive = given.alive()
    if isinstance(node, PredicateLeaf):
        truths = np.where(pairs.test(node, alive), TRUE, FALSE)
    else:
        truths = pairs.ask(node, alive)
    undecided = alive[truths == UNDECIDED]
    maybe = np.union1d(given.maybe[np.isin(given.maybe, alive[truths != FALSE])], undecided)
    true = alive[truths == TRUE]
    if isinstance(node, CallLeaf) and node.names:
        solution = _of_call(node, pairs, true)
        joined = [_joined(relation, solution, pairs) for relation in given.relations]
    else:
        joined = [_kept(relation, np.isin(relation.at, true)) for relation in given.relations]
    return _Solutions([relation for relation in joined if len(relation.at)], maybe)


def _united(parts: Sequence[_Solutions]) -> _Solutions:
    if sum(len(part.relations) for part in parts) > _RELATIONS:
        raise _TooManyError
    alike: dict[tuple[frozenset[int], tuple[ConstraintLeaf, ...]], list[_Relation]] = {}
    for part in parts:
        for relation in part.relations:
            alike.setdefault((frozenset(relation.columns), relation.pending), []).append(relation)
    relations = []
    for (names, pending), same in alike.items():
        if len(same) == 1:
            relations.append(same[0])
        elif not names:
            at = np.unique(np.concatenate([relation.at for relation in same]))
            relations.append(_Relation(at, {}, pending))
        else:
            at = np.concatenate([relation.at for relation in same])
            columns = {n: np.concatenate([relation.columns[n] for relation in same]) for n in names}
            relations.append(_Relation(at, columns, pending))
            _check(at)
    return _Solutions(relations, np.unique(np.concatenate([part.maybe for part in parts])))


def _of_call(node: CallLeaf, pairs: Pairs, at: Int64s) -> _Relation:
    of_each, columns = pairs.solve(node, at)
    by_name: Columns = {}
    for name, column in zip(node.names, columns, strict=True):
        by_name.setdefault(name, column)
    return _Relation(of_each, by_name)


def _joined(one: _Relation, other: _Relation, pairs: Pairs) -> _Relation:
    order = np.argsort(other.at, kind="stable")
    sorted_at = other.at[order]
    starts = np.searchsorted(sorted_at, one.at, "left")
    counts = np.searchsorted(sorted_at, one.at, "right") - starts
    _check(one.at, counts)
    ends = np.cumsum(counts)
    left = np.repeat(np.arange(len(one.at)), counts)
    right = order[np.arange(len(left)) + np.repeat(starts - ends + counts, counts)]
    keep = np.ones(len(left), np.bool_)
    for name in one.columns.keys() & other.columns.keys():
        keep &= np.asarray(one.columns[name][left] == other.columns[name][right], np.bool_)
    left, right = left[keep], right[keep]
    columns = {name: column[left] for name, column in one.columns.items()}
    columns |= {name: column[right] for name, column in other.columns.items() if name not in columns}
    return _select(_Relation(one.at[left], columns), one.pending, pairs)


def _check(at: Int64s, counts: Int64s | None = None) -> None:
    """`_TooManyError` if a join has too many lines, of one pair or in total."""
    total = len(at) if counts is None else int(counts.sum())
    if total <= MOST_SOLUTIONS:
        return
    _, of = np.unique(at, return_inverse=True)
    if total > _LINES or np.bincount(of, counts).max() > MOST_SOLUTIONS:
        raise _TooManyError


def _kept(relation: _Relation, keep: Mask) -> _Relation:
    columns = {name: column[keep] for name, column in relation.columns.items()}
    return _Relation(relation.at[keep], columns, relation.pending)


def _select(relation: _Relation, constraints: Sequence[ConstraintLeaf], pairs: Pairs) -> _Relation:
    pending = list(relation.pending)
    for constraint in constraints:
        if all(name in relation.columns for _, name in constraint.terms):
            relation = _kept(relation, _satisfying(relation, constraint, pairs))
        elif constraint not in pending:
            pending.append(constraint)
    return replace(relation, pending=tuple(pending))


def _satisfying(relation: _Relation, constraint: ConstraintLeaf, pairs: Pairs) -> Mask:
    operands = pairs.operand(constraint.operand, relation.at)
    values = [relation.columns[name] for _, name in constraint.terms]
    compare = _COMPARE.get(constraint.operator)
    numbers = [_floats(column) for column in (*values, operands)]
    exact = [column for column in numbers if column is not None]
    if compare is not None and len(exact) == len(numbers):
        *bound, operand = exact
        left = np.zeros(len(operand))
        for (scale, _), column in zip(constraint.terms, bound, strict=True):
            left = left + scale * column
        return np.asarray(compare(left, operand), np.bool_)
    truths = [
        _satisfies(solution, constraint, operand)
        for *solution, operand in zip(*[column.tolist() for column in (*values, operands)], strict=True)
    ]
    return np.array(truths, np.bool_)


def _satisfies(solution: Sequence[Any], constraint: ConstraintLeaf, operand: Any) -> bool:
    """False for values of another family, to which other brokers may bind the variables of an operator
    unknown here."""
    try:
        if len(solution) == 1 and constraint.terms[0][0] == 1:
            return passes(constraint.operator, solution[0], [operand])
        total = 0.0
        for (scale, _), each in zip(constraint.terms, solution, strict=True):
            total += float(scale) * float(each)
        return passes(constraint.operator, total, [operand])
    except (TypeError, ValueError):
        return False


def _floats(column: npt.NDArray[Any]) -> npt.NDArray[np.float64] | None:
    """Numbers that float64 holds exactly; None for others."""
    if column.dtype == np.object_:
        if not all(type(value) in (int, float) for value in column[:1]):
            return None
        try:
            floats = column.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            return None
    elif column.dtype.kind in "if":
        floats = column.astype(np.float64)
    else:
        return None
    finite = np.abs(floats[np.isfinite(floats)])
    exact = column.dtype == np.float64 or not (finite >= 2.0**53).any()
    return floats if exact else None


def _has_names(node: Node) -> bool:
    return any(
        isinstance(leaf, ConstraintLeaf) or (isinstance(leaf, CallLeaf) and leaf.names)
        for leaf in leaves_of(node)
    )
