"""Views as server-sent events: the content first; resumed and restarted streams."""

from typing import Any

from gateways import EventSource, gateway_to, no_session_left, with_short
from running import Brokers, on_a_loop

from covey.gateway import Limits
from covey.matcher import EventType
from covey.overlay import Client

SHIP = EventType("Ship", {"id": "int64", "x": "int64"}, key="id")
POSITIVE = {"filter": "x >= $least", "values": '{"least": 0}'}


def ships(*places: tuple[int, int]) -> list[dict[str, object]]:
    return [{"id": ship, "x": x} for ship, x in places]


class Map:
    """A page's ships inside a view, cleared by a welcome that has not resumed."""

    def __init__(self, source: EventSource) -> None:
        self.inside: dict[int, int] = {}
        self.kinds: list[str] = []
        self._source = source

    async def until(self, kind: str) -> dict[str, Any]:
        while True:
            message = await self._source.next()
            if message["kind"] == "welcome" and not message["resumed"]:
                self.inside.clear()
            elif message["kind"] == "changes":
                for change, event in zip(message["changes"], message["events"], strict=True):
                    assert (event["id"] in self.inside) is (change != "enter")
                    self.kinds.append(change)
                    if change == "leave":
                        del self.inside[event["id"]]
                    else:
                        self.inside[event["id"]] = event["x"]
            if message["kind"] == kind:
                return message

    async def has(self, *places: tuple[int, int]) -> None:
        while self.inside != dict(places):
            await self.until("changes")


@on_a_loop
async def test_a_stream_goes_on_behind_its_last_change() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as exchange:
        await exchange.advertise(SHIP)
        await exchange.publish_batch("Ship", ships((1, 1), (2, 2), (3, -3)), confirm=True)
        async with (
            gateway_to(overlay.address("b1")) as address,
            EventSource(address, "/views/Ship", leave="x >= $least - 5", **POSITIVE) as source,
        ):
            drawn = Map(source)
            answer = await drawn.until("answer")
            assert (answer["key"], drawn.inside) == ("id", {1: 1, 2: 2})
            await exchange.publish_batch("Ship", ships((1, -1), (2, -9), (4, 4)), confirm=True)
            await drawn.has((1, -1), (4, 4))
            source.writer.transport.abort()
            await exchange.publish_batch("Ship", ships((1, 7), (3, 3), (4, -8)), confirm=True)
            await source.open()
            assert (await drawn.until("welcome"))["resumed"]
            await drawn.has((1, 7), (3, 3))
            await exchange.publish_batch("Ship", ships((1, -6)), confirm=True)
            await drawn.has((3, 3))
            assert sorted(drawn.kinds) == ["change"] * 2 + ["enter"] * 4 + ["leave"] * 3


@on_a_loop
async def test_a_stream_that_cannot_go_on_starts_again_with_what_is_inside() -> None:
    limits = Limits(window_bytes=2_000)
    async with Brokers() as overlay, Client(overlay.address("b1")) as exchange:
        await exchange.advertise(SHIP)
        await exchange.publish_batch("Ship", ships((1, 0), (2, 0)), confirm=True)
        async with (
            gateway_to(overlay.address("b1"), limits=limits) as address,
            EventSource(address, "/views/Ship", **POSITIVE) as source,
        ):
            drawn = Map(source)
            await drawn.until("answer")
            last_id = source.last_id
            for x in range(1, 41):
                await exchange.publish_batch("Ship", ships((1, x)), confirm=True)
                await drawn.has((1, x), (2, 0))
            source.writer.transport.abort()
            await exchange.publish_batch("Ship", ships((2, -1), (3, 3)), confirm=True)
            source.last_id = last_id  # as if all the others had been in flight: the window has few of them
            await source.open()
            assert not (await drawn.until("welcome"))["resumed"]
            await drawn.until("answer")
            assert drawn.inside == {1: 40, 3: 3}
            counts = EventSource(address, "/health")
            await counts.open()
            assert (await counts.body())["sessions"] == 1  # the earlier one does not wait for its lease
            counts.writer.close()
            with_short(limits, lease_s=0)
            source.writer.transport.abort()
            await no_session_left(address)
            await source.open()
            assert not (await drawn.until("welcome"))["resumed"]
            await drawn.until("answer")
            assert drawn.inside == {1: 40, 3: 3}


@on_a_loop
async def test_more_is_inside_than_a_queue_holds() -> None:
    """A view with too many keys ends with its stream, which then does not restart."""
    many = [(ship, ship) for ship in range(5_000)]
    async with Brokers() as overlay, Client(overlay.address("b1")) as exchange:
        await exchange.advertise(SHIP)
        await exchange.publish_batch("Ship", ships(*many), confirm=True)
        async with (
            gateway_to(overlay.address("b1"), limits=Limits(max_view_keys=5_000)) as address,
            EventSource(address, "/views/Ship") as source,
        ):
            drawn = Map(source)
            await drawn.until("answer")
            assert drawn.inside == dict(many)
            await exchange.publish_batch("Ship", ships((5_000, 1)), confirm=True)
            error = await drawn.until("error")
            assert error["status"] == "RESOURCE_EXHAUSTED"
            assert error["message"].startswith("the view has ended, max_view_keys is 5000: ")
            await source.reader.readuntil(b"0\r\n\r\n")  # the last chunk: the stream has ended
            await source.open()
            assert (source.status, (await source.body())["status"]) == (429, "RESOURCE_EXHAUSTED")
