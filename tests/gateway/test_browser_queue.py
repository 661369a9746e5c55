"""The queue of one browser: bounds, policies, and repetition on a new connection."""

import asyncio
import json
from typing import Any

import pytest
from gateways import sent
from hypothesis import given
from hypothesis import strategies as st
from running import on_a_loop

from covey.gateway.browser_queue import BrowserQueue, Totals
from covey.gateway.encoding import Frame
from covey.gateway.limits import Limits, Overflow
from covey.gateway.messages import Answer, Expiry
from covey.overlay import Gap

LIMITS = Limits(queue_bytes=100, window_bytes=100)


def events(number: int, size: int = 20) -> Frame:
    return Frame(str(number).ljust(size), 1, "Quote", float(number))


async def drain(queue: BrowserQueue, most: int = 10_000) -> list[Any]:
    """What can be sent now: numbers of events, and other messages as objects."""
    frames = await sent(queue, most)
    return [int(each.data) if each.event_count else json.loads(each.data) for each in frames]


@pytest.mark.parametrize(
    ("policy", "left"), [(Overflow.DROP_OLDEST, [5, 6, 7, 8, 9]), (Overflow.DROP_NEWEST, [0, 1, 2, 3, 4])]
)
@on_a_loop
async def test_policies(policy: Overflow, left: list[int]) -> None:
    queue = BrowserQueue(policy, Limits(queue_bytes=100), acknowledges=True)
    queue.tell(Answer(request=1))
    for number in range(10):
        queue.put(events(number))
    found = await drain(queue)
    gap = {"kind": "gap", "cause": "overflow", "type": "Quote", "count": 5}
    assert gap.items() <= found[0].items()
    assert {"kind": "answer", "request": 1} in found
    assert [each for each in found if isinstance(each, int)][-4:] == left[-4:]
    assert queue.dropped == 5


@on_a_loop
async def test_bounds_are_of_bytes() -> None:
    """A character of text may have several bytes."""
    queue = BrowserQueue(Overflow.DROP_OLDEST, LIMITS, acknowledges=False)
    for number in range(100):
        queue.put(Frame("\u20ac" * 10, 1, "Quote", float(number)))
    pending_bytes = queue.pending_bytes
    frames = [frame for frame in await sent(queue) if frame.event_count]
    assert sum(len(str(frame.data).encode()) for frame in frames) == pending_bytes
    assert 0 < pending_bytes <= LIMITS.queue_bytes + 30


@on_a_loop
async def test_the_window_waits_for_acknowledgements() -> None:
    queue = BrowserQueue(Overflow.DROP_OLDEST, Limits(window_bytes=60), acknowledges=True)
    for number in range(6):
        queue.put(events(number))
    assert await drain(queue) == [0, 1, 2]
    assert not queue.acknowledge(4)  # which was not sent
    assert queue.acknowledge(2)
    assert await drain(queue) == [3, 4]


@given(st.data())
@on_a_loop
async def test_connections_that_break_lose_and_repeat_nothing(data: st.DataObject) -> None:
    """A browser that acknowledges gets every event once and in order, or in a gap."""
    policy = data.draw(st.sampled_from([Overflow.DROP_OLDEST, Overflow.DROP_NEWEST, Overflow.BLOCK]))
    acknowledges = data.draw(st.booleans())
    queue = BrowserQueue(policy, LIMITS, acknowledges=acknowledges)
    published, received, got, lost = 0, 0, [], 0
    for _ in range(data.draw(st.integers(1, 60))):
        match data.draw(st.sampled_from(["put", "put", "tell", "send", "acknowledge", "break"])):
            case "put":
                for _ in range(data.draw(st.integers(1, 8))):
                    queue.put(events(published, data.draw(st.sampled_from([5, 20, 120]))))
                    published += 1
            case "tell":
                queue.tell(Answer(request=1))
            case "send":
                for each in await drain(queue, data.draw(st.integers(1, 6))):
                    received += 1
                    got += [each] if isinstance(each, int) else []
                    lost += each["count"] if isinstance(each, dict) and each["kind"] == "gap" else 0
            case "acknowledge" if acknowledges:
                assert queue.acknowledge(data.draw(st.integers(0, received)))
            case "break":
                await drain(queue, data.draw(st.integers(0, 4)))  # on its way as the connection breaks
                assert queue.resume(received)
    queue.acknowledge(received)
    while more := await drain(queue):
        received += len(more)
        got += [each for each in more if isinstance(each, int)]
        lost += sum(each["count"] for each in more if isinstance(each, dict) and each["kind"] == "gap")
        queue.acknowledge(received)
    assert got == sorted(set(got))
    assert len(got) + lost == published
    assert queue.pending_bytes == 0
    for _ in range(1_001):  # one more than may be pending, of which there is none
        queue.notice(Expiry(expires_in_s=1.0))
    assert queue.dropped_notices == 1


