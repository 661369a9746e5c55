"""Evaluation of one chain after the other: the strategies of Liu et al.

Events are independent, so chains are the outer loop and the events of the batch the inner one, and the
evaluated predicates are the paper's.

- *Naive* (section 5.2), the baseline: each chain by itself, in its own order, until a predicate is false. A
  known false predicate does not decide a chain before its turn.
- *Sequential* (4.1, algorithm 1): every unknown predicate of the marked chain is evaluated if any undecided
  chain has it, even if the marked one is already decided. It evaluates at most d times as many predicates as
  any algorithm must, where d is the length of the longest chain.
- *Sub-Order* (4.2): chains in the order of their expected savings, each with its predicates by increasing
  selectivity; a false predicate decides every chain linked to it.

Sub-Order (4.2.3 to 4.2.5, 4.3): a chain's nodes are its predicates; nodes of one predicate are linked. Of two
chains that share k predicates, one first costs less than the other first by
    sum over l = 1..k of (1 - p_l) * (P_2l * C_1l - P_1l * C_2l),
where P_il is the probability that all nodes of chain i above the l-th shared one are true, and C_il the
expected cost of the unshared ones among them. An edge leads from the cheaper first chain to the other,
weighted by the difference. Edges are taken by decreasing savings, as in Kruskal's algorithm, unless a chain
would have two predecessors or two successors, or a circle would form.

The paper's complete graph of 80,000 chains has 3.2 billion edges. Here chains without a common predicate have
no edge, since their difference is zero; and of a predicate's chains, ordered by P/C, each has edges to at
most `_PARTNERS` others, evenly spaced from itself to the last. Only a chain's first `_NODES` nodes count. The
paper leaves the order of paths open: here it is by average savings; by number it evaluates 5 % more
predicates. Chains by their savings, without paths, would evaluate 5 % to 10 % fewer, but that is not the
paper's algorithm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

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
"""Not evaluated. Greater than every truth, so that the least truth of a chain is FALSE as soon as one is."""
_CELLS = 1 << 26  # bytes of a truth table; a batch with more is evaluated in ranges of events


class ChainTable:
    """One problem during its evaluation: known truths, and the groups that are decided."""

    def __init__(self, problem: Problem, ask: Ask, present: Int64s, used: Int64s) -> None:
        chains = problem.chains
        self._ask = ask
        self._offsets, self._predicates = chains.offsets, chains.predicates
        self._place = np.full(len(chains.costs), -1, np.int64)
        self._place[used] = np.arange(len(used))
        self._truths = np.full((len(used), problem.events), UNKNOWN, np.int8)
        self.group_of, groups = shared_groups(problem.groups, present, len(chains.offsets) - 1)
        self._true_groups = np.zeros((groups, problem.events), np.bool_)
        self.prepared: Any = None  # by `Chainwise.prepared`

    def predicates(self, chain: int) -> Int64s:
        return self._predicates[self._offsets[chain] : self._offsets[chain + 1]]

    def known(self, predicates: Int64s, rows: Int64s) -> Truths:
        """The truths of predicates for events, UNKNOWN where not evaluated: int8[predicates, rows]."""
        known: Truths = self._truths[self._place[predicates][:, np.newaxis], rows]
        return known

    def ask(self, predicate: int, rows: Int64s) -> Truths:
        """The truths of a predicate for events; unknown ones are evaluated, in one call."""
        known = self._truths[self._place[predicate]]
        truths: Truths = known[rows]
        unknown = rows[truths == UNKNOWN]
        if len(unknown):
            known[unknown] = self._ask(predicate, unknown)
            truths = known[rows]
        return truths

    def ask_in_turn(self, predicates: Int64s, rows: Int64s) -> Truths:
        """The truth of a chain for events, its predicates evaluated in this order until one is false."""
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
        """Store the truths of a chain for the events, for the other chains of its group."""
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
        """Data of a problem for `decide_chain`, with its chains in this order; kept in the table, since
        engines in several threads may share a strategy."""

    @abstractmethod
    def decide_chain(self, table: ChainTable, chain: int, rows: Int64s) -> Truths:
        """The truth of one chain for the events in which it is open."""


def _from_row(ask: Ask, first: int) -> Ask:
    return ask if first == 0 else lambda predicate, rows: ask(predicate, rows + first)


def _used(chains: Chains, present: Int64s) -> Int64s:
    if len(present) == len(chains.offsets) - 1:
        return np.unique(chains.predicates)
    return np.unique(chains.predicates[places_of(chains, present)])


def places_of(chains: Chains, of: Int64s) -> Int64s:
    lengths = chains.offsets[of + 1] - chains.offsets[of]
    ends = np.cumsum(lengths)
    shifts: Int64s = np.repeat(chains.offsets[of] - ends + lengths, lengths)
    return shifts + np.arange(len(shifts))


def shared_groups(groups: Int64s | None, present: Int64s, chains: int) -> tuple[Int64s, int]:
    """The group of each chain, from 0, if several present chains have it, else -1; the number of groups."""
    numbers = np.full(chains, -1, np.int64)
    if groups is None or not len(present):
        return numbers, 0
    _, number, sizes = np.unique(groups[present], return_inverse=True, return_counts=True)
    shared = sizes > 1
    numbering = np.where(shared, np.cumsum(shared) - 1, -1)
    numbers[present] = numbering[number]
    return numbers, int(shared.sum())


class Naive(Chainwise):
    name: ClassVar[str] = "naive"

    def order(self, chains: Chains) -> Int64s:
        return np.arange(len(chains.offsets) - 1)

    def decide_chain(self, table: ChainTable, chain: int, rows: Int64s) -> Truths:
        return table.ask_in_turn(table.predicates(chain), rows)


_FIRST_BLOCK = 8
"""Later chains with a predicate whose truths are examined together; the next block is four times as large."""


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
        """For each event, whether an undecided chain after this one has the predicate, which is unknown."""
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


_PARTNERS = 8
_NODES = 16
_BLOCK = 1 << 16  # edges that are weighed together

Floats = npt.NDArray[np.float64]


def nodes(chains: Chains) -> Int64s:
    """The predicates of all chains, chain by chain as in `chains.predicates`, by increasing selectivity."""
    lengths = np.diff(chains.offsets)
    chain = np.repeat(np.arange(len(lengths)), lengths)
    order = np.lexsort((chains.predicates, chains.selectivities[chains.predicates], chain))
    return chains.predicates[order]


def chain_order(chains: Chains, ordered: Int64s) -> Int64s:
    """All chains, in the order in which they are decided; `ordered` are their `nodes`."""
    padded = _padded(chains, ordered)
    first, second = _candidates(chains, padded)
    savings = _savings(chains, padded, first, second)
    net: Floats = np.zeros(len(padded))
    net += np.bincount(first, savings, len(padded)) - np.bincount(second, savings, len(padded))
    before = np.where(savings > 0, first, second)
    after = np.where(savings > 0, second, first)
    savings = np.abs(savings)
    kept = np.flatnonzero(savings > 0)
    kept = kept[np.argsort(-savings[kept], kind="stable")]
    return _paths(before[kept], after[kept], net)


def _padded(chains: Chains, ordered: Int64s) -> Int64s:
    """The first nodes of each chain, padded with -1: int64[chains, nodes]."""
    lengths = np.diff(chains.offsets)
    width = min(_NODES, int(lengths.max(initial=0)))
    places = np.minimum(chains.offsets[:-1, np.newaxis] + np.arange(width), max(0, len(ordered) - 1))
    exists = np.arange(width) < lengths[:, np.newaxis]
    return np.where(exists, ordered[places], -1) if len(ordered) else np.full(exists.shape, -1, np.int64)


def _candidates(chains: Chains, padded: Int64s) -> tuple[Int64s, Int64s]:
    """Pairs of chains that share a predicate, each once: `first` < `second`."""
    reached, cost = _above(chains, padded, np.zeros(padded.shape, np.bool_))
    chain, place = np.nonzero(padded >= 0)
    predicate = padded[chain, place]
    ratio = reached[chain, place] / np.maximum(cost[chain, place], 1e-300)
    order = np.lexsort((chain, -ratio, predicate))
    chain, predicate = chain[order], predicate[order]
    starts = np.flatnonzero(np.diff(predicate, prepend=-1))
    sizes = np.diff(starts, append=len(chain))
    size = np.repeat(sizes, sizes)
    position = np.arange(len(chain)) - np.repeat(starts, sizes)
    stride = np.maximum(1, size // _PARTNERS)
    pairs = []
    for step in range(1, _PARTNERS + 1):
        link = np.flatnonzero(position + step * stride < size)
        one, other = chain[link], chain[link + step * stride[link]]
        pairs.append(np.minimum(one, other) * len(padded) + np.maximum(one, other))
    unique = np.unique(np.concatenate(pairs))
    return unique // max(1, len(padded)), unique % max(1, len(padded))


def _above(chains: Chains, padded: Int64s, shared: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Of each node: the probability that all above it are true, and the cost of the unshared of these."""
    reached, cost = np.ones(padded.shape), np.zeros(padded.shape)
    alone = np.ones(len(padded))
    for place in range(padded.shape[1] - 1):
        predicate = padded[:, place]
        selectivity = chains.selectivities[predicate]
        counted = ~shared[:, place]
        reached[:, place + 1] = reached[:, place] * selectivity
        cost[:, place + 1] = cost[:, place] + np.where(counted, alone * chains.costs[predicate], 0.0)
        alone = np.where(counted, alone * selectivity, alone)
    return reached, cost


