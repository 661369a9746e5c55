"""Views of durable types on real brokers: kill -9 of the publishers' broker; the log that a broker reads
again."""

import asyncio
from pathlib import Path

import pytest
from running import on_a_loop

from covey.matcher import EventBatch, EventType
from covey.matcher.errors import SubscriptionError
from covey.overlay import Client, View
from covey.overlay.core.endpoint.broker_endpoint import BrokerEndpoint
from covey.overlay.core.endpoint.connections import NEVER_LINKED_NS
from covey.overlay.core.endpoint.recovery import CLIENTS_NS, NS_PER_S
from covey.overlay.core.endpoint.repairing import Repairing
from covey.overlay.core.endpoint.state import EndpointOptions
from covey.overlay.core.link.link import Link
from covey.overlay.core.messages import ENDED, KEYS, Message, Receiver
from covey.overlay.core.repair.uplink import UplinkRule
from covey.overlay.core.routing.broker import Broker
from covey.overlay.node import broker_storage
from covey.overlay.node.broker_storage import BrokerStorage, Retention
from covey.overlay.node.state_store import StateStore
from covey.overlay.storage.files import OsFiles
from covey.sim.experiments.local_overlay import LocalOverlay, chain

VEHICLE = EventType("Vehicle", {"id": "string", "x": "float64"}, key="id")
NOBODY = Receiver("broker/b2")


async def told(view: View) -> tuple[str, str, float]:
    change = await asyncio.wait_for(anext(view), 60)
    return change.kind, change.event["id"], change.event["x"]


@on_a_loop
async def test_keys_stay_in_views_over_kill_of_the_broker_of_their_publisher(local_brokers: None) -> None:
    async with (
        LocalOverlay(chain(2), event_types=[VEHICLE], durable=["Vehicle"], compiled=False) as overlay,
        Client(overlay.addresses["b1"], "feed") as feed,
        Client(overlay.addresses["b2"], "reader") as reader,
    ):
        await feed.advertise(VEHICLE)
        for key, x in ("near", 3.0), ("far", 50.0), ("near", 5.0), ("inside", 1.0):
            await feed.publish("Vehicle", id=key, x=x, confirm=True)
        view = await reader.view("Vehicle", "x between $low and $high", low=0, high=10)
        entered = sorted([await told(view), await told(view)])
        assert entered == [("enter", "inside", 1.0), ("enter", "near", 5.0)]
        await overlay.kill("b1")
        await overlay.start("b1")
        late = await asyncio.wait_for(reader.view("Vehicle", "x >= $least", least=2), 60)
        entered = sorted([await told(late), await told(late)])
        assert entered == [("enter", "far", 50.0), ("enter", "near", 5.0)]
        await feed.publish("Vehicle", id="near", x=6.0, confirm=True)
        assert await told(view) == ("change", "near", 6.0)  # it has not left in between
        await feed.unadvertise("Vehicle")
        left = sorted([await told(view), await told(view)])
        assert left == [("leave", "inside", 1.0), ("leave", "near", 6.0)]


@on_a_loop
async def test_a_durable_session_has_no_views(local_brokers: None) -> None:
    async with (
        LocalOverlay(chain(1), event_types=[VEHICLE], durable=["Vehicle"], compiled=False) as overlay,
        Client(overlay.addresses["b1"], "reader", durable=True) as reader,
    ):
        with pytest.raises(SubscriptionError, match="durable client reader: expected one that is not"):
            await reader.view("Vehicle", "x > 0")


# --- the log ------------------------------------------------------------------------------------------------


def opened(folder: Path) -> BrokerStorage:
    return BrokerStorage(
        {"Vehicle": Retention()},
        lambda name: OsFiles(folder / name, create=True),
        StateStore(":memory:"),
        salt=7,
        now_ns=lambda: 1_000,
        segment_bytes=1_024,
    )


def batch(number: int) -> EventBatch:
    rows = [{"id": f"v{number}", "x": float(number)}]
    return EventBatch.from_pylist(VEHICLE, rows, publisher="feed", first_sequence=number)


