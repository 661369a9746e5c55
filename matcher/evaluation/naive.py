"""The baseline of Liu et al., section 5.2: each conjunction for itself, in its own order.

A conjunction's predicates are evaluated until one is false. Answers are reused, so that no predicate is
evaluated twice for an event; but a known false predicate does not decide a conjunction before its turn comes.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from covey.matcher.evaluation.chainwise import ChainTable, Chainwise
from covey.matcher.evaluation.problem import Chains, Int64s, Truths


class Naive(Chainwise):
    name: ClassVar[str] = "naive"

    def order(self, chains: Chains) -> Int64s:
        return np.arange(len(chains.offsets) - 1)

    def decide_chain(self, table: ChainTable, chain: int, rows: Int64s) -> Truths:
        return table.ask_in_turn(table.predicates(chain), rows)
