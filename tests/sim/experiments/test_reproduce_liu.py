"""`covey reproduce liu`: its lower bound, its workload, and what must hold at any size."""

from itertools import product

import numpy as np
import pytest

from covey.matcher.evaluation.problem import FALSE, TRUE, Chains
from covey.sim.experiments.papers import PaperPlan
from covey.sim.experiments.papers.liu import measure
from covey.sim.experiments.papers.liu_bound import lower_bound
from covey.sim.experiments.papers.liu_experiments import STRATEGIES
from covey.sim.workload.overlapping import Overlapping, draw_truths


def least_cost(chains, truths):
    """The cost of the cheapest predicates that decide all chains, by brute force."""
    lists = [chains.predicates[a:b] for a, b in zip(chains.offsets, chains.offsets[1:], strict=False)]
    costs = []
    for chosen in product([False, True], repeat=len(chains.costs)):
        evaluated = np.array(chosen)
        if all(evaluated[c].all() or (evaluated[c] & (truths[c] == FALSE)).any() for c in lists):
            costs.append(chains.costs[evaluated].sum())
    return min(costs)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dearest", [1.0, 50.0])
def test_the_bound_is_close_below_the_cheapest_certificate(seed, dearest):
    workload = Overlapping(12, 9, 0.8, shortest=1, longest=3, matching=0.2, dearest=dearest)
    chains = workload.chains(seed)
    truths = draw_truths(chains, 1, seed)[:, 0]
    best = least_cost(chains, truths)
    for iterations in (0, 1, 300):
        assert lower_bound(chains, truths, iterations) <= best * (1 + 1e-9)
    assert lower_bound(chains, truths, 300) >= 0.75 * best


def test_the_bound_of_chains_that_all_match_or_of_none():
    nothing = np.zeros(0, np.int64)
    none = Chains(0, np.zeros(1, np.int64), nothing, np.ones(2), np.ones(2))
    assert lower_bound(none, np.array([TRUE, FALSE]), 5) == 0
    both = Chains(0, np.array([0, 1, 3]), np.array([0, 0, 1]), np.array([2.0, 3.0]), np.ones(2))
    assert lower_bound(both, np.array([TRUE, TRUE]), 5) == 5
    assert lower_bound(both, np.array([FALSE, TRUE]), 50) == pytest.approx(2)


@pytest.mark.parametrize("selectivity", ["uniform", "equal", "power"])
@pytest.mark.parametrize("exponent", [None, 1.0])
def test_the_workload_is_table_1(selectivity, exponent):
    workload = Overlapping(4_000, 500, exponent, selectivity=selectivity, dearest=100.0)
    chains = workload.chains(1)
    lengths = np.diff(chains.offsets)
    assert set(lengths) == {3, 4, 5}
    chain = np.repeat(np.arange(4_000), lengths)
    assert len(np.unique(chain * 500 + chains.predicates)) == len(chain)
    matching = np.exp(np.add.reduceat(np.log(chains.selectivities[chains.predicates]), chains.offsets[:-1]))
    assert matching.mean() == pytest.approx(0.002, rel=1e-3)
    assert 1 <= chains.costs.min() <= chains.costs.max() <= 100
    counts = np.sort(np.bincount(chains.predicates, minlength=500))[::-1]
    if exponent:
        assert counts[0] > 4 * counts[20]
    else:
        assert counts[0] < 3 * counts[250]


@pytest.mark.parametrize("exponent", [None, 1.0])
def test_greedy_evaluates_fewer_predicates_than_the_strategies_of_the_paper(exponent):
    costs = measure(Overlapping(1_000, 300, exponent), PaperPlan("tiny", seed=7))
    assert set(costs) == {*STRATEGIES, "bound", "predicates used"}
    assert costs["naive"] > costs["sequential"] > costs["greedy"] >= costs["bound"]
    assert costs["sub_order"] > costs["greedy"]
