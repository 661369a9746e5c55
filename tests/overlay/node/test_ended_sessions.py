"""An ended session is freed by reference counts: in a broker a collection of old objects comes after a
hundred million new ones (`overlay/node/main.py`)."""

import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from running import QUOTE, Brokers, Proxy, on_a_loop, until

from covey.matcher import EventType
from covey.matcher.errors import CoveyError
from covey.overlay import Client
from covey.overlay.core.endpoint.limits import SessionLimits
from covey.overlay.transport.address import CallError
from covey.overlay.transport.channel import Channel
from covey.overlay.transport.packets import CONNECT, DESCRIBE
from covey.proto import broker_pb2 as pb

OWN = EventType("Own", {"firm": "string", "number": "int64"})


@contextmanager
def cyclic_garbage(kinds: list[str]) -> Iterator[None]:
    """Append the types of Covey's objects that only a garbage collection frees after the block."""
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found = {f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage}
        kinds += sorted(name for name in found if name.startswith("covey."))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def _use(client: Client, publisher: Client) -> None:
    """Subscribe, move, publish and receive single events, of a type of its own too."""
    await client.advertise(OWN)
    moving = await client.subscribe(QUOTE, "price < $top", values={"top": 5.0})
    own = await client.subscribe(OWN, 'firm == "A" or (number > 3 and firm != "B")')
    reading, reading_own = moving.batches(), own.batches()
    for top in (10.0, 20.0):
        await moving.update(values={"top": top})
        await publisher.publish("Quote", firm="IBM", price=1.0, volume=1)
        await anext(reading)
    await client.publish("Own", firm="A", number=7)
    await anext(reading_own)


async def _goodbye(client: Client, proxy: Proxy) -> None:
    await client.close()


async def _lost(client: Client, proxy: Proxy) -> None:
    """The broker gets no more bytes, and ends the session at the end of its lease."""
    proxy.refusing = True
    proxy.cut()
    with suppress(CoveyError):
        await client.close(grace=0.0)


async def _refused(address: str) -> None:
    async with Channel(address) as channel:
        call = channel.call(CONNECT)
        call.send(b"no hello")
        await call.ended()
        for request in (pb.DescribeRequest(type_name="Unknown").SerializeToString(), b"no request"):
            with suppress(CallError):
                await channel.unary(DESCRIBE.path, request)


def _sessions(brokers: Brokers) -> int:
    return sum(name.startswith("client/") for node in brokers.nodes.values() for name in node.queues)


@pytest.mark.parametrize("end", [_goodbye, _lost])
@on_a_loop
async def test_a_session_that_has_ended_leaves_nothing_to_the_garbage_collector(
    end: Callable[[Client, Proxy], Awaitable[None]],
) -> None:
    async with (
        Brokers([("b1", "b2")], sessions=SessionLimits(lease_s=0.5)) as brokers,
        Client(brokers.address("b1")) as publisher,
    ):
        await publisher.advertise(QUOTE)
        clients = []  # what they leave when they go is not asked here

        async def visit() -> None:
            proxy = await brokers.proxy("b2")
            client = Client(proxy.address)
            clients.append(client)
            await client.open()
            await _use(client, publisher)
            await end(client, proxy)
            await _refused(brokers.address("b2"))
            await until(lambda: _sessions(brokers) == 1, "the session has ended")
            await brokers.quiet()

        await visit()  # what is made once is made
        kinds: list[str] = []
        with cyclic_garbage(kinds):
            await visit()
        assert kinds == []
