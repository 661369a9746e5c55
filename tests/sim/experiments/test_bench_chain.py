"""`covey bench chain` at a small size: all events arrive through brokers and through bare relays."""

from __future__ import annotations

import asyncio

import pytest

from covey.sim.experiments.bench.chain import ChainPlan, measure_chain


@pytest.mark.thorough
@pytest.mark.usefixtures("local_brokers")
def test_both_chains_deliver_all_events() -> None:
    shares: list[float] = []
    plan = ChainPlan(
        runs=1, events=2000, batch=250, subscriptions=200, rate=200, low_rate=50, latency_s=0.5, bare=True
    )
    result = asyncio.run(measure_chain(plan, lambda _, share: shares.append(share)))
    # 100 symbols; the limits of most subscriptions are above the price.
    assert 1.0 <= result.matches_per_event <= 3.0
    assert result.bare is not None
    for figures in (result.covey, result.bare):
        assert figures.events_per_s == figures.runs[0] > 0
        for latency in (figures.latency, figures.low_latency):
            assert 0 < latency.p50_ms <= latency.p99_ms
    document = result.as_json()
    assert document["latency_ms"] == result.covey.latency.as_json()
    assert set(document["bare"]) == set(result.covey.as_json())
    assert shares == sorted(shares)
    assert shares[-1] < 1
