"""`python -m benchmarks operators` at a tiny size: counts and answers, never times."""

from __future__ import annotations

import json

import numpy as np
import pytest
from commands import measure

from benchmarks.operators import (
    ALONE,
    GATED,
    NAME,
    OperatorsPlan,
    Spinning,
    measure_operators,
    measure_placements,
)
from covey.matcher.operators.table import find
from covey.sim.progress import silent


@pytest.fixture(scope="module")
def results():
    plan = OperatorsPlan(subscriptions=150, calls=40, events=8, rounds=2, cost_us=1.0, matching=0.02)
    return {(r.filters, r.strategy): r for r in measure_operators(plan, silent)}


def test_strategies_agree_and_each_has_a_result_per_kind_of_filter(results):
    assert [key[1] for key in results] == ["naive", "sequential", "sub_order", "greedy"] * 2
    for filters in (ALONE, GATED):
        assert len({r.matches for key, r in results.items() if key[0] == filters}) == 1
    assert results[ALONE, "naive"].matches > 0
    assert find(NAME) is None


def test_a_gate_saves_evaluations_and_greedy_needs_the_fewest(results):
    for name in ("naive", "sequential", "sub_order", "greedy"):
        assert results[GATED, name].evaluations < results[ALONE, name].evaluations
        assert results[ALONE, name].evaluations >= results[ALONE, "greedy"].evaluations
        assert results[ALONE, name].calls <= results[ALONE, name].evaluations


def test_the_spinning_operator_counts_what_it_is_asked_for():
    spinning = Spinning(np.array([[0, 2, 2]], np.int8), 0.0)
    with spinning.registered():
        assert find(NAME) is spinning.operator
    assert spinning.events == spinning.calls == 0


def test_the_command_prints_json(capsys):
    words = "operators --subscriptions 20 --calls 10 --events 2 --rounds 1 --cost-us 0 --json"
    assert not measure(*words.split())
    printed = json.loads(capsys.readouterr().out)["matching"]
    assert len(printed) == 8
    assert set(printed[0]) == {"filters", "strategy", "ms", "evaluations", "calls", "matches"}


def test_results_that_travel_save_evaluations_in_a_chain() -> None:
    plan = OperatorsPlan(subscriptions=60, calls=12, events=8, rounds=2, cost_us=0, matching=0.05)
    results = {result.placement: result for result in measure_placements(plan, silent)}
    shared, alone = results["results travel"], results["each broker by itself"]
    assert shared.evaluations < alone.evaluations
    assert alone.evaluations < results["each subscription by itself"].evaluations
    assert shared.messages < results["at the subscribers' brokers alone"].messages
    assert len({result.deliveries for result in results.values()}) == 1
