"""SIGHUP: changed and kept settings of a running broker, without effect on events."""

import asyncio
import copy
import itertools
import os
import re
import signal
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import jwt
import pytest
import yaml
from bystanders import FLOOD, Flood, Reader, Tasks
from running import on_a_loop, run_on_loop, until

from covey.overlay import Client, RefusedError
from covey.overlay.core.endpoint.quotas import Bounds
from covey.overlay.core.operators.operator_limits import OperatorLimits
from covey.overlay.documents import ConfigError
from covey.overlay.node.config import load_overlay
from covey.overlay.node.overlay import Overlay
from covey.overlay.node.reload import Reloader, merge
from covey.overlay.node.state import missing
from covey.overlay.transport.address import CallError
from covey.sim.experiments.local_overlay import LocalOverlay, free_addresses
from covey.sim.invariants import check
from covey.testing.local_brokers import LocalBroker

SECRET = "s" * 40
TWO: dict[str, Any] = {
    "overlay": "two",
    "brokers": {"b1": {"address": "127.0.0.1:7001"}, "b2": {"address": "127.0.0.1:7002"}},
    "links": [["b1", "b2"]],
}


def overlay(tmp_path: Path, **fields: Any) -> Overlay:
    path = tmp_path / "overlay.yaml"
    path.write_text(yaml.safe_dump({**TWO, **fields}))
    return load_overlay(path, {})


def test_options_that_may_change_are_changed_and_named_as_in_the_file(tmp_path: Path) -> None:
    limits = {
        "session_lease_s": 5.0,
        "link_queue_bytes": 1 << 20,
        "max_sessions": 7,
        "max_connections": 8,
        "max_connections_per_address": 3,
    }
    read = overlay(tmp_path, limits=limits, operators={"deadline_ms": 20}, log_level="DEBUG")
    reloading = merge(overlay(tmp_path), read, "b1")
    assert reloading.overlay == read
    changed = [*(f"limits.{name}" for name in limits), "operators.deadline_ms", "log_level"]
    assert (sorted(reloading.changed), reloading.kept) == (sorted(changed), ())
    assert read.bounds == replace(Bounds(), sessions=7)
    assert read.operator_limits == replace(OperatorLimits(), deadline_ms=20)


def test_options_that_need_a_restart_keep_their_value_and_are_named(tmp_path: Path) -> None:
    running = overlay(tmp_path)
    read = overlay(
        tmp_path,
        overlay="other",
        event_types={"Quote": {"price": "float64"}},
        damping=2.0,
        merging="perfect",
        replay_events=5,
        engine="naive",
        limits={"max_event_bytes": 1_000, "session_lease_s": 9.0},
        operators={"modules": ["company.operators"]},
        brokers={**TWO["brokers"], "b1": {"address": "127.0.0.1:7001", "listen": "0.0.0.0:7001"}},
    )
    reloading = merge(running, read, "b1")
    assert reloading.changed == ("limits.session_lease_s",)
    assert sorted(reloading.kept) == sorted(
        (
            "overlay",
            "event_types",
            "damping",
            "merging",
            "replay_events",
            "engine",
            "limits.max_event_bytes",
            "operators.modules",
            "brokers.b1.listen",
        )
    )
    assert reloading.overlay == replace(running, sessions=read.sessions)


ROW: dict[str, Any] = {
    "overlay": "row",
    "brokers": {name: {"address": f"127.0.0.1:700{i}"} for i, name in enumerate(("b1", "b2", "b3"))},
    "links": [["b1", "b2"], ["b2", "b3"]],
}


