"""Sessions of browsers over stubs of a broker's client."""

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
from gateways import BrokerClient
from running import on_a_loop

from covey.gateway import upstream as upstreams
from covey.gateway.browser_queue import BrowserQueue
from covey.gateway.encoding import EncodedBatch, Rows
from covey.gateway.limits import Limits, Overflow
from covey.gateway.messages import Subscribe, Unsubscribe, View
from covey.gateway.session import Session
from covey.gateway.upstream import Access, Subscriber, Upstream
from covey.matcher import EventBatch, EventType
from covey.matcher.errors import CapacityError
from covey.overlay import Gap, Subscription

SHIP = EventType("Ship", {"id": "string", "x": "int64"}, key="id")
BATCH = EventBatch.from_pylist(SHIP, [{"id": "a", "x": 1}], publisher="p")
MANY = 5_000


class Views:
    """An upstream of silent views; the first `ending` of them end behind many changes."""

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


async def answered(session: Session) -> dict[str, Any]:
    async with asyncio.timeout(60):
        number, frame = await session.queue.next()
    session.queue.acknowledge(number)
    message: dict[str, Any] = json.loads(frame.data)
    return message


class Subscriptions(Views):
    """An upstream that delivers the test's events to subscriptions."""

    async def key_of(self, _: str) -> str | None:
        return SHIP.key

    async def subscribe(self, *_: Any) -> Any:
        return SimpleNamespace(event_type=SHIP)


async def at_a_rate(rate: float) -> Session:
    """A session with a subscription 1 of this rate, whose answer has been taken."""
    session = session_of(Subscriptions(), Limits())
    await session.handle(Subscribe(request=1, subscription=1, type="Ship", max_rate=rate))
    assert (await answered(session))["kind"] == "answer"
    return session


def deliver(session: Session, x: int) -> None:
    batch = EventBatch.from_pylist(SHIP, [{"id": "a", "x": x}], publisher="p", first_sequence=x)
    session.deliver(1, EncodedBatch(batch, False), np.array([0]))


async def event_of(session: Session) -> int:
    """The next event, behind gaps of superseded events."""
    while (message := await answered(session))["kind"] == "gap":
        assert message["cause"] == "conflated"
    (event,) = message["events"]
    return int(event["x"])


@on_a_loop
async def test_what_waits_for_its_rate_leaves_though_timers_are_early() -> None:
    sessions = []
    for number in range(60):
        session = await at_a_rate(60 + 0.37 * number)
        for x in (1, 2):
            deliver(session, x)
        sessions.append(session)
    for session in sessions:
        assert [await event_of(session), await event_of(session)] == [1, 2]


@on_a_loop
async def test_no_rate_is_too_high_for_its_timer() -> None:
    session = await at_a_rate(1_000)
    for x in range(1, 200):
        deliver(session, x)
        await asyncio.sleep(0.0007)
    while await event_of(session) != 199:
        pass


