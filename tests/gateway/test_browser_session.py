"""Sessions of browsers, with a broker's client that is made by hand."""

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
from running import on_a_loop, until

from covey.gateway.browser_queue import BrowserQueue, rate_gate
from covey.gateway.encoding import EncodedBatch, Rows
from covey.gateway.limits import Limits, Overflow
from covey.gateway.messages import Subscribe, Unsubscribe, View
from covey.gateway.session import Session
from covey.gateway.upstream import _MOST_EARLY, Access, Upstream
from covey.matcher import EventBatch, EventType
from covey.matcher.errors import CapacityError
from covey.overlay import Gap, Subscription

SHIP = EventType("Ship", {"id": "string", "x": "int64"}, key="id")
MANY = 5_000


class Views:
    """An upstream whose views say nothing; the first `ending` of them end behind many changes."""

    blocks = False

    def __init__(self, ending: int = 0) -> None:
        self._ending = ending

    def join(self, session: Session) -> None:
        pass

    async def view(self, *_: Any) -> Any:
        self._ending -= 1
        return UpstreamView(ends=self._ending >= 0)


class UpstreamView:
    event_type = SHIP

    def __init__(self, *, ends: bool) -> None:
        self._ends = ends

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        if self._ends:
            codes = pa.array(np.zeros(MANY, np.int8))
            kinds = pa.DictionaryArray.from_arrays(codes, pa.array(["enter", "change", "leave"]))
            columns = [pa.array([f"s{each}" for each in range(MANY)]), pa.array(range(MANY)), kinds]
            yield pa.RecordBatch.from_arrays(columns, names=["id", "x", "kind"])
            raise CapacityError("a view of Ship has too many keys")
        await asyncio.Event().wait()

    async def close(self, timeout: float | None = None) -> None:
        pass


def session_of(upstream: Any, limits: Limits) -> Session:
    queue = BrowserQueue(Overflow.DROP_OLDEST, limits, acknowledges=True)
    return Session(upstream, queue, "json", limits, (), None, lambda _: None)


@on_a_loop
async def test_what_waits_for_its_rate_leaves_though_timers_are_early() -> None:
    sessions = []
    for number in range(60):
        session = session_of(Views(), Limits())
        session._keys[1], session._gates[1] = "id", rate_gate(60 + 0.37 * number)
        for x in (1, 2):
            batch = EventBatch.from_pylist(SHIP, [{"id": "a", "x": x}], publisher="p", first_sequence=x)
            session.deliver(1, EncodedBatch(batch, False), np.array([0]))
        sessions.append(session)
    await until(lambda: not any(session._gates[1].pending_bytes for session in sessions))


@on_a_loop
async def test_no_rate_is_too_high_for_its_timer() -> None:
    session = session_of(Views(), Limits())
    session._keys[1], session._gates[1] = "id", rate_gate(1_000)
    for x in range(1, 200):
        batch = EventBatch.from_pylist(SHIP, [{"id": "a", "x": x}], publisher="p", first_sequence=x)
        session.deliver(1, EncodedBatch(batch, False), np.array([0]))
        await asyncio.sleep(0.0007)


@on_a_loop
async def test_a_number_that_is_used_again_counts_as_a_view() -> None:
    session = session_of(Views(), Limits(max_views=2))
    for number in (1, 2, 3):
        await session.handle(View(request=3 * number, subscription=number, type="Ship"))
        await asyncio.sleep(0)
        await session.handle(Unsubscribe(request=3 * number + 1, subscription=number))
        await session.handle(View(request=3 * number + 2, subscription=number, type="Ship"))
    assert session.subscription_count == len(session._views) == 2


@on_a_loop
async def test_nothing_of_a_view_comes_behind_its_end() -> None:
    session = session_of(Views(ending=1), Limits())
    await session.handle(View(request=1, subscription=1, type="Ship"))
    async with asyncio.timeout(60):
        while session.subscription_count:
            await asyncio.sleep(0)
    await session.handle(View(request=2, subscription=1, type="Ship"))
    contents = []
    async with asyncio.timeout(60):
        while '"request":2' not in "".join(contents[-1:]).replace(" ", ""):
            number, frame = await session.queue.next()
            session.queue.acknowledge(number)
            contents.append(frame.data if isinstance(frame.data, str) else frame.data.decode())
    ended = next(place for place, each in enumerate(contents) if "max_view_keys" in each)
    assert all('"changes"' not in each for each in contents[ended:])
    assert any('"error"' in each and '"request":1' in each.replace(" ", "") for each in contents[ended:])


