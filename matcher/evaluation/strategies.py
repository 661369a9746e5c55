"""The strategies of evaluation, by name, and Covey's own.

*Greedy* always asks the question, a predicate and an event, that is expected to decide most for its cost. Its
score, computed anew after every answer, is
    (open chains that ask it) * (1 - selectivity) / (cost * (1 - need)),
where `need` is the probability that some open chain has all its other predicates true, so that the question
has to be asked in any case. Liu et al. fix an order of chains in advance instead.

Invariant: each round asks every question that all open chains of its event prefer to their others. No two of
these share a chain, so a round is as good as many single steps. Questions about one predicate are one call. A
predicate that costs less than `_CHEAP_US` per event is evaluated for all events that have it open, so once
per batch.

Rejected, by predicates evaluated on the workloads of `covey reproduce liu`: without `need` 0.3 % to 3 % more;
chains weighed by the score of their second question 0.5 % to 2 % fewer in twice the time; chains weighed by
the inverse of their length, or as in the dual of the covering problem, no difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from covey.matcher.errors import CoveyError
from covey.matcher.evaluation.chainwise import Naive, Sequential, SubOrder, places_of, shared_groups
from covey.matcher.evaluation.problem import FALSE, TRUE, UNDECIDED, Ask, Int64s, Problem, Strategy, Truths

_CELLS = 1 << 22
"""Questions of open chains that are examined together; a larger batch is decided in ranges of events."""
_CHEAP_US = 1.0  # a call takes a hundred times as long, even for few events
_LEAST = 1e-9  # no probability is closer to 0 or 1


class Greedy:
    name: ClassVar[str] = "greedy"

    def decide(self, problem: Problem, ask: Ask) -> Truths:
        truths = np.full(len(problem.rows), UNDECIDED)
        lengths = np.diff(problem.chains.offsets)[problem.chain_of]
        ends = np.cumsum(lengths)
        start = 0
        while start < len(truths):
            reach = np.searchsorted(ends, (ends[start - 1] if start else 0) + _CELLS, "right")
            end = int(np.searchsorted(problem.rows, problem.rows[min(reach, len(truths) - 1)]))
            if reach >= len(truths):
                end = len(truths)
            elif end <= start:  # the chains of one event
                end = int(np.searchsorted(problem.rows, problem.rows[start], "right"))
            _Rounds(problem, slice(start, end)).decide(ask, truths[start:end])
            start = end
        return truths


class _Rounds:
    def __init__(self, problem: Problem, part: slice) -> None:
        chains = problem.chains
        self._rows, self._chain_of = problem.rows[part], problem.chain_of[part]
        present = np.unique(self._chain_of)
        group_of, groups = shared_groups(problem.groups, present, len(chains.offsets) - 1)
        lengths = chains.offsets[self._chain_of + 1] - chains.offsets[self._chain_of]
        predicates = chains.predicates[places_of(chains, self._chain_of)]
        pair = np.repeat(np.arange(len(lengths)), lengths)
        self._first = int(self._rows[0])
        keys = (self._rows[pair] - self._first) * len(chains.costs) + predicates
        unique, question = _numbered(keys, (int(self._rows[-1]) - self._first + 1) * len(chains.costs))
        self._predicates = unique % len(chains.costs)
        self._events = unique // len(chains.costs) + self._first
        self._pair, self._question = pair, question
        selectivities = np.clip(chains.selectivities, _LEAST, 1 - _LEAST)
        weights = (1 - selectivities) / np.maximum(chains.costs, _LEAST)
        weights *= 1 + _LEAST * np.arange(len(weights)) / len(weights)  # no ties
        self._weights = weights[self._predicates]
        self._is_cheap = (chains.costs < _CHEAP_US)[self._predicates]
        self._logarithms = np.log(selectivities)[self._predicates]
        self._truths = np.full(len(unique), UNDECIDED)
        group = group_of[self._chain_of]
        self._group = (
            np.where(group >= 0, (self._rows - self._first) * groups + group, -1) if groups else None
        )

    def decide(self, ask: Ask, truths: Truths) -> None:
        truths[:] = TRUE
        self._close_groups(truths, np.ones(len(truths), np.bool_))
        while len(self._question):
            chosen = self._choose()
            self._ask(chosen, ask)
            self._answer(chosen, truths)

    def _choose(self) -> npt.NDArray[np.bool_]:
        """For each question, whether every open chain that asks it prefers it to its others."""
        question = self._question
        starts = np.flatnonzero(np.diff(self._pair, prepend=-1))
        lengths = np.diff(starts, append=len(question))
        counts = np.bincount(question, minlength=len(self._weights))
        logarithms = self._logarithms[question]
        others = np.repeat(np.add.reduceat(logarithms, starts), lengths) - logarithms
        needless = np.log1p(-np.minimum(np.exp(others), 1 - _LEAST))
        free = np.exp(np.bincount(question, needless, len(counts)))
        scores = (counts * self._weights / np.maximum(free, _LEAST))[question]
        best = np.maximum.reduceat(scores, starts)
        preferred = scores == np.repeat(best, lengths)
        preferences = np.bincount(question[preferred], minlength=len(counts))
        is_open = counts > 0
        chosen: npt.NDArray[np.bool_] = (preferences == counts) & is_open
        if self._is_cheap.any():
            called = np.zeros(int(self._predicates.max()) + 1, np.bool_)
            called[self._predicates[chosen]] = True
            chosen |= self._is_cheap & is_open & called[self._predicates]
        return chosen

    def _ask(self, chosen: npt.NDArray[np.bool_], ask: Ask) -> None:
        questions = np.flatnonzero(chosen)
        questions = questions[np.argsort(self._predicates[questions], kind="stable")]
        predicates = self._predicates[questions]
        starts = np.flatnonzero(np.diff(predicates, prepend=-1))
        for start, of in zip(starts, np.split(questions, starts[1:]), strict=True):
            self._truths[of] = ask(int(predicates[start]), self._events[of])

    def _answer(self, chosen: npt.NDArray[np.bool_], truths: Truths) -> None:
        answered = chosen[self._question]
        pair, answers = self._pair[answered], self._truths[self._question[answered]]
        np.minimum.at(truths, pair, answers)
        changed = np.zeros(len(truths), np.bool_)
        changed[pair] = True
        left = ~answered & (truths[self._pair] != FALSE)
        self._pair, self._question = self._pair[left], self._question[left]
        self._close_groups(truths, changed)

    def _close_groups(self, truths: Truths, changed: npt.NDArray[np.bool_]) -> None:
        if self._group is None:
            return
        decided = changed & (self._group >= 0) & (truths == TRUE)
        decided[self._pair] = False
        true = self._group[decided]
        if len(true) and len(self._pair):
            is_true = np.zeros(int(self._group.max()) + 1, np.bool_)
            is_true[true] = True
            group = self._group[self._pair]
            closed = (group >= 0) & is_true[group]
            truths[self._pair[closed]] = UNDECIDED
            self._pair, self._question = self._pair[~closed], self._question[~closed]


def _numbered(keys: Int64s, limit: int) -> tuple[Int64s, Int64s]:
    """The distinct keys, ascending, all below the limit, and the position of each key among them."""
    if limit > 16 * len(keys):
        unique, positions = np.unique(keys, return_inverse=True)
        return unique, positions
    exists = np.zeros(limit, np.bool_)
    exists[keys] = True
    numbers = np.cumsum(exists) - 1
    return np.flatnonzero(exists), numbers[keys]


DEFAULT = Greedy.name

STRATEGIES: dict[str, Callable[[], Strategy]] = {
    each.name: each for each in (Greedy, SubOrder, Sequential, Naive)
}


def create_strategy(name: str) -> Strategy:
    """`CoveyError` for an unknown name."""
    if name not in STRATEGIES:
        raise CoveyError(f"evaluation {name!r}: expected one of {', '.join(STRATEGIES)}")
    return STRATEGIES[name]()
