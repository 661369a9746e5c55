"""The bridge between Covey and a real mosquitto: both directions, peers' mistakes, and an absent side."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import aiomqtt
import pytest
from mosquitto import Mosquitto, bridge, needs_mosquitto
from running import Brokers, Proxy, on_a_loop, until

from covey.bridge import mqtt_connection, mqtt_session
from covey.bridge.mqtt_connection import Connection, Incoming
from covey.bridge.mqtt_session import Counts
from covey.matcher import EventType
from covey.overlay import Client, ConnectError, RefusedError
from covey.overlay.core.endpoint.limits import Limits, SessionLimits

pytestmark = needs_mosquitto

READING = EventType("Reading", {"sensor": "string", "celsius": "float64", "number": "int64"})
MAPPING = """
name: NAME
mqtt: {address: "localhost:PORT"}
event_types:
  Reading: {sensor: string, celsius: float64, number: int64}
to_covey:
  - {topic: plant/+/temperature, event_type: Reading, qos: QOS, attributes: {sensor: topic.2}}
"""
ALARMS = """
to_mqtt:
  - event_type: Reading
    filter: celsius > $limit
    values: {limit: 80}
    variables: {limit: plant/limit}
    topic: alarms/{sensor}
    attributes: [celsius, number]
    qos: QOS
"""
MIRROR = """
to_mqtt:
  - {event_type: Reading, topic: "plant/{sensor}/temperature"}
"""


def mapping(port: int, *, out: str = ALARMS, qos: int = 1, name: str = "bridge") -> str:
    text = (MAPPING + out).replace("PORT", str(port)).replace("QOS", str(qos))
    return text.replace("NAME", name)


@asynccontextmanager
async def peer(server: Mosquitto | Proxy, *topics: str, **options: Any) -> AsyncIterator[aiomqtt.Client]:
    version = aiomqtt.ProtocolVersion.V5
    async with aiomqtt.Client("127.0.0.1", server.port, protocol=version, **options) as client:
        client.pending_calls_threshold = 1_000
        for topic in topics:
            await client.subscribe(topic, qos=1)
        yield client


async def publish(client: aiomqtt.Client, sensor: str, qos: int = 1, **reading: object) -> None:
    await client.publish(f"plant/{sensor}/temperature", json.dumps(reading), qos=qos)


async def messages(client: aiomqtt.Client, count: int) -> list[tuple[str, Any]]:
    found = []
    async with asyncio.timeout(60):
        async for message in client.messages:
            found.append((str(message.topic), json.loads(message.payload)))
            if len(found) == count:
                break
    return found


@dataclass
class Site:
    folder: Path
    server: Mosquitto
    overlay: Brokers
    plant: aiomqtt.Client
    client: Client

    def bridge(
        self, text: str = "", broker: str = "b1", **changes: Any
    ) -> AbstractAsyncContextManager[Counts]:
        """A bridge of a mapping, by default one with `changes`; `broker` is a name or an address."""
        address = broker if ":" in broker else self.overlay.address(broker)
        file = self.folder / f"{changes.get('name', 'bridge')}.yaml"
        return bridge(file, address, text or mapping(self.server.port, **changes))


@asynccontextmanager
async def site(folder: Path, *topics: str, **overlay: Any) -> AsyncIterator[Site]:
    """`topics`: subscriptions of mosquitto's client; `overlay`: options of the overlay."""
    async with (
        Mosquitto(folder) as server,
        Brokers(**overlay) as brokers,
        peer(server, *topics) as plant,
        Client(brokers.address(max(brokers.nodes))) as client,
    ):
        yield Site(folder, server, brokers, plant, client)


def of_overlapping_rules(server: Mosquitto) -> str:
    """A second rule's topics overlap the first rule's."""
    further = '  - {topic: "plant/#", event_type: Level, attributes: {sensor: topic.2}}\n'
    text = mapping(server.port, out=further)
    return text.replace("event_types:", "event_types:\n  Level: {sensor: string}")


