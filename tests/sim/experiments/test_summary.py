"""The counts of a run add up, in JSON and in print."""

import json
import re

import pytest
from changed_runs import SMALL_FRAMES, changed_run
from commands import run

from covey.sim.experiments.runs.run import RunSummary
from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.scenario.scenario import Scenario

SMALL = Scenario(
    brokers=6, publishers=2, subscribers=20, types=4, duration_s=1.0, event_rate=60.0, update_rate=8.0
)
STATIC = SMALL.having(routing="static", resubscribe="unsubscribe-first")


def add_up(summary: RunSummary) -> None:
    assert summary.expected == summary.fulfilled + summary.excused + summary.missed
    assert summary.delivered == summary.fulfilled + summary.additional
    assert summary.missed == summary.lost + summary.counts.get("coverage", 0)


@pytest.mark.parametrize(
    "scenario",
    [SMALL, STATIC, SMALL.having(crashes=1), SMALL.having(load="highway", publishers=4)],
    ids=["parametric", "static", "crash", "highway"],
)
def test_deliveries_add_up(scenario: Scenario) -> None:
    summary = SimulatedRun(scenario).run()
    assert summary.expected > 0
    add_up(summary)


def test_missed_and_lost_deliveries_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = STATIC.having(event_rate=200.0, jitter_ms=30.0, seed=3)
    lossy = changed_run(scenario, link=SMALL_FRAMES).run()
    assert lossy.lost > 0
    add_up(lossy)
    monkeypatch.setattr(Scenario, "lossy", False)  # the same losses are violations
    missing = changed_run(scenario, link=SMALL_FRAMES).run()
    assert missing.missed > missing.lost == 0
    add_up(missing)


def test_what_is_printed_adds_up_and_tells_routings_apart(capsys: pytest.CaptureFixture[str]) -> None:
    per_update = {}
    for routing in ("parametric", "static"):
        assert run("sim", "--routing", routing, "--duration", 1) == 0
        text = capsys.readouterr().out
        expected, delivered = re.search(r"\(([\d,]+) deliveries expected: ([\d,]+) delivered", text).groups()
        assert "cpu: free" in text
        assert "--cpu measured" in text
        excused = re.search(r"([\d,]+) excused", text)
        assert int(expected) == int(delivered) + (int(excused[1]) if excused else 0)
        per_update[routing] = float(re.search(r"([\d.]+) per update", text)[1])
    assert per_update["static"] > 1.3 * per_update["parametric"]


def test_json_has_every_count(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("sim", "--brokers", 4, "--types", 5, "--subscribers", 9, "--duration", 1, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert {"fulfilled", "additional", "excused", "lost", "missed", "unjudged", "spurious"} <= set(summary)
    assert set(summary["control"]) >= {"Acknowledge", "Update"}
