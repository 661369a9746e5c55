"""Evaluation of one chain after the other, which the strategies of the paper have in common.

An event's predicates depend on no other event, so the order of chains may be the outer loop and the events of
the batch the inner one: each step is a few array operations on all events whose chain is open. Every event
meets its chains in the same order as if it came alone, so the predicates that are evaluated are the paper's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.matcher.evaluation.problem import (
    FALSE,
    TRUE,
    UNDECIDED,
    Ask,
    Chains,
    Int64s,
    Problem,
    Truths,
)

UNKNOWN = np.int8(3)
"""Of a predicate that was not asked about an event; greater than every truth, so that the least of a chain's
truths is FALSE as soon as one is."""
_CELLS = 1 << 26
"""Of one truth table, in bytes; a batch with more is evaluated in several ranges of events."""


class ChainTable:
    """One problem in the course of its evaluation: known truths, and the groups that are decided."""

    def __init__(self, problem: Problem, ask: Ask, present: Int64s, used: Int64s) -> None:
        chains = problem.chains
        self._ask = ask
        self._offsets, self._predicates = chains.offsets, chains.predicates
        self._place = np.full(len(chains.costs), -1, np.int64)
        self._place[used] = np.arange(len(used))
        self._truths = np.full((len(used), problem.events), UNKNOWN, np.int8)
        self.group_of, groups = shared_groups(problem.groups, present, len(chains.offsets) - 1)
        self._true_groups = np.zeros((groups, problem.events), np.bool_)
        self.prepared: Any = None
        """What the strategy has prepared for this problem (`Chainwise.prepared`)."""

    def predicates(self, chain: int) -> Int64s:
        """The predicates of a chain, in its own order."""
        return self._predicates[self._offsets[chain] : self._offsets[chain + 1]]

    def known(self, predicates: Int64s, rows: Int64s) -> Truths:
        """The truths of predicates for events, UNKNOWN where not asked: int8[predicates, rows]."""
        known: Truths = self._truths[self._place[predicates][:, np.newaxis], rows]
        return known

    def ask(self, predicate: int, rows: Int64s) -> Truths:
        """The truths of a predicate for events; those that are unknown are asked, in one call."""
        known = self._truths[self._place[predicate]]
        truths: Truths = known[rows]
        unknown = rows[truths == UNKNOWN]
        if len(unknown):
            known[unknown] = self._ask(predicate, unknown)
            truths = known[rows]
        return truths

    def ask_in_turn(self, predicates: Int64s, rows: Int64s) -> Truths:
        """The truth of a chain for events, its predicates asked in this order until one is false."""
        truths = np.full(len(rows), TRUE)
        left = np.arange(len(rows))
        for predicate in predicates.tolist():
            answers = self.ask(predicate, rows[left])
            truths[left] = np.minimum(truths[left], answers)
            left = left[answers != FALSE]
            if not len(left):
                break
        return truths

    def in_true_group(self, chain: int, rows: Int64s) -> npt.NDArray[np.bool_]:
        """Whether another chain of this chain's group is true for the events."""
        group = self.group_of[chain]
        return self._true_groups[group, rows] if group >= 0 else np.zeros(len(rows), np.bool_)

    def decide(self, chain: int, rows: Int64s, truths: Truths) -> None:
        """Note the truths of a chain for the events, for the other chains of its group."""
        group = self.group_of[chain]
        if group >= 0:
            self._true_groups[group, rows[truths == TRUE]] = True


class Chainwise(ABC):
    """A strategy that decides the chains of a batch in one order for all events."""

    def decide(self, problem: Problem, ask: Ask) -> Truths:
        truths = np.full(len(problem.rows), UNDECIDED)
        present = np.unique(problem.chain_of)
        used = _used(problem.chains, present)
        events = max(1, _CELLS // max(1, len(used)))
        for first in range(0, problem.events, events):
            start, end = np.searchsorted(problem.rows, (first, first + events))
            if start < end:
                part = replace(
                    problem,
                    events=min(events, problem.events - first),
                    rows=problem.rows[start:end] - first,
                    chain_of=problem.chain_of[start:end],
                )
                truths[start:end] = self._decide(part, _from_row(ask, first), present, used)
        return truths

    def _decide(self, problem: Problem, ask: Ask, present: Int64s, used: Int64s) -> Truths:
        table = ChainTable(problem, ask, present, used)
        by_chain = np.argsort(problem.chain_of, kind="stable")
        chains = len(problem.chains.offsets) - 1
        bounds = np.searchsorted(problem.chain_of[by_chain], np.arange(chains + 1))
        order = self.order(problem.chains)
        order = order[bounds[order] < bounds[order + 1]]
        truths = np.full(len(problem.rows), UNDECIDED)
        table.prepared = self.prepared(table, problem, order)
        for chain in order.tolist():
            pairs = by_chain[bounds[chain] : bounds[chain + 1]]
            if table.group_of[chain] >= 0:
                pairs = pairs[~table.in_true_group(chain, problem.rows[pairs])]
            rows = problem.rows[pairs]
            truths[pairs] = self.decide_chain(table, chain, rows)
            table.decide(chain, rows, truths[pairs])
        return truths

    @abstractmethod
    def order(self, chains: Chains) -> Int64s:
        """All chains, in the order in which they are decided."""

    def prepared(self, table: ChainTable, problem: Problem, order: Int64s) -> Any:  # noqa: B027
        """What `decide_chain` needs for a problem, whose chains come in this order. It is kept in the table:
        engines in several threads may share a strategy.
        """

    @abstractmethod
    def decide_chain(self, table: ChainTable, chain: int, rows: Int64s) -> Truths:
        """The truth of one chain for the events in which it is open."""


def _from_row(ask: Ask, first: int) -> Ask:
    return ask if first == 0 else lambda predicate, rows: ask(predicate, rows + first)


def _used(chains: Chains, present: Int64s) -> Int64s:
    """The predicates of these chains, ascending."""
    if len(present) == len(chains.offsets) - 1:
        return np.unique(chains.predicates)
    return np.unique(chains.predicates[places_of(chains, present)])


def places_of(chains: Chains, of: Int64s) -> Int64s:
    """The places in `chains.predicates` of the predicates of several chains, chain by chain."""
    lengths = chains.offsets[of + 1] - chains.offsets[of]
    ends = np.cumsum(lengths)
    shifts: Int64s = np.repeat(chains.offsets[of] - ends + lengths, lengths)
    return shifts + np.arange(len(shifts))


def shared_groups(groups: Int64s | None, present: Int64s, chains: int) -> tuple[Int64s, int]:
    """The group of each chain, numbered from 0, where several of the chains present have it; else -1."""
    numbers = np.full(chains, -1, np.int64)
    if groups is None or not len(present):
        return numbers, 0
    _, number, sizes = np.unique(groups[present], return_inverse=True, return_counts=True)
    shared = sizes > 1
    numbering = np.where(shared, np.cumsum(shared) - 1, -1)
    numbers[present] = numbering[number]
    return numbers, int(shared.sum())