def _without(configuration: dict[str, Any], name: str, links: list[list[str]]) -> dict[str, Any]:
    brokers = {each: value for each, value in configuration["brokers"].items() if each != name}
    return {**configuration, "brokers": brokers, "links": links}


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({**ROW, "links": [["b1", "b2"], ["b1", "b3"]]}, "links end (b2-b3)"),
        (_without(ROW, "b2", [["b1", "b3"]]), "links end (those of a middle broker)"),
        (_without(ROW, "b3", [["b1", "b2"]]), ""),
    ],
)
@on_a_loop
async def test_links_with_durable_types_stay(tmp_path: Path, changed: dict[str, Any], refused: str) -> None:
    """Events that wait for an ended link would be lost."""
    durable = {"durable": {"T": {}}, "storage": "store"}
    file = tmp_path / "overlay.yaml"
    file.write_text(yaml.safe_dump({**ROW, **durable}))
    process = Process(file, "b1")
    before = process.node.overlay
    file.write_text(yaml.safe_dump({**changed, **durable, "log_level": "DEBUG"}))
    try:
        with pytest.raises(ConfigError, match=re.escape(refused)) if refused else nullcontext():
            await process.reloader.reload()
        assert process.levels == ([] if refused else ["DEBUG"])
        assert (process.node.overlay is before) is bool(refused)
    finally:
        process.node.close()


STORED: dict[str, Any] = {
    "overlay": "stored",
    "durable": {"Flood": {}},
    "storage": "store",
    "event_types": {"Flood": {"number": "int64", "text": "string"}},
}


def stored(folder: Path, *names: str) -> dict[str, Any]:
    """A file in which each broker is linked to the one before."""
    addresses = zip(names, free_addresses(len(names)), strict=True)
    brokers = {name: {"address": address} for name, address in addresses}
    file = {**STORED, "brokers": brokers, "links": [[*pair] for pair in itertools.pairwise(names)]}
    (folder / "overlay.yaml").write_text(yaml.safe_dump(file))
    return file


@on_a_loop
async def test_to_a_broker_that_joins_nothing_was_promised_before(tmp_path: Path) -> None:
    """Else the whole log would be read and kept for it, and events removed by retention reported lost."""
    file, path = stored(tmp_path, "b1", "b2"), tmp_path / "overlay.yaml"
    alone = _without(file, "b2", [])
    path.write_text(yaml.safe_dump(alone))
    first = await Process.started(path, "b1")
    try:
        async with (
            Client(file["brokers"]["b1"]["address"], "feed") as feed,
            Client(file["brokers"]["b1"]["address"], "reader", durable=True) as reader,
        ):
            await reader.subscribe("Flood")
            await feed.advertise(FLOOD)
            for again in range(2):
                for number in range(5):
                    await feed.publish("Flood", number=number, text="", confirm=True)
                await first.reload(file)
                storage = first.node.storage
                assert storage.cursor("broker/b2", "Flood") == storage.end("Flood") == 5 * (again + 1)
                assert first.node.queues["broker/b2"].behind == {}
                await first.reload(alone)
    finally:
        await first.stop()


@on_a_loop
async def test_a_broker_whose_neighbour_goes_while_it_leaves_says_what_it_stores(tmp_path: Path) -> None:
    """Its connections had nothing left to send, so it reported that all had been sent."""
    file, path = stored(tmp_path, "b1", "b2"), tmp_path / "overlay.yaml"
    first, last = await Process.started(path, "b1"), await Process.started(path, "b2")
    async with (
        Client(file["brokers"]["b1"]["address"], "reader", durable=True) as reader,
        Client(file["brokers"]["b2"]["address"], "feed") as feed,
    ):
        await reader.subscribe("Flood")
        await feed.advertise(FLOOD)
        path.write_text(yaml.safe_dump(_without(file, "b2", [])))
        leaving = asyncio.create_task(last.reloader.reload_for_call(True))
        await until(lambda: last.reloader.left or leaving.done(), "b2 is about to leave")
        await first.stop()
        await until(lambda: not last.node.queues["broker/b1"].connected, "b1 is gone")
        await feed.publish("Flood", number=1, text="", confirm=True)
        with pytest.raises(ConfigError, match="b2 stores events for broker/b1: expected these connected"):
            await last.reloader.reload_for_call(True)  # one that has not begun stays
        await last.stop()
        with pytest.raises(CallError, match=r"b2 ends with records that have not arrived \(1 for broker/b1"):
            await leaving