@on_a_loop
async def test_both_ways(tmp_path: Path) -> None:
    async with site(tmp_path, "alarms/#", links=[("b1", "b2")]) as at:
        async with at.bridge() as counts:
            readings = await at.client.subscribe("Reading", "")
            sensors = ("oven", "", "größe 7", "a\\b{c}")
            for number, sensor in enumerate(sensors):
                await publish(at.plant, sensor, celsius=70 + number, number=number)
            found = {row["sensor"]: row["celsius"] for row in (await readings.read(limit=4)).to_pylist()}
            assert found == {sensor: 70 + number for number, sensor in enumerate(sensors)}
            await publish(at.plant, "oven", qos=0, celsius=81.5)  # the bridge's own event makes an alarm
            await at.client.advertise(READING)
            await at.client.publish("Reading", sensor="a/b", celsius=90.0)  # has no topic
            await at.client.publish("Reading", sensor="press", celsius=85.0, number=7)
            assert sorted(await messages(at.plant, 2)) == [
                ("alarms/oven", {"celsius": 81.5}),
                ("alarms/press", {"celsius": 85.0, "number": 7}),
            ]
            await until(lambda: counts.sent == 2)
        assert (counts.received, counts.published, counts.delivered, counts.unfit) == (5, 5, 3, 1)
        assert (counts.malformed, counts.dropped, counts.missed, counts.rejected) == (0, 0, 0, 0)


@on_a_loop
async def test_a_retained_message_moves_the_subscription(tmp_path: Path) -> None:
    async with site(tmp_path, "alarms/#") as at:
        await at.plant.publish("plant/limit", "30", qos=1, retain=True)  # before the bridge is there
        async with at.bridge(qos=0) as counts:
            await until(lambda: counts.received == 1)
            await publish(at.plant, "oven", celsius=31.0)
            assert await messages(at.plant, 1) == [("alarms/oven", {"celsius": 31.0})]
            for value in ("warm", "{", ""):  # the last clears it: the value of the mapping is in force again
                await at.plant.publish("plant/limit", value, qos=1, retain=True)
            await publish(at.plant, "oven", celsius=79.0)
            await publish(at.plant, "oven", celsius=81.0)
            assert await messages(at.plant, 1) == [("alarms/oven", {"celsius": 81.0})]
        assert counts.malformed == 2


@on_a_loop
async def test_what_makes_no_sense_is_counted_and_costs_nobody_else_a_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = "plant/oven/temperature"
    hostile = [b"\xff\xfe", b"", b"{", b"[1]"]
    hostile += [b'{"celsius": "hot"}', b'{"number": 1.5}', b'{"number": 1e300}']
    async with site(tmp_path, limits=Limits(max_event_bytes=2_000)) as at:
        async with at.bridge() as counts:
            readings = await at.client.subscribe("Reading", "")
            await asyncio.gather(
                *(at.plant.publish(topic, payload, qos=1) for payload in hostile),
                publish(at.plant, "oven", celsius=1.0),
                publish(at.plant, "oven", celsius=1, x="x" * (2 << 20)),  # not sent to us
                publish(at.plant, "oven", celsius=3, x="x" * 70_000),
                publish(at.plant, "x" * 3_000, celsius=4.0),  # more than an event of Covey may have
                publish(at.plant, "press", celsius=2.0),
            )
            found = (await readings.read(limit=3)).to_pylist()
            assert sorted(row["celsius"] for row in found) == [1.0, 2.0, 3.0]
            await until(lambda: counts.refusals == 1)
        assert counts.malformed == len(hostile)
    lines = "\n".join(record.getMessage() for record in caplog.records if record.name == "covey.bridge")
    assert f"{topic}: a malformed message: the payload is no JSON object" in lines
    assert "attribute celsius is float64, got 'hot' (str); expected a number" in lines
    assert "Covey refuses events: event " in lines


@on_a_loop
async def test_a_rule_has_a_message_that_makes_no_sense_to_another(tmp_path: Path) -> None:
    """Topics overlap, so mosquitto sends each rule a copy of its own."""
    async with site(tmp_path) as at:
        async with at.bridge(of_overlapping_rules(at.server)) as counts:
            levels = await at.client.subscribe("Level", "")
            await at.plant.publish("plant/oven/temperature", "31.5", qos=1)
            await at.plant.publish("plant/end", "", qos=1)
            await until(lambda: counts.received == 3)
            found = (await levels.read(limit=2)).to_pylist()
        assert [row["sensor"] for row in found] == ["oven", "end"]
        assert (counts.malformed, counts.published) == (1, 2)