class Waiting(Views):
    """An upstream that opens views when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = asyncio.Event()

    async def view(self, *_: Any) -> Any:
        await self.ready.wait()
        return await super().view()


async def answered(session: Session) -> dict[str, Any]:
    async with asyncio.timeout(60):
        number, frame = await session.queue.next()
    session.queue.acknowledge(number)
    message: dict[str, Any] = json.loads(frame.data)
    return message


@on_a_loop
async def test_a_connection_that_breaks_before_a_request_has_begun() -> None:
    """Nothing of it has happened, so the browser sends it again."""
    upstream = Waiting()
    session = session_of(upstream, Limits(max_requests=1))
    await session.handle(View(request=1, subscription=1, type="Ship"))
    again = View(request=2, subscription=2, type="Ship"), Unsubscribe(request=3, subscription=1)
    for message in again:
        waiting = asyncio.create_task(session.handle(message))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert (session.subscription_count, session.newest_request) == (1, 1)
    upstream.ready.set()
    assert (await answered(session))["request"] == 1
    for message in again:
        await session.handle(message)
        answer = await answered(session)
        assert (answer["kind"], answer["request"]) == ("answer", message.request)
    assert session.subscription_count == 1
    await session.handle(View(request=4, subscription=1, type="Ship"))
    assert (await answered(session))["kind"] == "answer"


class Held(Views):
    """An upstream that counts the views and subscriptions that nobody has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.held: set[object] = set()

    def leave(self, session: Session) -> None:
        pass

    async def view(self, *_: Any) -> Any:
        view = UpstreamView(ends=False)

        async def close(timeout: float | None = None) -> None:
            self.held.discard(view)

        view.close = close  # type: ignore[method-assign]
        self.held.add(view)
        return view

    async def subscribe(self, *_: Any) -> Any:
        subscription = Mock(Subscription, event_type=SHIP)
        self.held.add(subscription)
        return subscription

    def drop(self, subscription: object) -> None:
        pass

    async def unsubscribe(self, subscription: object, timeout: float) -> None:
        self.held.discard(subscription)


@on_a_loop
@pytest.mark.parametrize("kind", [View, Subscribe])
async def test_a_session_that_ends_while_it_unsubscribes_leaves_nothing(
    kind: type[View] | type[Subscribe],
) -> None:
    upstream = Held()
    session = session_of(upstream, Limits())
    await session.handle(kind(request=1, subscription=1, type="Ship"))
    assert (await answered(session))["kind"] == "answer"
    assert len(upstream.held) == 1
    await session.handle(Unsubscribe(request=2, subscription=1))
    await session.close()
    assert not upstream.held
    assert all(task.get_name() != "covey gateway view" for task in asyncio.all_tasks())


class Told:
    """What an upstream calls of a session."""

    def __init__(self) -> None:
        self.ended: list[int] = []
        self.delivered = 0
        self.gaps = 0

    def deliver(self, subscription: int, batch: EncodedBatch, rows: Rows) -> None:
        self.delivered += len(rows)

    def expire(self, subscription: int) -> None:
        self.ended.append(subscription)

    def lose(self, gap: Gap, *, of_views: bool = False) -> None:
        self.gaps += 1


@on_a_loop
async def test_what_comes_early_is_bounded_while_others_always_subscribe() -> None:
    upstream: Any = Upstream(Access("localhost:1"), block=False)
    session: Any = Told()
    upstream.join(session)
    upstream._subscribing = 1
    for subscription_id in range(3 * _MOST_EARLY):
        upstream._expire(subscription_id)
    assert len(upstream._ended_early) == _MOST_EARLY
    for number, (subscription_id, expired) in enumerate(((5, True), (2_500, True), (4_000, False))):
        upstream._take_early(session, number, SimpleNamespace(id=subscription_id, expired=expired))
    assert session.ended == [0, 1]
    assert len(upstream._ended_early) == _MOST_EARLY - 1

    batch = EncodedBatch(EventBatch.from_pylist(SHIP, [{"id": "a", "x": 1}], publisher="p"), False)
    for subscription_id in (7_000, 7_001):  # none is missed, since each has been handed on
        for _ in range(_MOST_EARLY):
            upstream._keep(subscription_id, batch, np.array([0]))
        upstream._take_early(session, subscription_id, SimpleNamespace(id=subscription_id, expired=False))
    assert (session.delivered, session.gaps, upstream._early) == (2 * _MOST_EARLY, 0, [])
