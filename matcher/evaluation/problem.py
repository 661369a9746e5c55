"""The subscription evaluation problem (Liu et al., section 3): which predicates to ask about which events, in
which order, until every pair of an event and a conjunction is decided.

A truth is one of FALSE, UNDECIDED and TRUE, in this order, so that `and` is the least of truths and `or` the
greatest. UNDECIDED is the answer of an operator that is unknown here, has failed or is over its limits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Truths = npt.NDArray[np.int8]

FALSE, UNDECIDED, TRUE = np.int8(0), np.int8(1), np.int8(2)


@dataclass(frozen=True, slots=True)
class Chains:
    """The conjunctions of all subscriptions (the chains of section 4.2): chain c asks the predicates
    `predicates[offsets[c]:offsets[c + 1]]`, each once.

    `version` changes whenever anything else does, so that a strategy keeps what it computes from them.
    """

    version: int
    offsets: Int64s
    predicates: Int64s
    costs: npt.NDArray[np.float64]
    """Of each predicate, for one event, in microseconds."""
    selectivities: npt.NDArray[np.float64]
    """Of each predicate: the probability that an event satisfies it, as learned so far."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The pairs of an event and a chain that are open: those that the cheap predicates have left."""

    chains: Chains
    events: int
    rows: Int64s
    """The event of each pair, ascending."""
    chain_of: Int64s
    """The chain of each pair."""
    groups: Int64s | None = None
    """Of each chain: once one chain of a group is true for an event, the group's others need no decision."""


Ask = Callable[[int, Int64s], Truths]
"""`ask(predicate, rows)` evaluates one predicate on events, in one call of its operator; repeated rows of a
predicate cost nothing.
"""


class Strategy(Protocol):
    """An order of evaluation. `decide` returns the truth of each pair; with groups, of a group and event that
    is true at least one pair is TRUE, and others may be UNDECIDED.
    """

    name: ClassVar[str]

    def decide(self, problem: Problem, ask: Ask) -> Truths: ...
