"""A lower bound of the cost of any algorithm, even one that guesses all answers (Liu et al., section 3).

For an event, every predicate of a matching subscription has to be evaluated, and of every other subscription
at least one that is false: a covering problem. Its linear relaxation, min sum of cost_p x_p such that the x
of the false p of each chain add up to 1 at least, is a lower bound, as is every feasible solution of its
dual, max sum of y_c such that for each p the y of the chains with p add up to cost_p at most. Here y is found
by primal-dual hybrid gradients and scaled until it is feasible, so that the bound holds after any number of
iterations.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from covey.matcher.evaluation.problem import FALSE, TRUE, Chains, Int64s, Truths

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def lower_bound(chains: Chains, truths: Truths, iterations: int) -> float:
    """A lower bound of deciding all chains for an event; `truths` are its answers, int8[predicates]."""
    if not len(chains.predicates):
        return 0.0
    chain = np.repeat(np.arange(len(chains.offsets) - 1), np.diff(chains.offsets))
    is_false = truths[chains.predicates] == FALSE
    matching = np.bincount(chain, is_false, len(chains.offsets) - 1) == 0
    needed = np.unique(chains.predicates[matching[chain]])
    assert (truths[needed] == TRUE).all()
    return float(chains.costs[needed].sum()) + _cover(chains, chain[is_false], is_false, iterations)


def _cover(chains: Chains, chain: Int64s, is_false: Bools, iterations: int) -> float:
    """The bound for chains with false predicates, given once per predicate."""
    if not len(chain):
        return 0.0
    starts = np.flatnonzero(np.diff(chain, prepend=-1))
    lengths = np.diff(starts, append=len(chain))
    of = np.repeat(np.arange(len(starts)), lengths)
    used, predicate = np.unique(chains.predicates[is_false], return_inverse=True)
    costs = chains.costs[used]
    unit = costs.mean()
    step = 1 / np.bincount(predicate) / unit
    y = 1 / np.maximum.reduceat((np.bincount(predicate) / costs)[predicate], starts)
    chosen, total = np.zeros(len(used)), np.zeros(len(y))
    for _ in range(iterations):
        reduced = costs - np.bincount(predicate, y[of])
        ahead = np.clip(chosen - step * reduced, 0, 1)
        y = np.maximum(y + unit * (1 - np.add.reduceat((2 * ahead - chosen)[predicate], starts)) / lengths, 0)
        chosen = ahead
        total += y
    return max(_scaled(dual, predicate, of, starts, costs) for dual in (y, total / max(1, iterations)))


def _scaled(y: Floats, predicate: Int64s, of: Int64s, starts: Int64s, costs: Floats) -> float:
    """The sum of a dual solution, each y divided by the largest excess of its predicates."""
    excess = np.maximum.reduceat((np.bincount(predicate, y[of]) / costs)[predicate], starts)
    return float((y / np.maximum(excess, 1)).sum())