@on_a_loop
async def test_gaps_of_one_kind_are_one() -> None:
    queue = BrowserQueue(Overflow.DROP_OLDEST, LIMITS, acknowledges=True)
    queue.lose("broker", Gap("Quote", 5_000_000, 6_000_000, 2))
    queue.lose("broker", Gap("Quote", 1_000_000, 2_000_000, 3))
    queue.lose("broker", Gap("Trade", 1_000_000, 2_000_000, 1))
    quote, trade = await drain(queue)
    assert (quote["count"], quote["first_ms"], quote["last_ms"], trade["count"]) == (5, 1.0, 6.0, 1)


@on_a_loop
async def test_a_number_that_is_too_old_or_was_never_sent_is_no_place_to_go_on() -> None:
    queue = BrowserQueue(Overflow.DROP_OLDEST, LIMITS, acknowledges=True)
    for number in range(4):
        queue.put(events(number))
    await drain(queue)
    queue.acknowledge(3)
    assert not queue.resume(2)
    assert not queue.resume(5)
    assert queue.resume(3)
    assert await drain(queue) == [3]


@on_a_loop
async def test_notices_to_who_reads_nothing_are_bounded() -> None:
    queue = BrowserQueue(Overflow.DROP_OLDEST, Limits(), acknowledges=True)
    for _ in range(1_500):
        queue.notice(Expiry(expires_in_s=1.0))
    queue.tell(Answer(request=1))  # which is never dropped
    kinds = [each["kind"] for each in await drain(queue)]
    assert kinds == ["expiry"] * 1_000 + ["answer"]
    assert queue.dropped_notices == 500


def test_who_reads_no_answers_is_read_no_more() -> None:
    queue = BrowserQueue(Overflow.DROP_OLDEST, Limits(), acknowledges=True)
    for request in range(1_000):
        queue.tell(Answer(request=request))

    async def run() -> None:
        waiting = asyncio.create_task(queue.calm())
        await asyncio.sleep(0)
        assert not waiting.done()
        await queue.next()
        await waiting

    asyncio.run(run())


@pytest.mark.parametrize("policy", [Overflow.DROP_OLDEST, Overflow.DROP_NEWEST, Overflow.CONFLATE])
@on_a_loop
async def test_all_queues_together_are_bounded_and_who_keeps_up_feels_nothing(policy: Overflow) -> None:
    totals, limits = Totals(), Limits(queue_bytes=1_000_000, max_pending_bytes=500_000)
    slow = [BrowserQueue(policy, limits, acknowledges=False, totals=totals) for _ in range(5)]
    quick = BrowserQueue(policy, limits, acknowledges=False, totals=totals)
    for number in range(1_000):
        for queue in (*slow, quick):
            queue.put(events(number, 1_000))
        assert await drain(quick) == [number]
        assert totals.pending_bytes == sum(queue.pending_bytes for queue in slow)
        assert totals.pending_bytes <= 500_000 + 6 * 1_000
    assert totals.overflows[policy.value] >= 5
    for queue in slow:
        got = await drain(queue)
        told = sum(each["count"] for each in got if not isinstance(each, int) and each["kind"] == "gap")
        assert told == queue.dropped == 1_000 - sum(isinstance(each, int) for each in got) > 0
    slow[0].put(events(0))
    slow[0].hold(50)
    assert totals.pending_bytes == 70
    slow[0].close()
    assert totals.pending_bytes == 0
