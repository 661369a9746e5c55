"""`overflow` conflate, and the maximal rate of a subscription."""

import importlib
import json
import weakref
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from gateways import Browser, EventSource, sent, served
from hypothesis import given
from hypothesis import strategies as st
from running import QUOTE, on_a_loop

from covey.gateway import Limits
from covey.gateway.browser_queue import BrowserQueue, conflate, rate_gate
from covey.gateway.encoding import EncodedBatch, Frame
from covey.gateway.limits import Overflow
from covey.matcher import EventBatch, EventType

SHIP = EventType("Ship", {"id": "string", "x": "int64"}, key="id")


def frame(first: int, ids: list[str | None], subscription: int = 1, form: str = "json") -> Frame:
    rows = [{"id": each, "x": first + i} for i, each in enumerate(ids)]
    batch = EventBatch.from_pylist(SHIP, rows, publisher="p", first_sequence=first)
    return EncodedBatch(batch, False).frame(np.arange(len(ids)), subscription, form, "id")


def events_of(frame: Frame) -> list[dict[str, Any]]:
    if isinstance(frame.data, str):
        fields = json.loads(frame.data)
        events = fields["events"]
    else:
        length = int.from_bytes(frame.data[:4], "little")
        fields = json.loads(frame.data[4 : 4 + length])
        with pa.ipc.open_stream(frame.data[4 + length :]) as stream:
            events = stream.read_all().to_pylist()
    assert fields["sequences"] == [each["x"] for each in events]
    assert fields["subscription"] == frame.subscription
    assert len(events) == frame.event_count == len(frame.keys or ())
    return list(events)


class Text(str):
    """Text whose end can be seen."""


@on_a_loop
async def test_what_is_kept_no_more_keeps_neither_text_nor_keys() -> None:
    """A stream's gaps need up to 10,000 frames."""
    queue, kept = BrowserQueue(Overflow.CONFLATE, Limits(window_bytes=1), acknowledges=False), []
    for number in range(3):
        each = frame(number, [str(number)])
        each = each._replace(data=Text(each.data))
        kept.append([weakref.ref(each.data), weakref.ref(each.keys)])
        queue.put(each)
        del each
        await queue.next()
    assert [[part() is None for part in parts] for parts in kept] == [[True] * 2] * 2 + [[False] * 2]


contents = st.lists(
    st.tuples(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=5), st.integers(1, 2)),
    max_size=8,
)


@given(contents, st.sampled_from(["json", "arrow"]))
def test_frames_keep_the_last_of_each_key_and_subscription(content: Any, form: str) -> None:
    frames, first = [], 0
    for ids, subscription in content:
        frames.append(frame(first, ids, subscription, form))
        first += len(ids)
    every = [(each.subscription, event["id"], event["x"]) for each in frames for event in events_of(each)]
    last = {(subscription, key): x for subscription, key, x in every}
    expected = [x for subscription, key, x in every if key is None or last[subscription, key] == x]
    kept, lost = conflate(frames)
    assert [event["x"] for each in kept for event in events_of(each)] == expected
    assert sum(count for _, count in lost) == len(every) - len(expected)
    assert conflate(kept) == (kept, [])


@on_a_loop
async def test_a_slow_browser_keeps_the_last_event_of_each_key() -> None:
    queue = BrowserQueue(Overflow.CONFLATE, Limits(queue_bytes=10_000), acknowledges=True)
    for first in range(0, 5_000, 10):
        queue.put(frame(first, [str(each % 20) for each in range(first, first + 10)]))
        assert queue.pending_bytes < 10_000
    got, gaps = [], []
    for each in await sent(queue):
        gaps += [each.gap] if each.gap is not None else []
        got += events_of(each) if each.event_count else []
    assert [event["x"] for event in got][-20:] == [*range(4_980, 5_000)]
    assert sum(gap.count for gap in gaps) + len(got) == 5_000
    assert all(gap.conflated for gap in gaps)
    assert (queue.dropped, queue.conflated) == (0, 5_000 - len(got))


@on_a_loop
async def test_keys_that_are_too_many_are_lost_and_told() -> None:
    queue = BrowserQueue(Overflow.CONFLATE, Limits(queue_bytes=4_000), acknowledges=True)
    for first in range(200):
        queue.put(frame(first, [str(first)]))
    gap, notice, *left = await sent(queue)
    assert (gap.gap.conflated, gap.gap.count) == (False, queue.dropped)
    assert json.loads(notice.data)["policy"] == "conflate"
    assert [event["x"] for each in left for event in events_of(each)] == [*range(queue.dropped, 200)]


@on_a_loop
async def test_keys_that_nearly_fill_a_queue_are_not_looked_for_with_every_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []
    module = importlib.import_module("covey.gateway.browser_queue")
    monkeypatch.setattr(module, "conflate", lambda frames: calls.append(len(frames)) or conflate(frames))
    size = frame(10_000, ["1000"]).size
    queue = BrowserQueue(Overflow.CONFLATE, Limits(queue_bytes=500 * size), acknowledges=True)
    for each in range(499):
        queue.put(frame(10_000 + each, [str(1_000 + each)]))
    calls.clear()
    for each in range(1_000):
        queue.put(frame(11_000 + each, [str(1_000 + each % 499)]))
        assert queue.pending_bytes <= 500 * size
    assert 1 < len(calls) <= 2 + 1_000 // 124
    assert [event["x"] for each in (await sent(queue))[-9:] for event in events_of(each)] == [
        *range(11_991, 12_000)
    ]