@on_a_loop
async def test_what_was_kept_for_overlapping_rules_comes_once_for_each(tmp_path: Path) -> None:
    """Mosquitto sends messages behind the answer to the connection, before the bridge has subscribed
    again."""
    async with site(tmp_path) as at:
        text = of_overlapping_rules(at.server)
        async with at.bridge(text):
            pass
        for number in range(20):
            await publish(at.plant, "oven", number=number)
        async with at.bridge(text) as counts:
            await until(lambda: counts.received == 40)
            levels = await at.client.subscribe("Level", "")
            await at.plant.publish("plant/end", "", qos=1)
            await levels.read(until=lambda event: event["sensor"] == "end")
        assert (counts.received, counts.published) == (41, 41)


@on_a_loop
async def test_nothing_goes_in_circles(tmp_path: Path) -> None:
    """Two bridges mirror the same topics; a third publisher is between."""
    async with site(tmp_path, "plant/#", links=[("b1", "b2")]) as at:
        async with at.bridge(out=MIRROR) as first, at.bridge(broker="b2", out=MIRROR, name="other") as second:
            await at.client.advertise(READING)
            readings = await at.client.subscribe("Reading", "")
            await at.client.publish("Reading", sensor="c", number=1)
            mirrored = ("plant/c/temperature", {"sensor": "c", "number": 1})
            assert await messages(at.plant, 2) == [mirrored] * 2
            await publish(at.plant, "m", number=2)
            found = (await readings.read(limit=3)).to_pylist()
            assert sorted(row["number"] for row in found) == [1, 2, 2]  # each bridge brings it
            await until(lambda: first.sent + second.sent == 4 and first.ignored + second.ignored == 4)
            await at.overlay.quiet()
            assert (await readings.read(until=0)).num_rows == 0
        assert (first.received, second.received) == (1, 1)


@on_a_loop
async def test_two_bridges_may_share_a_subscription(tmp_path: Path) -> None:
    async with site(tmp_path) as at:
        text = mapping(at.server.port).replace("topic: plant/+", 'topic: "$share/bridges/plant/+')
        text = text.replace("temperature,", 'temperature",')
        other = at.bridge(text.replace("bridge\n", "other\n"), name="other")
        async with at.bridge(text) as first, other as second:
            await asyncio.gather(*(publish(at.plant, "oven", number=number) for number in range(40)))
            await until(lambda: first.published + second.published == 40)
        assert min(first.published, second.published) > 0
        assert first.malformed + second.malformed == 0


