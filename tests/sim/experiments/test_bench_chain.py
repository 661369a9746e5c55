"""`covey bench chain` at a small size: every figure of brokers and of bare relays."""

import asyncio
import json
import os
import time

import pytest

from covey.matcher.errors import CoveyError
from covey.sim.experiments.bench.chain import ChainPlan, ChainResult, Spread, labels, measure_chain
from covey.sim.experiments.processes import cpu_ns, descriptors, resident_bytes

PLAN = ChainPlan(
    rounds=1,
    events=2000,
    batch=250,
    subscriptions=200,
    rates=(50, 200),
    seconds=0.5,
    sequence=100,
    sequence_s=0.1,
    one_by_one=20,
    updates=1024,
    idle_s=0.2,
    idle_clients=10,
)


@pytest.mark.thorough
def test_all_chains_deliver_all_events_and_every_figure_is_measured() -> None:
    shares: list[float] = []
    result = asyncio.run(measure_chain(PLAN, lambda _, share: shares.append(share)))
    # 100 symbols; the limits of most subscriptions are above the price.
    assert 1.0 <= result.matches_per_event <= 3.0
    assert set(result.figures["covey"]) == set(labels(PLAN))
    only_brokers = {name for name in labels(PLAN) if "update" in name or "idle" in name}
    for carrier in ("grpc", "tcp"):
        assert set(result.figures[carrier]) == set(labels(PLAN)) - only_brokers
    for figures in result.figures.values():
        assert figures["p50_ms_at_200"].median <= figures["p99_ms_at_200"].median
        for name, spread in figures.items():
            assert len(spread.rounds) == 1
            assert spread.median > 0 or "idle" in name
    assert result.figures["covey"]["messages_per_event_at_50"].median > 1
    assert shares == sorted(shares)
    assert shares[-1] < 1


def test_a_result_is_medians_and_rounds() -> None:
    result = ChainResult({"covey": {"events_per_s": Spread((1234567.8, 3.0, 0.123456))}}, 2.0)
    expected = {"events_per_s": {"median": 3.0, "rounds": [1234568, 3.0, 0.1235]}}
    assert json.loads(json.dumps(result.as_json())) == {"covey": expected, "crowd_matches_per_event": 2.0}


def test_the_use_of_a_process() -> None:
    own = os.getpid()
    before, files = cpu_ns(own), descriptors(own)
    with open(os.devnull):
        assert descriptors(own) == files + 1
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    assert cpu_ns(own) > before
    assert resident_bytes(own) > 10_000_000
    with pytest.raises(CoveyError, match="process 0: expected one that runs"):
        cpu_ns(0)
