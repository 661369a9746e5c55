"""One schedule in virtual time and over real brokers: equal deliveries."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from commands import run
from read_traces import rows

from covey.overlay.client import ClosedError
from covey.sim.experiments.runs.real import ObservedSession, RealRun, RealSubscriber, received_since
from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.scenario.loads import HighwayLoad, SubscriberState
from covey.sim.scenario.scenario import Scenario, find_system
from covey.sim.scenario.schedule import UpdateStep
from covey.sim.simulator.observer import Observers
from covey.sim.trace.finding import find_traces

TINY = Scenario(
    brokers=4,
    publishers=2,
    subscribers=10,
    types=3,
    duration_s=1.0,
    event_rate=25.0,
    update_rate=3.0,
    delay_ms=2.0,
    seed=11,
    pace="orderly",
)


def delivered(trace: Path) -> list[tuple[object, ...]]:
    """The events that reached each version of each subscription."""
    return sorted(
        (row["client"], row["subscription"], row["version"], row["publisher"], row["sequence"])
        for row in rows(trace, "deliveries")
    )


def history(trace: Path) -> dict[str, list[tuple[object, ...]]]:
    """By client: the versions of its subscription, and its moves, in order."""
    versions: dict[str, list[tuple[object, ...]]] = {}
    for row in rows(trace, "versions"):
        version = (row["subscription"], row["version"], row["broker"], row["values"])
        versions.setdefault(row["client"], []).append(version)
    for row in rows(trace, "history"):
        if row["what"] == "moved":
            versions[row["node"]].append(("moved", row["peer"]))
    return versions


def arrived(trace: Path) -> Counter[tuple[str, ...]]:
    """Events, and control messages by kind, at brokers and clients, with senders and phase. Without
    acknowledgements between brokers, whose number depends on timing."""
    found: Counter[tuple[str, ...]] = Counter()
    for row in rows(trace, "messages"):
        if row["phase"] in ("running", "resting"):
            ends = [row[end].partition("/")[0] for end in ("source", "target")]
            sort = "events" if row["events"] else row["kind"]
            if sort != "Acknowledge" or "client" in ends:
                found[row["phase"], *ends, sort] += row["events"] or row["messages"]
    return found


@pytest.mark.parametrize(
    ("load", "system"), [("highway", "covey-parametric"), ("trading", "covey-unsubscribe-first")]
)
@pytest.mark.usefixtures("brokers_in_process")
def test_simulated_and_real_runs_deliver_identical_sets(load: str, system: str, tmp_path: Path) -> None:
    scenario = find_system(system).applied_to(TINY.having(load=load))
    simulated = SimulatedRun(scenario).run(tmp_path / "simulated")
    real = RealRun(scenario).run(tmp_path / "real")
    assert not simulated.counts, simulated.findings
    assert not real.counts, real.findings
    assert (simulated.published, simulated.updates) == (real.published, real.updates)
    assert delivered(tmp_path / "simulated") == delivered(tmp_path / "real")
    assert history(tmp_path / "simulated") == history(tmp_path / "real")
    assert simulated.delivered == real.delivered > 20
    assert simulated.crossings == real.crossings
    counts, real_counts = arrived(tmp_path / "simulated"), arrived(tmp_path / "real")
    answers = ("running", "broker", "client", "Acknowledge")
    assert min(counts.pop(answers), real_counts.pop(answers)) >= real.updates > 20
    assert counts == real_counts
    (manifest,) = find_traces([tmp_path / "real"]).runs.values()
    assert list(manifest.phases) == ["advertising", "subscribing", "running", "resting", "quiet"]


@pytest.mark.usefixtures("local_brokers")
def test_a_timed_real_run_delivers_all_expected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text("brokers: 4\npublishers: 1\nsubscribers: 6\ntypes: 2\nduration_s: 1\nupdate_rate: 2\n")
    assert run("sim", str(file), "--real", "--system", "covey-parametric", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["counts"] == {}
    assert report["expected"] <= report["delivered"]
    assert report["scenario"]["engine"] == "cluster"


@pytest.mark.usefixtures("brokers_in_process")
def test_a_change_that_comes_with_a_move_is_answered_at_the_new_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.sim.scenario.loads._STEP", 400.0)  # a vehicle moves with every other step
    scenario = TINY.having(load="highway", seed=3)
    simulated = SimulatedRun(scenario).run(tmp_path / "simulated")
    real = RealRun(scenario).run(tmp_path / "real")
    assert not real.counts, real.findings
    assert history(tmp_path / "simulated") == history(tmp_path / "real")
    assert delivered(tmp_path / "simulated") == delivered(tmp_path / "real")
    assert (simulated.expected, simulated.excused) == (real.expected, real.excused)
    moved = {
        row["node"]: row["time_ns"] for row in rows(tmp_path / "real", "history") if row["what"] == "moved"
    }
    answers = [
        row
        for row in rows(tmp_path / "real", "deliveries")
        if row["client"] in moved and row["version"] >= 1 and row["time_ns"] > moved[row["client"]]
    ]
    assert len(answers) > 3


class _Closed:
    """A client that closes while its subscription waits for an update."""

    id = 1

    def __init__(self, session: ObservedSession) -> None:
        self.session = session
        self.values = {"x": 1.0}
        self.updates: list[Mapping[str, object]] = []
        self.closing = asyncio.Event()

    async def subscribe(self, *_: object, **__: object) -> _Closed:
        return self

    def subscription(self, subscription_id: int) -> _Closed:
        return self

    async def batches(self) -> AsyncIterator[None]:
        return
        yield

    async def update(self, values: Mapping[str, object]) -> None:
        await self.closing.wait()
        raise ClosedError("client s is closed")

    def update_nowait(self, values: Mapping[str, object]) -> None:
        self.updates.append(values)

    async def close(self) -> None:
        self.closing.set()


def test_an_update_that_a_move_overtakes_is_no_error() -> None:
    state = SubscriberState(HighwayLoad.AROUND, {"road": "west-0", "x": 1.0, "y": 2.0}, "a")
    clients: list[_Closed] = []

    async def opened(name: str, broker: str, session: ObservedSession | None = None) -> Any:
        if session is None:
            session = ObservedSession("client/s", "broker/a", "parametric", "subscribe-first", Observers())
        clients.append(_Closed(session))
        return clients[-1]

    async def updated() -> None:
        subscriber = RealSubscriber("s", state, opened, lambda: None)
        await subscriber.join()
        waiting = asyncio.create_task(subscriber.update(UpdateStep(0, 0, {"x": 3.0}, "a")))
        await asyncio.sleep(0)
        await subscriber.update(UpdateStep(0, 0, {"x": 4.0}, "b"))
        await waiting

    asyncio.run(updated())
    old, new = clients
    assert old.session is new.session
    assert (new.session.broker, new.updates) == ("broker/b", [{"road": "west-0", "x": 4.0, "y": 2.0}])


def test_counters_of_a_new_session_count_from_zero() -> None:
    was = {"received": {"Publish": 2, "Update": 3}, "events_received": 9}
    more = {"received": {"Publish": 4, "Update": 3, "Subscribe": 1}, "events_received": 15}
    fewer = {"received": {"Subscribe": 1, "Publish": 3}, "events_received": 11}
    assert received_since(more, was) == ({"Publish": 2, "Update": 0, "Subscribe": 1}, 6)
    assert received_since(fewer, was) == ({"Subscribe": 1, "Publish": 3}, 11)
    assert received_since(more, None) == ({"Publish": 4, "Update": 3, "Subscribe": 1}, 15)