@on_a_loop
async def test_a_broker_with_durable_sessions_does_not_leave(tmp_path: Path) -> None:
    """One may have begun after the check of `covey broker leave`."""
    file, path = stored(tmp_path, "b1", "b2"), tmp_path / "overlay.yaml"
    first = await Process.started(path, "b1")
    try:
        async with Client(file["brokers"]["b1"]["address"], "reader", durable=True):
            path.write_text(yaml.safe_dump(_without(file, "b1", [])))
            with pytest.raises(ConfigError, match="b1 has 1 durable sessions: expected them moved or ended"):
                await first.reloader.reload_for_call(True)
            assert not first.reloader.left
    finally:
        await first.stop()


class Process(LocalBroker):
    """A broker of a file in this process, which reads it again on request."""

    def __init__(self, file: Path, name: str) -> None:
        super().__init__(load_overlay(file, {}), name)
        self.file, self.levels = file, list[str]()
        self.reloader = Reloader(
            file, self.node, self._server, self._dialers, set_level=self.levels.append, environment={}
        )

    @classmethod
    async def started(cls, file: Path, name: str) -> Self:
        process = cls(file, name)
        await process.start()
        return process

    async def drain(self, seconds: float) -> None:
        await self._server.stop(seconds, self._dialers.tasks)

    async def reload(self, configuration: dict[str, Any] | str) -> None:
        text = configuration if isinstance(configuration, str) else yaml.safe_dump(configuration)
        self.file.write_text(text)
        with suppress(ConfigError):
            await self.reloader.reload()

    def neighbours(self) -> list[str]:
        return [name for name in self.node.core.tables.peers if name.startswith("broker/")]


class Growing:
    """b1 and b2, and b3, which is linked to b2 later; `dials` is whether b3 opens that link."""

    def __init__(self, folder: Path, *, dials: bool) -> None:
        names = ("b1", "b2", "b3")
        self._folder = folder
        self.addresses = dict(zip(names, free_addresses(3), strict=True))
        self.whole: dict[str, Any] = {
            "overlay": "growing",
            "brokers": {name: {"address": address} for name, address in self.addresses.items()},
            "links": [["b1", "b2"], ["b2", "b3"] if dials else ["b3", "b2"]],
        }
        self.without = copy.deepcopy(self.whole)
        del self.without["brokers"]["b3"]
        del self.without["links"][1]
        self.brokers: dict[str, Process] = {}

    def write(self, name: str) -> Path:
        path = self._folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(self.whole if name == "b3" else self.without))
        return path

    async def start(self, name: str) -> Process:
        self.brokers[name] = await Process.started(self.write(name), name)
        return self.brokers[name]

    async def ready(self) -> None:
        await until(
            lambda: not any(missing(each.node) for each in self.brokers.values()), "all are ready", 30
        )

    async def __aenter__(self) -> Self:
        await self.start("b1")
        await self.start("b2")
        await self.ready()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers.values():
            await broker.stop()


