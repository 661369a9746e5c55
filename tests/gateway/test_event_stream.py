"""Server-sent events: what an EventSource receives, and where it resumes."""

import json

from gateways import EventSource, gateway_to, no_session_left, served, with_short
from running import QUOTE, free_ports, on_a_loop

from covey.gateway import Limits
from covey.matcher import EventType


def quotes(*prices: float) -> list[dict[str, object]]:
    return [{"firm": "IBM", "price": price} for price in prices]


@on_a_loop
async def test_a_stream_goes_on_behind_its_last_event() -> None:
    async with (
        served(QUOTE) as (exchange, address),
        EventSource(address, "/events/Quote", filter="price < $x", values='{"x": 50}') as source,
    ):
        assert source.status == 200
        assert source.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert not (await source.next())["resumed"]
        seen: list[object] = []
        for turn in range(4):
            first = turn * 10
            await exchange.publish_batch("Quote", quotes(*range(first, first + 5), 99), confirm=True)
            seen += await source.prices(5)
            source.writer.transport.abort()
            await exchange.publish_batch("Quote", quotes(*range(first + 5, first + 10)), confirm=True)
            await source.open()
            assert (await source.next())["resumed"]
        seen += await source.prices(40 - len(seen))
        assert seen == [*range(40)]
        # Another filter is another stream.
        async with EventSource(address, "/events/Quote") as other:
            pass
        other.last_id = source.last_id
        await other.open()
        assert not (await other.next())["resumed"]
        other.writer.close()


@on_a_loop
async def test_what_was_in_flight_and_is_kept_no_more_is_told() -> None:
    limits = Limits(window_bytes=2_000)
    async with (
        served(QUOTE, limits=limits) as (exchange, address),
        EventSource(address, "/events/Quote") as source,
    ):
        await source.next()
        await exchange.publish_batch("Quote", quotes(0), confirm=True)
        assert await source.prices(1) == [0]
        last_id = source.last_id
        for number in range(1, 41):
            await exchange.publish_batch("Quote", quotes(number), confirm=True)
            assert await source.prices(1) == [number]
        source.writer.transport.abort()
        source.last_id = last_id  # as if all the others had been in flight
        await source.open()
        assert (await source.next())["resumed"]
        gap = await source.next()
        assert (gap["kind"], gap["cause"]) == ("gap", "resume")
        assert 1 <= gap["count"] < 40
        assert await source.prices(40 - gap["count"]) == [*range(1 + gap["count"], 41)]


@on_a_loop
async def test_a_stream_begins_anew_behind_the_end_of_its_lease() -> None:
    limits = Limits()
    async with (
        served(QUOTE, limits=limits) as (exchange, address),
        EventSource(address, "/events/Quote") as source,
    ):
        await source.next()
        await exchange.publish_batch("Quote", quotes(0), confirm=True)
        assert await source.prices(1) == [0]
        with_short(limits, lease_s=0)
        source.writer.transport.abort()
        await no_session_left(address)
        await source.open()
        assert not (await source.next())["resumed"]


@on_a_loop
async def test_an_event_source_tries_again_while_the_broker_is_away() -> None:
    """An EventSource reconnects after no HTTP error, so it gets a stream."""
    (port,) = free_ports(1)
    async with gateway_to(f"127.0.0.1:{port}", limits=with_short(Limits(), timeout_s=0.2)) as address:
        source = EventSource(address, "/events/Quote")
        await source.open()
        assert (source.status, (await source.body())["status"]) == (503, "UNAVAILABLE")
        source.writer.close()
        await source.open("Accept: text/event-stream")
        assert source.status == 200
        assert source.headers["content-type"].startswith("text/event-stream")
        text = await source.reader.readexactly(int(source.headers["content-length"]))
        assert text.startswith(b"retry: 5000\ndata: {")
        error = json.loads(text.decode().partition("data: ")[2])
        assert (error["kind"], error["status"]) == ("error", "UNAVAILABLE")
        assert f"127.0.0.1:{port}" in error["message"]
        source.writer.close()
        wrong = EventSource(address, "/events/Quote", filtr="x")
        await wrong.open("Accept: text/event-stream")
        assert wrong.status == 400
        wrong.writer.close()


DEEP = ['{"x": ' + "[" * depth + "]" * depth + "}" for depth in (300, 1_000)]
SHIP = EventType("Ship", {"id": "int64", "x": "int64"}, key="id")


@on_a_loop
async def test_requests_that_are_wrong() -> None:
    async with served(QUOTE, SHIP) as (_, address):
        for path, parameters, status, why in (
            ("/events/Nope", {}, 404, "has no event type 'Nope'"),
            ("/events/Quote", {"filter": "price <"}, 400, "expected a number or a variable after <"),
            ("/events/Quote", {"filtr": "x"}, 400, "events: filtr is unknown: did you mean filter?"),
            ("/events/Quote", {"filtr": ""}, 400, "events: filtr is unknown: did you mean filter?"),
            ("/events/Quote?filter=a&filter=b&", {}, 400, "events: filter is there twice: expected it once"),
            ("/events/Quote", {"values": "{"}, 400, "events: values is '{': expected a JSON object"),
            ("/events/Quote", {"values": "7"}, 400, "events: values is 7: expected"),
            ("/events/Quote", {"overflow": "keep"}, 400, "events: overflow is 'keep': expected one of"),
            ("/events/Quote", {"max_rate": "1"}, 400, "Quote has no key: expected an event type with one"),
            ("/views/Nope", {}, 404, "has no event type 'Nope'"),
            ("/views/Quote", {}, 400, "key"),
            ("/views/Ship", {"overflow": "block"}, 400, "view: overflow is unknown: expected one of"),
            ("/views/Ship", {"values": "7"}, 400, "view: values is 7: expected"),
            ("/views/Ship", {"filter": "x > 1", "leave": "x > 2"}, 400, "leave 'x > 2': expected a filter"),
            *(
                (path, {"filter": "x > $x", "values": values}, 400, "")
                for path in ("/events/Ship", "/views/Ship")
                for values in DEEP
            ),
        ):
            async with EventSource(address, path, **parameters) as source:
                body = await source.body()
                assert (source.status, body["kind"]) == (status, "error")
                assert why in body["message"]
        async with EventSource(address, "/health") as counts:
            assert (await counts.body())["sessions"] == 0
