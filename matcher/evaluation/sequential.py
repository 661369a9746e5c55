"""Algorithm 1 of Liu et al. (section 4.1): evaluates at most d times as many predicates as any algorithm can,
where d is the length of the longest conjunction.

An undecided conjunction is marked, and every predicate of it that is unknown is evaluated if some undecided
conjunction asks it, whether or not the marked one is decided by then. The order is that of the
conjunctions, which the paper leaves open, so that all conjunctions before the marked one are decided.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from covey.matcher.evaluation.chainwise import UNKNOWN, ChainTable, Chainwise, places_of
from covey.matcher.evaluation.problem import FALSE, TRUE, Chains, Int64s, Problem, Truths

_FIRST_BLOCK = 8
"""Of the later conjunctions with a predicate, whose truths are examined together; the next has four times as
many."""


class Sequential(Chainwise):
    name: ClassVar[str] = "sequential"

    def order(self, chains: Chains) -> Int64s:
        return np.arange(len(chains.offsets) - 1)

    def prepared(self, table: ChainTable, problem: Problem, order: Int64s) -> _LaterChains:
        return _LaterChains(table, problem, order)

    def decide_chain(self, table: ChainTable, chain: int, rows: Int64s) -> Truths:
        predicates = table.predicates(chain)
        known = table.known(predicates, rows)
        truths: Truths = known.min(axis=0, initial=TRUE)
        marked = np.flatnonzero(truths != FALSE)
        for place, predicate in enumerate(predicates.tolist()):
            unknown = marked[known[place, marked] == UNKNOWN]
            decided = truths[unknown] == FALSE
            if decided.any():
                wanted = ~decided
                wanted[decided] = table.prepared.want(predicate, chain, rows[unknown[decided]])
                unknown = unknown[wanted]
            if len(unknown):
                answers = table.ask(predicate, rows[unknown])
                truths[unknown] = np.minimum(truths[unknown], answers)
        return truths


class _LaterChains:
    """Which undecided chains after a given one ask a predicate."""

    def __init__(self, table: ChainTable, problem: Problem, order: Int64s) -> None:
        chains = problem.chains
        self._table = table
        self._open = np.zeros((len(order), problem.events), np.bool_)
        self._open[np.searchsorted(order, problem.chain_of), problem.rows] = True
        self._order = order
        lengths = chains.offsets[order + 1] - chains.offsets[order]
        predicates = chains.predicates[places_of(chains, order)]
        by_predicate = np.argsort(predicates, kind="stable")
        self._chains = np.repeat(np.arange(len(order)), lengths)[by_predicate]
        self._bounds = np.searchsorted(predicates[by_predicate], np.arange(len(chains.costs) + 1))
        self._padded = np.full((len(order), int(lengths.max(initial=0))), -1, np.int64)
        self._padded[np.arange(self._padded.shape[1]) < lengths[:, np.newaxis]] = predicates

    def want(self, predicate: int, chain: int, rows: Int64s) -> npt.NDArray[np.bool_]:
        """Whether an undecided chain after this one asks the predicate, which is unknown, for each event."""
        wanted = np.zeros(len(rows), np.bool_)
        left = np.arange(len(rows))
        chains = self._chains[self._bounds[predicate] : self._bounds[predicate + 1]]
        at = int(np.searchsorted(chains, np.searchsorted(self._order, chain), "right"))
        size = _FIRST_BLOCK
        while at < len(chains) and len(left):
            found = self._undecided(chains[at : at + size], rows[left])
            wanted[left[found]] = True
            left = left[~found]
            at += size
            size *= 4
        return wanted

    def _undecided(self, chains: Int64s, rows: Int64s) -> npt.NDArray[np.bool_]:
        undecided = self._open[chains[:, np.newaxis], rows]
        for predicates in self._padded[chains].T:
            truths = self._table.known(predicates, rows)
            undecided &= (truths != FALSE) | (predicates < 0)[:, np.newaxis]
        groups = self._table.group_of[self._order[chains]]
        for at in np.flatnonzero(groups >= 0).tolist():
            undecided[at] &= ~self._table.in_true_group(int(self._order[chains[at]]), rows)
        wanted: npt.NDArray[np.bool_] = np.logical_or.reduce(undecided, axis=0)
        return wanted
