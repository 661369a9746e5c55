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
from covey.matcher.evaluation.problem import FALSE, Chains, Int64s, Truths


class SubOrder(Chainwise):
    name: ClassVar[str] = "sub_order"

    def __init__(self) -> None:
        self._chains: Chains | None = None
        self._nodes = self._order = np.zeros(0, np.int64)

    def order(self, chains: Chains) -> Int64s:
        if self._chains is None or self._chains.version != chains.version:
            self._nodes = nodes(chains)
            self._order = chain_order(chains, self._nodes)
            self._chains = chains
        return self._order

    def decide_chain(self, table: ChainTable, chain: int, rows: Int64s) -> Truths:
        assert self._chains is not None
        offsets = self._chains.offsets
        predicates = self._nodes[offsets[chain] : offsets[chain + 1]]
        truths: Truths = table.known(predicates, rows).min(axis=0, initial=UNKNOWN)
        left = np.flatnonzero(truths != FALSE)
        if len(left):
            truths[left] = table.ask_in_turn(predicates, rows[left])
        return truths