@on_a_loop
async def test_a_number_that_is_used_again_counts_as_a_view() -> None:
    session = session_of(Views(), Limits(max_views=2))

    async def view(number: int) -> str:
        await session.handle(View(request=1, subscription=number, type="Ship"))
        answer = await answered(session)
        assert answer["kind"] == "answer" or f"view {number}: max_views is 2" in answer["message"]
        return str(answer["kind"])

    for number in (1, 2):
        assert await view(number) == "answer"
        await session.handle(Unsubscribe(request=2, subscription=number))
        await session.handle(View(request=3, subscription=number, type="Ship"))
        answers = [await answered(session) for _ in range(2)]
        assert sorted((each["kind"], each["request"]) for each in answers) == [("answer", 2), ("answer", 3)]
    assert await view(3) == "error"
    await session.handle(Unsubscribe(request=2, subscription=1))
    assert (await answered(session))["request"] == 2
    assert [await view(number) for number in (3, 4)] == ["answer", "error"]
    assert session.subscription_count == 2


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
    """An upstream that opens views on command."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = asyncio.Event()

    async def view(self, *_: Any) -> Any:
        await self.ready.wait()
        return await super().view()


@on_a_loop
async def test_a_connection_that_breaks_before_a_request_has_begun() -> None:
    """The request had no effect, so the browser sends it again."""
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
    """An upstream that counts unended views and subscriptions."""

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

    async def unsubscribe(self, subscription: object) -> None:
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


class Told(Subscriber):
    def __init__(self) -> None:
        self.ended: list[int] = []
        self.delivered = 0
        self.lost = 0

    def deliver(self, subscription: int, batch: EncodedBatch, rows: Rows) -> None:
        self.delivered += len(rows)

    def expire(self, subscription: int) -> None:
        self.ended.append(subscription)

    def lose(self, gap: Gap, *, of_views: bool = False) -> None:
        self.lost += gap.count


def wanted(number: int, filter: str = "") -> Subscribe:
    return Subscribe(request=0, subscription=number, type="Ship", filter=filter)


@on_a_loop
async def test_what_comes_early_is_bounded_while_others_always_subscribe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = BrokerClient(BATCH)
    monkeypatch.setattr(upstreams, "Client", lambda *_, **__: client)
    upstream, session = Upstream(Access("localhost:1"), block=False), Told()
    await upstream.open()
    upstream.join(session)
    other = asyncio.create_task(upstream.subscribe(session, wanted(0, "unanswered")))
    await asyncio.sleep(0)

    async def subscribe(subscription_id: int, *, expired: bool = False) -> None:
        client.subscription = SimpleNamespace(id=subscription_id, expired=expired)
        await upstream.subscribe(session, wanted(subscription_id))

    await client.expire(range(1, 3_000))
    for subscription_id, expired in ((5, False), (2_500, True), (4_000, False)):
        await subscribe(subscription_id, expired=expired)
    assert session.ended == [5, 2_500]
    await subscribe(2_900)  # which the subscription alone would tell, since 2,999 ends are too many
    assert session.ended == [5, 2_500]
    await client.expire([5_000])  # in the place of 5
    await subscribe(5_000)
    assert session.ended == [5, 2_500, 5_000]

    await client.deliver(6_000, 3_000)
    await subscribe(6_000)
    kept = session.delivered
    assert 0 < kept < session.delivered + session.lost == 3_000
    for subscription_id in (7_000, 7_001):  # none is missed, since each has been handed on
        await client.deliver(subscription_id, kept)
        await subscribe(subscription_id)
    assert (session.delivered, session.lost) == (3 * kept, 3_000 - kept)
    other.cancel()
    await asyncio.wait({other})
    await upstream.close()


@on_a_loop
async def test_a_number_that_is_used_again_before_its_unsubscribe_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither the old subscription's end, nor its events, which come meanwhile, are the new one's."""
    client = BrokerClient(BATCH)
    monkeypatch.setattr(upstreams, "Client", lambda *_, **__: client)
    upstream = Upstream(Access("localhost:1"), block=False)
    await upstream.open()
    session = session_of(upstream, Limits())

    async def subscribe(request: int, subscription_id: int) -> None:
        client.subscription = Mock(Subscription, id=subscription_id, expired=False, event_type=SHIP)
        await session.handle(Subscribe(request=request, subscription=1, type="Ship"))

    async def come(subscription_id: int) -> None:
        await client.deliver(subscription_id, 1)
        await client.expire([subscription_id])

    await subscribe(1, 70)
    assert (await answered(session))["request"] == 1
    coming = asyncio.create_task(come(70))
    await asyncio.sleep(0)  # it has come, and is not handed out
    await session.handle(Unsubscribe(request=2, subscription=1))
    await subscribe(3, 71)
    await coming
    answers = [await answered(session) for _ in range(2)]
    assert sorted((each["kind"], each["request"]) for each in answers) == [("answer", 2), ("answer", 3)]
    await come(71)
    kinds = [(await answered(session))["kind"] for _ in range(2)]
    assert kinds == ["events", "ended"]
    assert session.subscription_count == 0
    await session.close()
    await upstream.close()


class Away(Views):
    """An upstream whose broker answers once two subscriptions wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.both = asyncio.Barrier(2)

    async def subscribe(self, *_: Any) -> Any:
        return Mock(event_type=SHIP, expired=False)

    async def unsubscribe(self, *_: Any) -> None:
        await self.both.wait()
        raise CapacityError("no answer")

    def leave(self, session: Session) -> None:
        pass


@on_a_loop
async def test_a_session_that_ends_waits_for_all_subscriptions_at_once() -> None:
    session = session_of(Away(), Limits())
    for number in (1, 2):
        await session.handle(Subscribe(request=number, subscription=number, type="Ship"))
        assert (await answered(session))["kind"] == "answer"
    async with asyncio.timeout(5):
        await session.close()