def test_keys_of_another_kind_are_other_keys() -> None:
    """The type is dropped and declared again while its frames wait."""
    other = EventType("Ship", {"id": "int64", "x": "int64"}, key="id")
    rows = [{"id": 7, "x": 1}, {"id": 8, "x": 2}]
    batch = EventBatch.from_pylist(other, rows, publisher="p", first_sequence=1)
    between = EncodedBatch(batch, False).frame(np.arange(2), 1, "json", "id")
    kept, lost = conflate([frame(0, ["7"]), between, frame(3, ["8", "7"])])
    assert [event["x"] for each in kept for event in events_of(each)] == [1, 2, 3, 4]
    assert sum(count for _, count in lost) == 1


arrivals_of = st.lists(st.tuples(st.floats(0, 1), st.sampled_from("abc")), max_size=60)


@given(arrivals_of, st.sampled_from([2.0, 10.0]))
def test_a_key_has_no_more_than_its_rate(arrivals: list[tuple[float, str]], rate: float) -> None:
    """By the test's clock, every event leaves, or is superseded, within the pause."""
    gate, now, left, lost, came = rate_gate(rate), 0.0, [], 0, []
    for number, (wait, key) in enumerate(arrivals):
        until = now + wait
        while (due := gate.due_s()) is not None and due <= until:
            left += [(due, event["id"], event["x"]) for each in gate.take(due) for event in events_of(each)]
        now = until
        gate.put(frame(number, [key]))
        came.append((now, key))
        left += [(now, event["id"], event["x"]) for each in gate.take(now) for event in events_of(each)]
    while (due := gate.due_s()) is not None:
        left += [(due, event["id"], event["x"]) for each in gate.take(due) for event in events_of(each)]
    lost = sum(count for _, count in gate.lost)
    assert len(left) + lost == len(arrivals)
    newest: dict[str, int] = {}
    for at, key, number in left:
        assert at - came[number][0] <= 1 / rate + 1e-9
        assert newest.get(key, -1) < number
        newest[key] = number
    assert newest == {key: number for number, (_, key) in enumerate(arrivals)}
    for key in newest:
        times = [at for at, each, _ in left if each == key]
        assert all(later - earlier >= 1 / rate - 1e-9 for earlier, later in pairwise(times))


@on_a_loop
async def test_browsers_that_want_the_newest() -> None:
    limits = Limits(queue_bytes=20_000, window_bytes=4_000)
    async with (
        served(SHIP, QUOTE, limits=limits) as (exchange, address),
        Browser(address, overflow="conflate") as slow,
        Browser(address) as paced,
        EventSource(address, "/events/Ship", max_rate="0.01") as source,
    ):
        assert source.status == 200
        for answer in (
            await slow.request("subscribe", subscription=1, type="Quote"),
            await paced.request("subscribe", subscription=1, type="Quote", max_rate=5.0),
        ):
            assert (answer["kind"], answer["status"]) == ("error", "FAILED_PRECONDITION")
            assert "and Quote has no key: expected an event type with one" in answer["message"]
        for rate in (0, -1, 1e9, "x"):
            error = await paced.request("subscribe", subscription=1, type="Ship", max_rate=rate)
            assert "subscribe: max_rate is" in error["message"]
        await slow.request("subscribe", subscription=1, type="Ship")
        wanted = {"type": "Ship", "filter": "x >= $low", "values": {"low": 0}}
        await paced.request("subscribe", subscription=1, max_rate=0.01, **wanted)
        for first in range(0, 3_000, 30):
            rows = [{"id": str(number % 10), "x": number} for number in range(first, first + 30)]
            await exchange.publish_batch("Ship", rows, confirm=True)
        got, lost, newest = 0, 0, {}
        while got + lost < 3_000:
            message = await slow.next()
            await slow.say("acknowledge", received=slow.received)
            if message["kind"] == "events":
                got += len(message["events"])
                newest |= {event["id"]: event["x"] for event in message["events"]}
            else:
                assert (message["kind"], message["cause"]) == ("gap", "conflated")
                lost += message["count"]
        assert newest == {str(number % 10): number for number in range(2_990, 3_000)}
        assert got < 1_500
        # The first batch has left at once; the rest waits for 100 s, or for an update.
        first_events = (await paced.until("events"))["events"]
        assert len(first_events) == 10
        assert [event["x"] for event in first_events] == [*range(20, 30)]
        await paced.request("update", subscription=1, values={"low": 100_000})
        events = [each for each in paced.other if each["kind"] == "events"]
        assert [event["x"] for each in events for event in each["events"]] == [*range(2_990, 3_000)]
        gaps = [each for each in paced.other if each["kind"] == "gap"]
        assert sum(gap["count"] for gap in gaps) == 3_000 - 20
        assert {gap["cause"] for gap in gaps} == {"conflated"}
        await source.next()
        kinds = [(await source.next())["kind"] for _ in range(2)]
        assert kinds == ["gap", "events"]
