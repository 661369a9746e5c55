"""A broker is ready while every neighbour is linked and synchronised; it serves in any case."""

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from running import Brokers, on_a_loop, until

from covey.cli.inspect import _check, _state
from covey.overlay.core.endpoint import recovery
from covey.overlay.node import health
from covey.overlay.node.state import missing


async def health_of(address: str) -> list[str]:
    return await _check(address, ("", "covey.ready"), 10)


@on_a_loop
async def test_a_broker_without_its_neighbour_serves_and_is_not_ready() -> None:
    async with Brokers([("b1", "b2"), ("b2", "b3")]) as brokers:
        names = ("b1", "b2", "b3")
        await until(lambda: not any(missing(brokers.nodes[name]) for name in names), "all are ready")
        for name in names:
            assert await health_of(brokers.address(name)) == ["SERVING", "SERVING"]
        await brokers.crash("b3")
        await until(lambda: bool(missing(brokers.nodes["b2"])), "b2 has lost its link")
        assert await health_of(brokers.address("b2")) == ["SERVING", "NOT_SERVING"]
        assert await health_of(brokers.address("b1")) == ["SERVING", "SERVING"]
        (each,) = (await _state(brokers.address("b2"), 10))["missing"]
        assert (each["what"], each["why"]) == ("broker/b3", "not connected")
        assert each["seconds"] >= 0
        await brokers.start("b3")
        await until(lambda: not missing(brokers.nodes["b2"]), "b2 is ready again")
        assert (await _state(brokers.address("b2"), 10))["missing"] == []


@on_a_loop
async def test_a_link_is_not_synchronised_before_the_interest_behind_it_has_arrived() -> None:
    """b2 has had nothing from b3 since its start, so it has not sent b1 everything."""
    async with Brokers([("b1", "b2"), ("b2", "b3")]).unlinked("b1", "b2") as brokers:
        nodes = brokers.nodes
        await until(lambda: nodes["b1"].queues["broker/b2"].connected, "b1 and b2 are linked")
        (first,) = missing(nodes["b1"])
        assert (first.what, first.why) == ("broker/b2", "not synchronised: its interest has not arrived")
        assert [each.what for each in missing(nodes["b2"])][-1] == "broker/b3"
        await brokers.start("b3")
        await until(lambda: not any(missing(node) for node in nodes.values()), "all are ready")


@on_a_loop
async def test_a_restarted_broker_is_not_ready_while_it_takes_no_events() -> None:
    async with Brokers([("b1", "b2")]) as brokers:
        await brokers.crash("b1")
        await brokers.start("b1")
        await until(lambda: brokers.nodes["b1"].endpoint.recovering, "b1 recovers")
        assert missing(brokers.nodes["b1"])[0].what == "events"
        await until(lambda: not missing(brokers.nodes["b1"]), "b1 is ready", 3 * recovery.RECOVERY_NS / 1e9)


@on_a_loop
async def test_who_watches_readiness_is_told_of_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_POLL_S", 0.05)
    async with (
        Brokers([("b1", "b2")]) as brokers,
        grpc.aio.insecure_channel(brokers.address("b1")) as channel,
    ):
        await until(lambda: not missing(brokers.nodes["b1"]), "b1 is ready")
        request = health_pb2.HealthCheckRequest(service="covey.ready")
        watch = health_pb2_grpc.HealthStub(channel).Watch(request)
        assert (await asyncio.wait_for(watch.read(), 60)).status == health_pb2.HealthCheckResponse.SERVING
        await brokers.crash("b2")
        reply = await asyncio.wait_for(watch.read(), 60)
        assert reply.status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()


@on_a_loop
async def test_who_watches_the_health_of_a_broker_is_told_that_it_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "_POLL_S", 0.05)
    async with Brokers() as brokers, grpc.aio.insecure_channel(brokers.address("b1")) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await asyncio.wait_for(watch.read(), 60)).status == health_pb2.HealthCheckResponse.SERVING
        stopping = asyncio.create_task(brokers.crash("b1"))
        reply = await asyncio.wait_for(watch.read(), 60)
        assert reply.status == health_pb2.HealthCheckResponse.NOT_SERVING
        await stopping


class Watching:
    """A call of Watch, and its statuses."""

    def __init__(self) -> None:
        self.got: list[int] = []
        self.end = asyncio.Event()

    async def read(self) -> bytes:
        return b""

    def send(self, message: bytes) -> None:
        self.got.append(health_pb2.HealthCheckResponse.FromString(message).status)

    async def ended(self) -> None:
        await self.end.wait()


@on_a_loop
async def test_a_status_is_computed_once_for_all_who_watch_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_POLL_S", 0.05)
    status, computed = health.Status.SERVING, 0

    def current() -> health.Status:
        nonlocal computed
        computed += 1
        return status

    watched = health.Health({"": current})
    watch: Any = watched.handlers()[f"/{health.HEALTH_SERVICE}/Watch"]
    calls = [Watching() for _ in range(50)]
    async with asyncio.TaskGroup() as watching:
        for call in calls:
            watching.create_task(watch(call))
        await asyncio.sleep(0)
        assert [call.got for call in calls] == [[1]] * 50
        assert computed == 1
        status = health.Status.NOT_SERVING
        await until(lambda: all(call.got == [1, 2] for call in calls), "all are sent the change")
        for call in calls:
            call.end.set()
    before = computed
    await asyncio.sleep(0.2)
    assert computed == before  # nobody watches
