"""`python -m benchmarks durable`: one short run over real brokers."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.durable import DurablePlan, measure_durable


@pytest.mark.thorough
def test_both_kinds_of_types_are_measured() -> None:
    results = asyncio.run(measure_durable(DurablePlan(seconds=0.5, rates=(100,))))
    assert [each.kind for each in results.types] == ["in memory", "durable"]
    assert all(each.events_per_s > 0 and each.latency_ms.keys() == {100} for each in results.types)
