"""Every strategy decides every pair as brute force does, for any answers of operators."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from draws import examples
from hypothesis import given
from hypothesis import strategies as st

from covey.matcher import CoveyError
from covey.matcher.evaluation.problem import FALSE, TRUE, UNDECIDED, Chains, Problem
from covey.matcher.evaluation.strategies import STRATEGIES, create_strategy

each_strategy = pytest.mark.parametrize("name", sorted(STRATEGIES))


@dataclass
class Case:
    problem: Problem
    answers: np.ndarray
    """Truth by predicate and event: int8[predicates, events]."""
    evaluated: set[tuple[int, int]]

    def ask(self, predicate, rows):
        assert len(rows) > 0
        assert rows.dtype == np.int64
        self.evaluated.update((predicate, row) for row in rows.tolist())
        return self.answers[predicate][rows]


def make(seed, *, events, chains, predicates, longest=4, undecided=0.1, grouped=False, share=0.7):
    draw = np.random.default_rng(seed)
    lists = [
        draw.choice(
            predicates, draw.integers(0 if draw.random() < 0.1 else 1, min(longest, predicates) + 1), False
        )
        for _ in range(chains)
    ]
    selectivities = draw.choice([0.0, 0.1, 0.5, 0.9, 1.0], predicates)
    truths = np.where(draw.random((predicates, events)) < selectivities[:, None], TRUE, FALSE)
    truths[draw.random(truths.shape) < undecided] = UNDECIDED
    rows, chain_of = np.nonzero(draw.random((events, chains)) < share)
    return Case(
        Problem(
            Chains(
                seed,
                np.cumsum([0, *map(len, lists)]).astype(np.int64),
                np.concatenate([*lists, []]).astype(np.int64),
                draw.choice([0.0, 1.0, 1.0, 5.0, 100.0], predicates),
                selectivities,
            ),
            events,
            rows.astype(np.int64),
            chain_of.astype(np.int64),
            draw.integers(0, max(1, chains // 2), chains) if grouped else None,
        ),
        truths.astype(np.int8),
        set(),
    )


def brute_force(case):
    chains = case.problem.chains
    return [
        min(
            (case.answers[p, row] for p in chains.predicates[chains.offsets[c] : chains.offsets[c + 1]]),
            default=TRUE,
        )
        for row, c in zip(case.problem.rows.tolist(), case.problem.chain_of.tolist(), strict=True)
    ]


def check(name, case):
    truths = create_strategy(name).decide(case.problem, case.ask)
    assert truths.dtype == np.int8
    assert len(truths) == len(case.problem.rows)
    expected = brute_force(case)
    groups = case.problem.groups
    group_of = range(len(case.problem.chains.offsets)) if groups is None else groups.tolist()
    keys = [
        (row, group_of[c])
        for row, c in zip(case.problem.rows.tolist(), case.problem.chain_of.tolist(), strict=True)
    ]
    true = {key for key, truth in zip(keys, expected, strict=True) if truth == TRUE}
    assert {key for key, truth in zip(keys, truths, strict=True) if truth == TRUE} == true
    for key, truth, right in zip(keys, truths, expected, strict=True):
        if key in true:
            assert truth in (right, UNDECIDED)
        else:
            assert truth == right


@each_strategy
@given(
    seed=st.integers(0, 2**32 - 1),
    events=st.integers(0, 6),
    chains=st.integers(0, 12),
    predicates=st.integers(1, 8),
    grouped=st.booleans(),
    undecided=st.sampled_from([0.0, 0.2, 1.0]),
)
@examples(200)
def test_strategies_decide_as_brute_force(name, seed, events, chains, predicates, grouped, undecided):
    check(
        name,
        make(seed, events=events, chains=chains, predicates=predicates, grouped=grouped, undecided=undecided),
    )


@each_strategy
@pytest.mark.parametrize("grouped", [False, True])
def test_batches_and_chains_that_are_larger_than_a_block(name, grouped, monkeypatch):
    monkeypatch.setattr("covey.matcher.evaluation.chainwise._CELLS", 100)
    monkeypatch.setattr("covey.matcher.evaluation.strategies._CELLS", 100)
    monkeypatch.setattr("covey.matcher.evaluation.chainwise._BLOCK", 50)
    monkeypatch.setattr("covey.matcher.evaluation.chainwise._NODES", 3)
    case = make(3, events=40, chains=150, predicates=30, longest=7, grouped=grouped)
    check(name, case)


@each_strategy
def test_no_strategy_evaluates_a_predicate_that_no_open_chain_asks(name):
    case = make(5, events=20, chains=30, predicates=40, share=0.2)
    create_strategy(name).decide(case.problem, case.ask)
    chains = case.problem.chains
    wanted = {
        (p, row)
        for row, c in zip(case.problem.rows.tolist(), case.problem.chain_of.tolist(), strict=True)
        for p in chains.predicates[chains.offsets[c] : chains.offsets[c + 1]].tolist()
    }
    assert case.evaluated <= wanted


@each_strategy
def test_events_do_not_depend_on_the_others_of_their_batch(name):
    case = make(11, events=12, chains=40, predicates=15, undecided=0.0)
    problem = case.problem
    create_strategy(name).decide(problem, case.ask)
    together, case.evaluated = case.evaluated, set()
    for event in range(problem.events):
        pairs = problem.rows == event
        one = Problem(problem.chains, problem.events, problem.rows[pairs], problem.chain_of[pairs])
        create_strategy(name).decide(one, case.ask)
    assert case.evaluated == together


@each_strategy
def test_a_strategy_follows_changes_of_the_chains(name):
    strategy = create_strategy(name)
    for seed, chains in enumerate((5, 30, 2, 0, 40)):
        case = make(seed, events=5, chains=chains, predicates=6, undecided=0.0)
        assert strategy.decide(case.problem, case.ask).tolist() == brute_force(case)


def test_cheap_predicates_are_called_once_per_batch():
    case = make(2, events=30, chains=40, predicates=10, undecided=0.0)
    calls = []

    def ask(predicate, rows):
        calls.append(predicate)
        return case.ask(predicate, rows)

    chains = replace(case.problem.chains, costs=np.full(10, 0.0))
    truths = create_strategy("greedy").decide(replace(case.problem, chains=chains), ask)
    assert truths.tolist() == brute_force(case)
    assert len(calls) == len(set(calls)) <= 10


def test_an_unknown_strategy_is_an_error():
    with pytest.raises(CoveyError, match="evaluation 'best': expected one of greedy, sub_order"):
        create_strategy("best")