def synced(storage: BrokerStorage) -> None:
    storage.begin_sync()
    storage.run_sync()
    storage.end_sync()


def test_a_storage_returns_what_was_published_here_and_what_has_left(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    feed = Receiver(f"{KEYS}client/feed")
    storage.append(batch(1), [NOBODY, feed])
    storage.append(batch(2), [NOBODY])
    storage.append(batch(1), [Receiver(f"{ENDED}client/feed")])
    storage.append(batch(3), [feed])
    storage.append(batch(4), [feed])
    storage.close()
    storage = opened(tmp_path)
    found = [
        (each.interface, [row["id"] for row in each.batch.to_pylist()], each.stored_ns.tolist(), each.ended)
        for each in storage.published("Vehicle")
    ]
    assert found == [
        ("client/feed", ["v1"], [1_000], False),
        ("client/feed", ["v1"], [1_000], True),
        ("client/feed", ["v3", "v4"], [1_000, 1_000], False),
    ]
    assert [len(each) for each in storage.batches("Vehicle")] == [1, 1, 1, 1]
    assert storage.watermarks("Vehicle") == {"feed": 4}
    storage.close()


@pytest.mark.parametrize("published", [True, False])
def test_the_newest_of_a_log_stay_for_views_where_they_are_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: bool
) -> None:
    monkeypatch.setattr(broker_storage, "RESTORED_BYTES", 3_000)
    storage = opened(tmp_path)
    receivers = [NOBODY, Receiver(f"{KEYS}client/feed")] if published else [NOBODY]
    for number in range(60):
        storage.append(batch(number), receivers)
        synced(storage)
    storage.trim("Vehicle", 60)
    (state,) = storage.log_states()
    storage.close()
    assert 3_000 <= state.bytes <= 4_500 if published else state.segments == 1
    storage = opened(tmp_path)
    found = [row["id"] for each in storage.published("Vehicle") for row in each.batch.to_pylist()]
    storage.close()
    assert found == ([f"v{number}" for number in range(60 - len(found), 60)] if published else [])
    assert bool(found) is published


def test_whom_a_broker_waits_for_has_its_time_once_the_log_is_read(tmp_path: Path) -> None:
    """Clients and publishers of restored keys had none while some hundred MiB were read."""
    storage = opened(tmp_path)
    storage.append(batch(1), [Receiver(KEYS + "client/feed")])
    storage.save_awaited(["client/reader"], [])
    core = Broker("b1", durable=["Vehicle"])
    warnings: list[str] = []
    endpoint: BrokerEndpoint[Message] = BrokerEndpoint(
        core,
        ["broker/b2"],
        EndpointOptions(),
        new_link=Link,
        life=1,
        decode=lambda message, _: message,
        warn=lambda interface, _, sentence: warnings.append(f"{interface} {sentence}"),
        now_ns=0,
        storage=storage,
    )
    rule = UplinkRule(["b1", "b2"], [("b1", "b2")])
    repairing = Repairing(endpoint, "b1", rule, repair_after_ns=NEVER_LINKED_NS)
    lease_ns, read_ns = round(endpoint.options.sessions.lease_s * NS_PER_S), 60 * NS_PER_S
    endpoint.opened(read_ns)
    endpoint.handle_timer(read_ns)
    repairing.advance(read_ns + NEVER_LINKED_NS - 1)
    assert (list(endpoint.neighbours), warnings) == (["broker/b2"], [])
    endpoint.handle_timer(read_ns + CLIENTS_NS - 1)
    assert core.tables.awaiting_clients
    endpoint.handle_timer(read_ns + CLIENTS_NS)
    assert not core.tables.awaiting_clients
    endpoint.handle_timer(read_ns + lease_ns - 1)
    assert core.tables.types["Vehicle"].restored
    endpoint.handle_timer(read_ns + lease_ns)
    assert "Vehicle" not in core.tables.types
