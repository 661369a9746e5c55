"""The demonstration end to end, on some quotes: verdicts, and recovery of a killed broker."""

import asyncio

import pytest
from local_brokers import brokers_as
from rich.console import Console

from covey.sim.experiments.demo import report
from covey.sim.experiments.demo.run import STRATEGIES, Demonstration, DemoOutcome
from covey.sim.scenario.recorded import load_quotes


def replay(
    quotes: int, *, routing: str = "parametric", restart: str | None = None, rate: float | None = None
) -> DemoOutcome:
    demonstration = Demonstration(load_quotes().slice(0, quotes), routing=routing, restart=restart, rate=rate)
    return asyncio.run(demonstration.run())


QUOTES = 1000


@pytest.fixture(scope="module")
def parametric() -> DemoOutcome:
    with brokers_as("tasks"):
        return replay(QUOTES)


def test_parametric_routing_misses_nothing_repeats_nothing_and_delivers_only_matches(
    parametric: DemoOutcome,
) -> None:
    assert not report.failed([parametric])
    result = report.as_json([parametric])["parametric"]
    assert set(result["subscribers"]) == {strategy.name for strategy in STRATEGIES}
    assert all(counts["delivered"] for counts in result["subscribers"].values())
    assert result["published"] == QUOTES
    assert result["updates"] >= 50
    assert 0 < result["update_delay_ms"]["p50"] <= result["update_delay_ms"]["p99"]
    assert set(result["control_messages_per_broker"]) == {"b1", "b2", "b3", "b4", "b5"}
    assert (
        result["control_messages"] == sum(result["control_messages_per_broker"].values()) > result["updates"]
    )


@pytest.mark.thorough
def test_static_routing_is_judged_by_the_same_oracle_and_costs_more_messages(
    parametric: DemoOutcome,
) -> None:
    with brokers_as("tasks"):
        outcomes = [parametric, replay(QUOTES, routing="static")]
    dynamic, static = (report.as_json(outcomes)[routing] for routing in ("parametric", "static"))
    assert static["delivered"] > 0
    for each in (static, dynamic):
        assert each["control_messages_per_change"] == round(each["control_messages"] / each["updates"], 2)
    assert static["control_messages_per_change"] > dynamic["control_messages_per_change"] > 0
    console = Console(width=100)
    with console.capture() as shown:
        console.print(report.summary(outcomes))
    assert "control messages per change" in shown.get()


@pytest.mark.parametrize(
    "broker", [pytest.param(broker, marks=pytest.mark.thorough) for broker in ("b4", "b3")]
)
def test_no_event_is_missed_after_a_killed_broker_has_recovered(broker: str) -> None:
    """As processes. b1 and b3 forward events; b4 has a subscriber, which must reconnect."""
    outcome = replay(800, restart=broker, rate=200)
    assert not report.failed([outcome])
    assert outcome.recovery.recovered_s is not None
