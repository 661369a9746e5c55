"""Sub-Order of Liu et al. (section 4.2): chains in the order of their expected savings, each with its
predicates by increasing selectivity.

A predicate that is false decides every chain linked to it; one that is true is resolved in all of them. The
order is computed when the chains have changed (`linked_chains.py`).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from covey.matcher.evaluation.chainwise import UNKNOWN, ChainTable, Chainwise
from covey.matcher.evaluation.linked_chains import chain_order, nodes
from covey.matcher.evaluation.problem import FALSE, Chains, Int64s, Problem, Truths


class SubOrder(Chainwise):
    name: ClassVar[str] = "sub_order"

    def __init__(self) -> None:
        self._known: tuple[int, Int64s, Int64s] | None = None

    def order(self, chains: Chains) -> Int64s:
        return self._ordered(chains)[1]

    def prepared(self, table: ChainTable, problem: Problem, order: Int64s) -> tuple[Int64s, Int64s]:
        return problem.chains.offsets, self._ordered(problem.chains)[0]

    def _ordered(self, chains: Chains) -> tuple[Int64s, Int64s]:
        """The nodes of all chains, and the order of these; those computed last are kept."""
        known = self._known
        if known is None or known[0] != chains.version:
            ordered = nodes(chains)
            known = self._known = chains.version, ordered, chain_order(chains, ordered)
        return known[1:]

    def decide_chain(self, table: ChainTable, chain: int, rows: Int64s) -> Truths:
        offsets, ordered = table.prepared
        predicates = ordered[offsets[chain] : offsets[chain + 1]]
        truths: Truths = table.known(predicates, rows).min(axis=0, initial=UNKNOWN)
        left = np.flatnonzero(truths != FALSE)
        if len(left):
            truths[left] = table.ask_in_turn(predicates, rows[left])
        return truths