@pytest.mark.parametrize("dials", [True, False])
@on_a_loop
async def test_reloads_under_load_lose_and_repeat_nothing(
    dials: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker joins and leaves, limits change, and a wrong file comes between; b1 and b2 go on."""
    caplog.set_level("INFO", "covey.broker")
    async with (
        Growing(tmp_path, dials=dials) as overlay,
        Client(overlay.addresses["b1"]) as publisher,
        Client(overlay.addresses["b2"]) as subscriber,
        Tasks() as tasks,
    ):
        first, second = overlay.brokers["b1"], overlay.brokers["b2"]
        await publisher.advertise(FLOOD)
        reader, other = Reader(), Reader()
        tasks.start(reader.read(await subscriber.subscribe(FLOOD)))
        flood = Flood(publisher, 500)
        tasks.start(flood.run())
        await until(lambda: len(reader.numbers) > 100, "events arrive")

        before = first.node.overlay
        await first.reload("overlay: [")
        assert "nothing has changed" in caplog.text
        assert first.node.overlay is before
        await first.reload({**overlay.without, "log_level": "DEBUG", "limits": {"max_sessions": 50}})
        assert "reloaded; changed: limits.max_sessions, log_level" in "".join(sorted(caplog.text.split("\n")))
        assert first.levels[-1] == "DEBUG"

        for broker in (first, second):
            await broker.reload(overlay.whole)
        await overlay.start("b3")
        await overlay.ready()
        async with Client(overlay.addresses["b3"]) as far:
            tasks.start(other.read(await far.subscribe(FLOOD)))
            await until(lambda: len(other.numbers) > 100, "events arrive at the new broker")
        await overlay.brokers.pop("b3").drain(5.0)
        for broker in (first, second):
            await broker.reload(overlay.without)
        assert second.neighbours() == ["broker/b1"]
        seen = len(reader.numbers)
        await until(lambda: len(reader.numbers) > seen + 100, "events go on")
        assert reader.numbers == list(range(len(reader.numbers)))
        assert other.numbers == list(range(other.numbers[0], other.numbers[0] + len(other.numbers)))
        assert first.node.queues["broker/b2"].connections == 1
        for broker in (first, second):
            check(broker.node.core)


@on_a_loop
async def test_a_neighbour_that_left_the_file_is_disconnected_and_not_taken_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "covey.broker")
    async with (
        Growing(tmp_path, dials=True) as overlay,
        Client(overlay.addresses["b1"]) as publisher,
        Tasks() as tasks,
    ):
        first, second = overlay.brokers["b1"], overlay.brokers["b2"]
        for broker in (first, second):
            await broker.reload(overlay.whole)
        await overlay.start("b3")
        await overlay.ready()
        async with Client(overlay.addresses["b3"]) as far:
            await publisher.advertise(FLOOD)
            reader = Reader()
            tasks.start(reader.read(await far.subscribe(FLOOD)))
            tasks.start(Flood(publisher, 500).run())
            await until(lambda: len(reader.numbers) > 100, "events arrive")
            for broker in (first, second):
                await broker.reload(overlay.without)
            await until(lambda: "is no neighbour of b2: it has b1" in caplog.text, "b3 is refused", 30)
            assert "b3 is no neighbour of b2 any more" in caplog.text
        assert reader.numbers == list(range(reader.numbers[0], reader.numbers[0] + len(reader.numbers)))
        assert second.neighbours() == ["broker/b1"]
        assert "neighbour removed" not in second.node.endpoint.drops.by_reason  # all that was queued has left
        check(second.node.core)


@on_a_loop
async def test_a_neighbour_that_never_came_delays_nobody_once_it_has_left_the_file(tmp_path: Path) -> None:
    """Before, updates of b1 wait for the absent neighbour's interest."""
    overlay = Growing(tmp_path, dials=True)
    overlay.without, small = overlay.whole, overlay.without
    try:
        first, second = await overlay.start("b1"), await overlay.start("b2")
        await until(lambda: first.node.queues["broker/b2"].connected, "b1 and b2 are linked")
        assert not first.node.core.tables.peers["broker/b2"].synced
        for broker in (first, second):
            await broker.reload(small)
        await overlay.ready()
        assert second.node.core.synced
    finally:
        for broker in overlay.brokers.values():
            await broker.stop()


def token(subject: str, seconds: float = 600) -> str:
    return jwt.encode({"sub": subject, "exp": time.time() + seconds}, SECRET, algorithm="HS256")


def rule(subject: str, *types: str) -> dict[str, Any]:
    return {"subjects": [subject], "publish": ["*"], "subscribe": list(types)}


@on_a_loop
async def test_clients_whose_permissions_change_come_back_and_others_notice_nothing(tmp_path: Path) -> None:
    (address,) = free_addresses(1)
    key = tmp_path / "key"
    key.write_text(SECRET)
    tokens = {"key": str(key)}

    def file(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
        clients = {"tokens": tokens, "permissions": [rule("feed", "*"), *rules]}
        return {"overlay": "one", "brokers": {"b1": {"address": address}}, "clients": clients, **more}

    path = tmp_path / "overlay.yaml"
    path.write_text(yaml.safe_dump(file(rule("alice", "Flood"), rule("bob", "Flood"))))
    broker = await Process.started(path, "b1")
    states: dict[str, list[bool]] = {"alice": [], "bob": [], "feed": []}

    def client(name: str) -> Client:
        return Client(address, token=token(name), on_state=lambda up, _: states[name].append(up))

    try:
        async with (
            client("feed") as publisher,
            client("alice") as alice,
            client("bob") as bob,
            Tasks() as tasks,
        ):
            await publisher.advertise(FLOOD)
            reader = Reader()
            tasks.start(reader.read(await alice.subscribe(FLOOD)))
            theirs = await bob.subscribe(FLOOD)
            tasks.start(Flood(publisher, 500).run())
            await until(lambda: len(reader.numbers) > 10, "alice reads")
            async with Client(address, token=token("carol")) as carol:
                with pytest.raises(RefusedError, match="'carol' may not subscribe"):
                    await carol.subscribe(FLOOD)

            await broker.reload(file(rule("alice", "Flood"), rule("bob", "Other"), rule("carol", "*")))
            other = Reader()
            with pytest.raises(RefusedError, match="'bob' may not subscribe to events of type 'Flood'"):
                await asyncio.wait_for(other.read(theirs), 60)
            async with Client(address, token=token("carol")) as carol:
                await carol.subscribe(FLOOD)
            seen = len(reader.numbers)
            await until(lambda: len(reader.numbers) > seen + 10, "alice reads on")
            assert reader.numbers == list(range(len(reader.numbers)))
            assert states == {"alice": [True], "bob": [True, False, True], "feed": [True]}

            tokens["key"] = str(tmp_path / "absent")  # changes nothing
            await broker.reload(file(rule("alice", "Other")))
            await alice.subscribe(FLOOD, "number >= 0")
            tokens["key"] = str(key)
            await broker.reload(file(rule("alice", "Flood"), log_level="DEBUG"))
            await until(lambda: states["bob"] == [True, False] * 2 + [True], "bob has come back")
            assert broker.levels[-1] == "DEBUG"
            assert states["alice"] == states["feed"] == [True]
    finally:
        await broker.stop()


def test_rules_for_certificates_wait_for_the_restart_that_brings_tls(tmp_path: Path) -> None:
    running = overlay(tmp_path)
    certificates = {"certificate": "c", "key": "k", "authority": "a"}
    read = overlay(tmp_path, tls=certificates, clients={"permissions": [rule("alice", "*")]})
    reloading = merge(running, read, "b1")
    assert reloading.overlay == running
    assert set(reloading.kept) == {"tls", "clients"}


@pytest.mark.thorough
def test_processes_reload_at_sighup() -> None:
    """As above, by signals; a broker that reloads neither ends nor drops a link."""

    async def reload() -> None:
        async with (
            LocalOverlay([("b1", "b2")], compiled=False) as overlay,
            Client(overlay.addresses["b1"]) as publisher,
            Client(overlay.addresses["b2"]) as subscriber,
            Tasks() as tasks,
        ):
            await publisher.advertise(FLOOD)
            reader = Reader()
            tasks.start(reader.read(await subscriber.subscribe(FLOOD)))
            tasks.start(Flood(publisher, 1_000).run())
            for lease_s in range(40, 60):
                seen = len(reader.numbers)
                configuration = {**overlay.configuration("b1"), "limits": {"session_lease_s": lease_s}}
                for name, process_id in overlay.process_ids().items():
                    overlay.file(name).write_text(yaml.safe_dump(configuration))
                    os.kill(process_id, signal.SIGHUP)
                await until(lambda seen=seen: len(reader.numbers) > seen, "events go on", 60)
            await until(lambda: "changed: limits.session_lease_s" in overlay.log("b2", 1_000), "reloads", 60)
            assert reader.numbers == list(range(len(reader.numbers)))
            assert "disconnected" not in overlay.log("b1", 1_000)

    run_on_loop(asyncio.wait_for(reload(), 500))
