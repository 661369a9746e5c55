"""The subscription evaluation problem (Liu et al., section 3): which predicates to evaluate for which events,
in which order, until every pair of an event and a conjunction is decided.

Truths are FALSE < UNDECIDED < TRUE, so that `and` is their minimum and `or` their maximum. UNDECIDED is the
answer of an operator that is unknown here, failed, or is over its limits."""

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
    """The conjunctions of all subscriptions (the chains of section 4.2): chain c has the predicates
    `predicates[offsets[c]:offsets[c + 1]]`, each once.

    A new `version` for every change, so that strategies may cache by it. Per predicate, `costs` are in
    microseconds per event, `selectivities` the learned probability that an event satisfies it."""

    version: int
    offsets: Int64s
    predicates: Int64s
    costs: npt.NDArray[np.float64]
    selectivities: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Problem:
    """The open pairs of an event and a chain, after the cheap predicates: pair i is of event rows[i],
    ascending, and of chain chain_of[i]. Once a chain of a group is true for an event, the group's others need
    no decision."""

    chains: Chains
    events: int
    rows: Int64s
    chain_of: Int64s
    groups: Int64s | None = None  # of each chain


Ask = Callable[[int, Int64s], Truths]
"""`ask(predicate, rows)` evaluates one predicate for events, in one call; repeated rows cost nothing."""


class Strategy(Protocol):
    """An order of evaluation. `decide` returns the truth of each pair; if a group is true for an event, at
    least one of its pairs is TRUE, and others may be UNDECIDED."""

    name: ClassVar[str]

    def decide(self, problem: Problem, ask: Ask) -> Truths: ...