def _savings(chains: Chains, padded: Int64s, first: Int64s, second: Int64s) -> Floats:
    """The savings by evaluating `first` before `second`, negative if the other order is cheaper."""
    savings = np.zeros(len(first))
    for start in range(0, len(first), _BLOCK):
        one, other = padded[first[start : start + _BLOCK]], padded[second[start : start + _BLOCK]]
        same = (one[:, :, np.newaxis] == other[:, np.newaxis, :]) & (one >= 0)[:, :, np.newaxis]
        reached_one, cost_one = _above(chains, one, same.any(axis=2))
        reached_other, cost_other = _above(chains, other, same.any(axis=1))
        edge, a, b = np.nonzero(same)
        difference = (1 - chains.selectivities[one[edge, a]]) * (
            reached_one[edge, a] * cost_other[edge, b] - reached_other[edge, b] * cost_one[edge, a]
        )
        savings[start : start + _BLOCK] = np.bincount(edge, difference, len(one))
    return savings


def _paths(before: Int64s, after: Int64s, net: Floats) -> Int64s:
    """All chains along the paths of these edges, greatest mean of `net` first: a chain's savings before
    others, less those of others before it."""
    chains = len(net)
    successor, predecessor = [-1] * chains, [-1] * chains
    head, tail = list(range(chains)), list(range(chains))  # of a path, valid at its tail and at its head
    for one, other in zip(before.tolist(), after.tolist(), strict=True):
        if successor[one] < 0 and predecessor[other] < 0 and head[one] != other:
            successor[one], predecessor[other] = other, one
            begin, end = head[one], tail[other]
            tail[begin], head[end] = end, begin
    order: list[int] = []
    starts: list[int] = []
    for first in np.flatnonzero(np.array(predecessor) < 0).tolist():
        starts.append(len(order))
        chain = first
        while chain >= 0:
            order.append(chain)
            chain = successor[chain]
    along = np.array(order, np.int64)
    lengths = np.diff(starts, append=chains)
    means = np.add.reduceat(net[along], starts) / lengths if chains else net
    rank = np.argsort(np.argsort(-means, kind="stable"))
    return along[np.argsort(np.repeat(rank, lengths), kind="stable")]


class SubOrder(Chainwise):
    name: ClassVar[str] = "sub_order"

    def __init__(self) -> None:
        self._known: tuple[int, Int64s, Int64s] | None = None

    def order(self, chains: Chains) -> Int64s:
        return self._ordered(chains)[1]

    def prepared(self, table: ChainTable, problem: Problem, order: Int64s) -> tuple[Int64s, Int64s]:
        return problem.chains.offsets, self._ordered(problem.chains)[0]

    def _ordered(self, chains: Chains) -> tuple[Int64s, Int64s]:
        """The nodes of all chains, and the chains' order; cached for the last `version`."""
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
