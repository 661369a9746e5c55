"""The compared systems deliver the expected events."""

import pytest

from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.scenario.scenario import SYSTEMS, Scenario, ScenarioError, find_system

SMALL = Scenario(
    brokers=8,
    publishers=3,
    subscribers=30,
    types=10,
    duration_s=1.0,
    event_rate=40.0,
    update_rate=3.0,
    seed=5,
)


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("load", ["trading", "highway"])
def test_every_system_delivers_the_expected_events(name: str, load: str) -> None:
    scenario = find_system(name).applied_to(SMALL.having(load=load))
    report = SimulatedRun(scenario).run()
    assert not report.counts, report.findings
    assert report.delivered > 10
    assert report.links_checked == 7


def test_an_unknown_system_or_engine_is_named() -> None:
    with pytest.raises(ScenarioError, match="system is 'x': expected one of siena-subscribe-first, "):
        find_system("x")
    with pytest.raises(ScenarioError, match=r"engine is 'fast': expected one of cluster, .*, poset"):
        Scenario(engine="fast")
