"""Decides the residues of filters for events: which operators to call, for which events, in which order.

An engine or broker has one evaluator; its input are pairs of an event and a residue whose gate is true.
Residues with few alternatives become chains, which a strategy decides together (Liu et al., section 4);
others are walked (`walking.py`). Invariants: a call is evaluated at most once per event of a batch, since
answers stay in the batch's results; `decide` never raises for a fault of an operator."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from covey.matcher.evaluation.accounts import Account, Accounts
from covey.matcher.evaluation.asking import Asking, Fault, OnFault
from covey.matcher.evaluation.bound_calls import names_of
from covey.matcher.evaluation.predicate_masks import PredicateMasks
from covey.matcher.evaluation.problem import (
    FALSE,
    TRUE,
    UNDECIDED,
    Ask,
    Chains,
    Int64s,
    Problem,
    Strategy,
    Truths,
)
from covey.matcher.evaluation.residue_plans import Alternative, CallLeaf, PredicateLeaf
from covey.matcher.evaluation.residues import PlanLines, Residues
from covey.matcher.evaluation.runner import Runner, run_at_once
from covey.matcher.evaluation.strategies import DEFAULT, create_strategy
from covey.matcher.evaluation.walking import MOST_SOLUTIONS, Pairs, walk
from covey.matcher.events.batch import EventBatch
from covey.matcher.filters.filter import Filter


class Evaluator:
    """Evaluates by a strategy (`strategies.py`), calls operators by `run` and reports their faults to
    `on_fault`, which must not raise. `CoveyError` for an unknown strategy."""

    def __init__(
        self,
        strategy: str | Strategy = DEFAULT,
        *,
        run: Runner = run_at_once,
        on_fault: OnFault | None = None,
    ) -> None:
        self._strategy = create_strategy(strategy) if isinstance(strategy, str) else strategy
        self._run = run
        self.on_fault: OnFault = on_fault or _ignore
        self._accounts = Accounts()

    @property
    def accounts(self) -> Mapping[str, Account]:
        return self._accounts.by_operator

    def decide(
        self,
        batch: EventBatch,
        residues: Residues,
        rows: Int64s,
        numbers: Int64s,
        groups: Int64s | None = None,
        *,
        readers: bool = True,
    ) -> Truths:
        """The truth of each pair of an event of the batch, `rows`, and a residue, `numbers`: int8[n].

        `groups` has one number per pair, the same for all pairs of a residue. If a group is true for an
        event, at least one of its pairs is TRUE, and others may be UNDECIDED. Without `readers`, operators
        with state are UNDECIDED."""
        truths = np.full(len(rows), FALSE)
        if not len(rows):
            return truths
        masks = PredicateMasks(batch)
        windows = _windows(len(batch), rows, numbers)
        for window in windows:
            here = np.flatnonzero((rows >= window.start) & (rows < window.stop)) if len(windows) > 1 else _ALL
            asking = Asking(batch, window, self._accounts, self._run, self.on_fault, readers=readers)
            mine = None if groups is None else groups[here]
            decision = _Decision(self, asking, masks, residues, rows[here], numbers[here], mine)
            try:
                truths[here] = decision.decide()
            finally:
                asking.close()
        return truths

    def aside(self, on_fault: OnFault) -> Evaluator:
        """An evaluator with the same runner and its own accounts."""
        return Evaluator(run=self._run, on_fault=on_fault)

    def explain(
        self, batch: EventBatch, residues: Residues, number: int, filter: Filter, *, readers: bool = True
    ) -> list[str]:
        """The truth of every call of a residue for a batch of one event, in words; `filter` is the residue's,
        with its values."""
        names = names_of(filter.calls)
        asking = Asking(batch, range(1), self._accounts, self._run, self.on_fault, readers=readers)
        shown, row = [], np.zeros(1, np.int64)
        for call, _ in residues.calls_of(number):
            if asking.present(call.columns).all():
                truth = asking.truths(call, row)[0]
                words = _WORDS[int(truth)]
                if call.free and truth == TRUE:
                    words = f"binds {_listed(asking.solutions(call, row)[1])}"
            else:
                words = "is false: an attribute is missing"
            shown += [f"{text} {words}" for text in names.get(call.text, [call.text])]
        asking.close()
        return list(dict.fromkeys(shown))

    def solve(self, problem: Problem, ask: Ask) -> Truths:
        return self._strategy.decide(problem, ask)

    def estimates(self, calls: list[Any]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        return self._accounts.estimates(calls)

    def report(self, fault: Fault) -> None:
        self.on_fault(fault)


_WINDOW = 1 << 13
"""The most events of a window: an answer of a call takes a byte for each."""
_WINDOW_PAIRS = 1 << 21
"""About the most pairs of a window: each takes some 200 bytes."""
_WINDOW_CELLS = 1 << 27  # the most events of a window times its residues
_ALL = slice(None)
_WORDS = {int(FALSE): "is false", int(UNDECIDED): "is undecided", int(TRUE): "is true"}


_MOST_SHOWN = 5  # solutions of a call in an explanation


def _listed(columns: list[npt.NDArray[Any]]) -> str:
    solutions = zip(*[column[:_MOST_SHOWN].tolist() for column in columns], strict=True)
    shown = [str(solution[0] if len(solution) == 1 else solution) for solution in solutions]
    left = len(columns[0]) - len(shown)
    return ", ".join(shown) + (f" and {left:,} more" if left else "")


def _ignore(fault: Fault) -> None:
    pass


def _windows(events: int, rows: Int64s, numbers: Int64s) -> list[range]:
    """The events of a batch in windows, which are decided one at a time, to bound memory."""
    length = _WINDOW
    if min(events, _WINDOW) * len(rows) > _WINDOW_CELLS:
        length = max(1, min(_WINDOW, _WINDOW_CELLS // int(np.count_nonzero(np.bincount(numbers)))))
    if events <= length and len(rows) <= _WINDOW_PAIRS:
        return [range(events)]
    ends = np.cumsum(np.bincount(rows, minlength=events))
    windows: list[range] = []
    first = 0
    while first < events:
        before = int(ends[first - 1]) if first else 0
        fitting = int(np.searchsorted(ends, before + _WINDOW_PAIRS, "right"))
        windows.append(range(first, min(first + length, max(fitting, first + 1), events)))
        first = windows[-1].stop
    return windows


class _Decision:
    def __init__(
        self,
        evaluator: Evaluator,
        asking: Asking,
        masks: PredicateMasks,
        residues: Residues,
        rows: Int64s,
        numbers: Int64s,
        groups: Int64s | None,
    ) -> None:
        self._evaluator, self._asking, self._masks, self._residues = evaluator, asking, masks, residues
        self._rows, self._numbers = rows, numbers
        self._groups = numbers if groups is None else groups
        self._events = int(rows.max(initial=-1)) + 1

    def decide(self) -> Truths:
        plans = self._residues.plan_of[self._numbers]
        distinct = np.unique(plans).tolist()
        turns = [number for number in distinct if self._residues.lines(number).plan.takes_turns]
        if not turns:
            return self._at_once(plans)
        truths = np.full(len(self._rows), FALSE)
        takes_turns = np.isin(plans, turns)
        rest = np.flatnonzero(~takes_turns)
        truths[rest] = self._part(rest)._at_once(plans[rest])
        (pairs,) = np.nonzero(takes_turns)
        pairs = pairs[np.argsort(self._rows[pairs], kind="stable")]
        starts = np.flatnonzero(np.diff(self._rows[pairs], prepend=-1))
        for at in np.split(pairs, starts[1:]):
            truths[at] = self._part(at)._at_once(plans[at])
        return truths

    def _part(self, at: Int64s) -> _Decision:
        return _Decision(
            self._evaluator, self._asking, self._masks, self._residues,
            self._rows[at], self._numbers[at], self._groups[at],
        )  # fmt: skip

    def _at_once(self, plans: Int64s) -> Truths:
        truths = np.full(len(self._rows), FALSE)
        problem = _ChainPairs()
        walked: list[tuple[PlanLines, Int64s]] = []
        for number in np.unique(plans).tolist():
            lines = self._residues.lines(number)
            at = np.flatnonzero(plans == number)
            if lines.plan.alternatives is None:
                walked.append((lines, at))
            else:
                for alternative in lines.plan.alternatives:
                    self._open(problem, lines, alternative, at)
        for lines, alternative, at, decided in self._solved(problem):
            if alternative.join is not None or alternative.late:
                decided = self._late(lines, alternative, at, decided)
            truths[at] = np.maximum(truths[at], decided)
        for lines, at in walked:
            if not lines.plan.is_late:
                at = at[~self._in_true_group(truths, at)]
            node = lines.plan.node
            truths[at] = walk(node, self._pairs(lines), at)
        return truths

    # --- chains -----------------------------------------------------------------------------------

    def _open(self, problem: _ChainPairs, lines: PlanLines, alternative: Alternative, at: Int64s) -> None:
        pairs = self._pairs(lines)
        for test in alternative.tests:
            at = at[pairs.test(test, at)]
        if not len(at):
            return
        numbers, of_pair = np.unique(self._numbers[at], return_inverse=True)
        literals = lines.literals[self._residues.line_of[numbers]][:, list(alternative.slots)]
        literals.sort(axis=1)
        is_alone = alternative.join is not None or bool(alternative.late)
        groups = np.full(len(numbers), -1, np.int64)
        if not is_alone:
            groups[of_pair] = self._groups[at]
        problem.add(lines, alternative, at, of_pair, literals, groups)

    def _solved(self, problem: _ChainPairs) -> list[tuple[PlanLines, Alternative, Int64s, Truths]]:
        if not problem.at:
            return []
        at = np.concatenate(problem.at)
        chain_of = np.concatenate(problem.chain_of)
        once = [np.diff(matrix, axis=1, prepend=-1) > 0 for matrix in problem.literals]
        literals = np.concatenate([m[keep] for m, keep in zip(problem.literals, once, strict=True)])
        lengths = np.concatenate([keep.sum(axis=1) for keep in once])
        used, predicates = np.unique(literals, return_inverse=True)
        groups = np.concatenate(problem.groups)
        alone = groups < 0
        _, groups = np.unique(groups, return_inverse=True)
        groups[alone] = groups.max(initial=0) + 1 + np.arange(np.count_nonzero(alone))
        calls = [self._residues.call(literal) for literal in used.tolist()]
        costs, selectivities = self._evaluator.estimates(calls)
        costs[[self._asking.is_known(call) for call in calls]] = _KNOWN_COST
        selectivities = np.where(used & 1, selectivities, 1 - selectivities)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        chains = Chains(next(_versions), offsets, predicates.astype(np.int64), costs, selectivities)
        order = np.argsort(self._rows[at], kind="stable")

        def ask(predicate: int, rows: Int64s) -> Truths:
            return self._asking.truths(calls[predicate], rows, expected=bool(used[predicate] & 1))

        decided = np.full(len(at), UNDECIDED)
        decided[order] = self._in_waves(
            Problem(chains, self._events, self._rows[at[order]], chain_of[order], groups), ask
        )
        bounds = np.cumsum([len(part) for part in problem.at])[:-1]
        parts = np.split(decided, bounds)
        return list(zip(problem.lines, problem.alternatives, problem.at, parts, strict=True))

    def _in_waves(self, problem: Problem, ask: Ask) -> Truths:
        """The truth of chains: by event and group first the one with the best probability for its cost, then
        two, four, and so on, until one is true."""
        assert problem.groups is not None
        key = problem.rows * (int(problem.groups.max()) + 1) + problem.groups[problem.chain_of]
        waves = _waves(key, _promise(problem.chains)[problem.chain_of])
        last = int(waves.max())
        if last == 0:
            return self._evaluator.solve(replace(problem, groups=None), ask)
        truths = np.full(len(key), UNDECIDED)
        left = np.ones(len(key), np.bool_)
        for wave in range(last + 1):
            mine = np.flatnonzero(left & (waves == wave))
            part = replace(problem, rows=problem.rows[mine], chain_of=problem.chain_of[mine])
            truths[mine] = self._evaluator.solve(part, ask)
            left &= (waves > wave) & ~np.isin(key, key[mine[truths[mine] == TRUE]])
        return truths

    def _late(self, lines: PlanLines, alternative: Alternative, at: Int64s, decided: Truths) -> Truths:
        """The truths of pairs after the join of their solutions and the calls with state."""
        pairs = self._pairs(lines)
        decided = decided.copy()
        if alternative.join is not None:
            true = np.flatnonzero(decided == TRUE)
            decided[true] = walk(alternative.join, pairs, at[true])
        for late in alternative.late:
            true = np.flatnonzero(decided == TRUE)
            decided[true] = pairs.ask(late, at[true])
        return decided

    # --- pairs ------------------------------------------------------------------------------------

    def _pairs(self, lines: PlanLines) -> Pairs:
        def calls(leaf: CallLeaf, at: Int64s) -> list[tuple[int, Int64s]]:
            """(literal, positions of its pairs in `at`)"""
            literals = lines.literals[self._residues.line_of[self._numbers[at]], leaf.slot]
            order = np.argsort(literals, kind="stable")
            starts = np.flatnonzero(np.diff(literals[order], prepend=-1))
            return list(zip(literals[order[starts]].tolist(), np.split(order, starts[1:]), strict=True))

        def ask(leaf: CallLeaf, at: Int64s) -> Truths:
            truths = np.full(len(at), FALSE)
            for literal, positions in calls(leaf, at) if len(at) else ():
                call, rows = self._residues.call(literal), self._rows[at[positions]]
                truths[positions] = self._asking.truths(call, rows, expected=bool(literal & 1))
            return truths

        def solve(leaf: CallLeaf, at: Int64s) -> tuple[Int64s, list[npt.NDArray[Any]]]:
            of_each: list[Int64s] = []
            columns: list[list[npt.NDArray[Any]]] = []
            for literal, positions in calls(leaf, at) if len(at) else ():
                call, rows = self._residues.call(literal), self._rows[at[positions]]
                of_rows, values = self._asking.solutions(call, rows)
                of_each.append(at[positions][of_rows])
                columns.append(values)
            if not of_each:
                return np.zeros(0, np.int64), [np.zeros(0, np.float64) for _ in leaf.names]
            return np.concatenate(of_each), [np.concatenate(column) for column in zip(*columns, strict=True)]

        def operand(number: int, at: Int64s) -> npt.NDArray[Any]:
            values: npt.NDArray[Any] = lines.operands[self._residues.line_of[self._numbers[at]], number]
            return values

        def test(leaf: PredicateLeaf, at: Int64s) -> npt.NDArray[np.bool_]:
            rows = self._rows[at]
            if not leaf.operands:
                return self._masks.mask(leaf.attribute, leaf.operator, ())[rows]
            used, of_pair = np.unique(self._numbers[at], return_inverse=True)
            operands = lines.operands[self._residues.line_of[used]][:, list(leaf.operands)]
            masks: dict[tuple[Any, ...], int] = {}
            number_of = np.zeros(len(used), np.int64)
            for i, values in enumerate(map(tuple, operands.tolist())):
                number_of[i] = masks.setdefault(values, len(masks))
            mask = np.zeros(len(at), np.bool_)
            of_mask = number_of[of_pair]
            for values, number in masks.items():
                mine = of_mask == number
                mask[mine] = self._masks.mask(leaf.attribute, leaf.operator, values)[rows[mine]]
            return mask

        def on_excess(count: int) -> None:
            reason = f"more than {MOST_SOLUTIONS:,} joint solutions of one event, which stays undecided"
            names = sorted({call.operator for call, _ in self._residues.calls_of(int(lines.numbers.max()))})
            self._evaluator.report(Fault(", ".join(names), reason, events=count))

        return Pairs(ask, solve, test, operand, on_excess)

    def _in_true_group(self, truths: Truths, at: Int64s) -> npt.NDArray[np.bool_]:
        true = truths == TRUE
        if not true.any():
            return np.zeros(len(at), np.bool_)
        _, groups = np.unique(self._groups, return_inverse=True)
        key = self._rows * (int(groups.max()) + 1) + groups
        return np.isin(key[at], key[true])


def _promise(chains: Chains) -> npt.NDArray[np.float64]:
    """For each chain: the probability that it is true, divided by its cost."""
    of_each = np.repeat(np.arange(len(chains.offsets) - 1), np.diff(chains.offsets))
    logarithms = np.log(np.maximum(chains.selectivities, 1e-9))[chains.predicates]
    costs = np.bincount(of_each, chains.costs[chains.predicates], len(chains.offsets) - 1)
    return np.exp(np.bincount(of_each, logarithms, len(costs))) / np.maximum(costs, _KNOWN_COST)


def _waves(key: Int64s, promise: npt.NDArray[np.float64]) -> Int64s:
    """The wave of each pair among the pairs of its key: 0 for the most promising, 1 for the next two, 2 for
    four ..."""
    order = np.lexsort((-promise, key))
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    ranks = np.arange(len(key)) - np.repeat(starts, np.diff(starts, append=len(key)))
    waves = np.empty(len(key), np.int64)
    waves[order] = np.log2(ranks + 1).astype(np.int64)
    return waves


class _ChainPairs:
    """The chains of one problem and their pairs, part by part: one per alternative of a plan."""

    def __init__(self) -> None:
        self.lines: list[PlanLines] = []
        self.alternatives: list[Alternative] = []
        self.at: list[Int64s] = []
        self.chain_of: list[Int64s] = []
        self.literals: list[Int64s] = []
        self.groups: list[Int64s] = []
        self._chains = 0

    def add(
        self,
        lines: PlanLines,
        alternative: Alternative,
        at: Int64s,
        chain_of: Int64s,
        literals: Int64s,
        groups: Int64s,
    ) -> None:
        self.lines.append(lines)
        self.alternatives.append(alternative)
        self.at.append(at)
        self.chain_of.append(chain_of + self._chains)
        self.literals.append(literals)
        self.groups.append(groups)
        self._chains += len(literals)


_KNOWN_COST = 1e-6  # microseconds, of a call that has answers in the batch

_versions = count(1)


log = logging.getLogger("covey.matcher")


class FaultLog:
    """Receives faults (`Evaluator.on_fault`); `last` has the last one by operator."""

    def __init__(self) -> None:
        self.last: dict[str, Fault] = {}

    def __call__(self, fault: Fault) -> None:
        if fault.operator not in self.last:
            log.warning("%s; events that need it to be decided are dropped, further faults not logged", fault)
        self.last[fault.operator] = fault


class EvaluationOptions(TypedDict, total=False):
    """`evaluation` is a strategy's name (`strategies.py`); `evaluator` a shared evaluator instead."""

    evaluation: str
    evaluator: Evaluator | None


def evaluator_of(evaluation: str = DEFAULT, evaluator: Evaluator | None = None) -> Evaluator:
    """The evaluator of an engine. `CoveyError` for an unknown strategy."""
    return evaluator or Evaluator(evaluation, on_fault=FaultLog())