@on_a_loop
async def test_mosquitto_restarts_under_load(tmp_path: Path) -> None:
    """After a regular restart and a kill, both ways, nothing confirmed of QoS 1 is lost."""
    total = 300
    async with Brokers() as overlay, Client(overlay.address("b1")) as client:
        server = Mosquitto(tmp_path)
        await server.start()
        await client.advertise(READING)
        readings = await client.subscribe(READING, "celsius < 0")
        async with bridge(tmp_path / "m.yaml", overlay.address("b1"), mapping(server.port)) as counts:
            numbers: set[int] = set()

            async def read() -> None:
                async for batch in readings.batches():
                    numbers.update(row["number"] for row in batch)

            async def load() -> None:
                """Publish again what mosquitto has not acknowledged."""
                left = [*range(total)]
                while left:
                    try:
                        async with peer(server, timeout=2.0) as plant:
                            while left:
                                some = left[:20]
                                await asyncio.gather(
                                    *(publish(plant, "x", celsius=-1, number=n) for n in some)
                                )
                                left = left[20:]
                    except aiomqtt.MqttError:
                        await asyncio.sleep(0.01)

            reading, loading = asyncio.create_task(read()), asyncio.create_task(load())
            await until(lambda: len(numbers) > 50)
            events = [{"sensor": "y", "celsius": 99.0, "number": n} for n in range(total)]
            await client.publish_batch("Reading", events)
            await until(lambda: counts.sent > 0)
            await server.stop()
            await server.start()
            await until(lambda: counts.sent > total // 2)
            await loading
            await until(lambda: len(numbers) == total)
            await client.publish_batch("Reading", events)
            await server.stop(signal.SIGKILL)
            await server.start()
            await until(lambda: counts.sent >= 2 * total)
            reading.cancel()
        assert (counts.missed, counts.rejected, counts.malformed, counts.delivered) == (0, 0, 0, 2 * total)
        await server.stop()


@on_a_loop
async def test_a_message_is_acknowledged_once_covey_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The overlay accepts nothing, and the bridge ends: another bridge gets what mosquitto has retained."""
    monkeypatch.setattr(mqtt_session, "GRACE_S", 0.0)
    async with site(tmp_path) as at:
        readings = await at.client.subscribe(READING, "")
        proxy = await at.overlay.proxy("b1")
        async with at.bridge(broker=proxy.address) as first:
            proxy.freeze()
            for number in range(50):
                await publish(at.plant, "oven", number=number)
            await until(lambda: first.received > 0)
            proxy.refusing = True
            proxy.cut()
        assert first.published == 0
        async with at.bridge():
            found = (await readings.read(limit=50)).to_pylist()
        assert [row["number"] for row in found] == [*range(50)]


@on_a_loop
async def test_covey_goes_away_and_comes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with site(tmp_path) as at:
        async with at.bridge() as counts:
            await at.overlay.crash("b1")
            await asyncio.gather(*(publish(at.plant, "oven", number=number) for number in range(100)))
            await until(lambda: counts.received > 0)
            await at.overlay.start("b1")
            readings = await at.client.subscribe(READING, "")
            await until(lambda: counts.published == 100)
            await publish(at.plant, "oven", number=100)
            await readings.read(until=lambda event: event["number"] == 100)
        assert (counts.published, counts.dropped, counts.missed) == (101, 0, 0)
    assert "the connection to Covey's broker is lost" in caplog.text


@on_a_loop
async def test_messages_of_qos_1_beyond_the_bound_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_session, "MOST_MESSAGES", 10)  # mosquitto has 20 under way
    async with site(tmp_path) as at:
        proxy = await at.overlay.proxy("b1")
        async with at.bridge(broker=proxy.address) as counts:
            readings = await at.client.subscribe("Reading", "")
            proxy.freeze()
            await asyncio.gather(*(publish(at.plant, "oven", number=number) for number in range(40)))
            await until(lambda: counts.received > 0)
            proxy.thaw()
            found = (await readings.read(until=lambda event: event["number"] == 39)).to_pylist()
        assert list(dict.fromkeys(row["number"] for row in found)) == [*range(40)]  # in order, some twice
        assert counts.dropped == 0


class OpenConnection:
    """A connection to an MQTT broker that lasts, and delivers what the test lets through."""

    def __init__(self, arrived: Callable[[Incoming], None]) -> None:
        self._arrived = arrived
        self.abandoned = 0

    async def open(self, _: object) -> None:
        pass

    async def lost(self) -> str:
        await asyncio.Event().wait()
        return ""

    async def close(self) -> None:
        pass

    def abandon(self) -> None:
        self.abandoned += 1

    def brings(self, mid: int, qos: int, topic: str = "a") -> None:
        self._arrived(Incoming(self, mid, qos, topic, b"", is_marked=False, filters=frozenset()))


@asynccontextmanager
async def open_session(
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[tuple[mqtt_session.MqttSession, OpenConnection]]:
    connections: list[OpenConnection] = []

    def connect(*_: Any, arrived: Callable[[Incoming], None], **__: Any) -> OpenConnection:
        connections.append(OpenConnection(arrived))
        return connections[-1]

    monkeypatch.setattr(mqtt_session, "Connection", connect)
    async with mqtt_session.MqttSession({}, 0, {}, Counts()) as session:
        (connection,) = connections
        yield session, connection


@on_a_loop
async def test_a_stream_of_qos_0_does_not_keep_what_was_left_of_qos_1_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mqtt_session, "MOST_MESSAGES", 3)
    monkeypatch.setattr(mqtt_session, "_BATCH", 2)
    async with open_session(monkeypatch) as (session, connection):
        for mid in range(4):  # the last is left
            connection.brings(mid, 1)
        for batch in ([0, 1], [2, 0], [0]):
            assert not connection.abandoned
            assert [message.mid for message in await session.received()] == batch
            connection.brings(0, 0)
            connection.brings(4, 1)
        assert connection.abandoned == 1


@pytest.mark.parametrize(
    ("bound", "most", "topic", "taken"),
    [("MOST_MESSAGES", 10, "a", 10), ("MOST_BYTES", 1_000, "\u00f6" * 200, 2)],
    ids=["messages", "bytes, those of topics among them"],
)
@on_a_loop
async def test_messages_of_qos_0_beyond_a_bound_are_dropped(
    bound: str, most: int, topic: str, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_session, bound, most)
    async with open_session(monkeypatch) as (session, connection):
        for _ in range(2):
            for _ in range(taken + 3):
                connection.brings(0, 0, topic)
            assert len(await session.received()) == taken
        assert session.counts.dropped == 6


@on_a_loop
async def test_what_waits_while_mqtt_is_away_has_a_bound(tmp_path: Path) -> None:
    async with Brokers(sessions=SessionLimits(queue_events=500)) as overlay:
        server = Mosquitto(tmp_path)
        await server.start()
        async with (
            bridge(tmp_path / "m.yaml", overlay.address("b1"), mapping(server.port)) as counts,
            Client(overlay.address("b1")) as client,
        ):
            await client.advertise(READING)
            await server.stop()
            rows = [{"sensor": "x" * 1_000, "celsius": 99.0, "number": n} for n in range(100)]
            published = 0
            while not counts.missed:  # beyond the window of the client, and the queue at the broker
                await client.publish_batch("Reading", rows, confirm=True)
                published += 100
            await server.start()
            await overlay.quiet()
            await until(lambda: counts.sent + counts.missed == published)
        assert counts.sent == counts.delivered
        await server.stop()


def has(counts: Counts, number: int) -> bool:
    return counts.published > number


@on_a_loop
async def test_a_connection_that_breaks_is_opened_again(tmp_path: Path) -> None:
    async with Mosquitto(tmp_path) as server, Brokers() as overlay:
        proxy, line = [await Proxy(server.port).start() for _ in range(2)]
        async with bridge(tmp_path / "m.yaml", overlay.address("b1"), mapping(proxy.port)) as counts:
            for number in range(3):
                async with peer(line) as plant:
                    await publish(plant, "oven", number=number)
                    line.cut()  # a peer that goes away
                await until(partial(has, counts, number))
                proxy.cut()
        await proxy.stop()
        await line.stop()
        assert counts.malformed == 0


@on_a_loop
async def test_an_mqtt_broker_that_does_not_answer_delays_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_connection, "CLOSE_S", 0.05)
    asked = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        options = {
            "hostname": "127.0.0.1",
            "port": server.sockets[0].getsockname()[1],
            "identifier": "bridge",
        }
        connection = Connection(options, 0, clean=False, arrived=Mock(), published=Mock())
        opening = asyncio.create_task(connection.open({}))
        await asked.wait()
        opening.cancel()
        await asyncio.wait({opening})
        async with asyncio.timeout(5):  # aiomqtt has 10 s
            await connection.close()


@on_a_loop
async def test_what_the_bridge_refuses_to_begin_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Brokers() as overlay:
        address = overlay.address("b1")
        with monkeypatch.context() as patch:
            patch.setattr(mqtt_session, "CONNECT_S", 1.0)
            with pytest.raises(ConnectError, match=r"no MQTT broker serves .* at localhost:1: .*refused"):
                async with bridge(tmp_path / "m.yaml", address, mapping(1)):
                    pass
        unknown = mapping(1).replace("  Reading: {sensor: string, celsius: float64, number: int64}\n", "")
        with pytest.raises(RefusedError, match=r"Reading.*may declare it in event_types"):
            async with bridge(tmp_path / "m.yaml", address, unknown):
                pass
        async with Mosquitto(tmp_path) as server, bridge(tmp_path / "m.yaml", address, mapping(server.port)):
            with pytest.raises(ConnectError, match="a client named 'bridge' is connected already"):
                async with bridge(tmp_path / "m.yaml", address, mapping(server.port)):
                    pass


@on_a_loop
async def test_an_mqtt_broker_with_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses larger messages, and connections without a password."""
    limited = Mosquitto(tmp_path, "max_packet_size 2000")
    async with limited as server, Brokers() as overlay, peer(server, "alarms/#") as plant:
        async with (
            bridge(tmp_path / "m.yaml", overlay.address("b1"), mapping(server.port)) as counts,
            Client(overlay.address("b1")) as client,
        ):
            await client.advertise(READING)
            await client.publish("Reading", sensor="x" * 3_000, celsius=99.0)
            await client.publish("Reading", sensor="y", celsius=99.0)
            assert await messages(plant, 1) == [("alarms/y", {"celsius": 99.0})]
            await until(lambda: (counts.rejected, counts.sent) == (1, 1))
        monkeypatch.setattr(mqtt_session, "CONNECT_S", 1.0)
        (tmp_path / "secret").write_text("wrong")
        closed = Mosquitto(tmp_path, "allow_anonymous false")
        async with closed:
            text = mapping(closed.port).replace('"}', '", username: me, password_file: secret}', 1)
            with pytest.raises(ConnectError, match=r"[Nn]ot auth"):
                async with bridge(tmp_path / "m.yaml", overlay.address("b1"), text):
                    pass
