"""The hostile client of `hostile`: a process that does one thing to a broker.

It prepares itself and prints a line. Its input has three lines: from the first on it computes, from the
second on it attacks, and after the third it prints how much it did. It speaks the protocol by itself, since
the library's client merges its updates, waits for answers, and needs more time than the broker. No event
matches what it subscribes, and no other filter covers it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.floods import FLOODS, Flood
from covey.matcher import EventBatch, EventType
from covey.overlay.core.link.link import Frame, Hello
from covey.overlay.transport.address import CallError
from covey.overlay.transport.channel import Channel
from covey.overlay.transport.event_loop import run
from covey.overlay.transport.packets import CONNECT, Goodbye, Greeting, Role, encode_goodbye, encode_greeting
from covey.overlay.transport.rpc_call import LinkEnd
from covey.overlay.transport.wire_values import fill_event_type, fill_events
from covey.proto import broker_pb2 as pb

TRADE = EventType("Trade", {"number": "int64", "sent_ns": "int64", "share": "float64"})
"""What the others publish and subscribe to. Their numbers are not negative."""
_FRAME = 128
_MOVED = 1_000
"""Subscriptions that are updated in turn."""
_BATCH = 4_096
_LEAVING_S = 10.0
_UNWANTED = "share == $share and number < $limit"


class Session:
    """A session of the broker, with frames as fast as its connection takes them."""

    def __init__(self, channel: Channel) -> None:
        self._call = channel.call(CONNECT)
        self._name = f"hostile-{secrets.token_hex(6)}"
        self._sequence = self._received = self._epoch = self._settled = 0
        self._advanced = asyncio.Event()
        self._exchange: asyncio.Task[None] | None = None

    async def greet(self) -> None:
        hello = Hello(secrets.randbits(62) | 1, credit=1 << 40)
        self._call.send(encode_greeting(Greeting(Role.CLIENT, self._name, hello)))
        if await self._call.read() is None:
            raise CallError(self._call.status or "", self._call.details)
        self._exchange = asyncio.create_task(self._receive_frames())

    async def send(self, messages: Iterable[pb.Message]) -> None:
        """One frame. `CallError` if the broker has ended the connection."""
        self._sequence += 1
        frame = pb.Frame(sequence=self._sequence, received=self._received, credit=1 << 40, messages=messages)
        await self.send_bytes(pb.Packet(frame=frame).SerializeToString())

    async def send_bytes(self, data: bytes) -> None:
        await self._call.sent()
        if self._call.status is not None:
            raise CallError(self._call.status, self._call.details)
        self._call.send(data)
        await asyncio.sleep(0)

    async def until_settled(self) -> None:
        while self._settled < self._epoch and self._call.status is None:
            self._advanced.clear()
            await self._advanced.wait()

    async def leave(self) -> None:
        """End the session."""
        self._call.send(encode_goodbye(Goodbye("OK", "it leaves")))
        await self.gone()

    async def gone(self) -> None:
        """Until the broker has ended the connection."""
        if self._exchange is not None:
            await self._exchange

    # --- messages -------------------------------------------------------------------------------------------

    def advertise(self) -> pb.Message:
        body = pb.Advertise(epoch=self._next_epoch())
        fill_event_type(body.event_type, TRADE)
        return pb.Message(advertise=body)

    def subscribe(self, subscription_id: int, filter: str = "") -> pb.Message:
        body = pb.Subscribe(epoch=self._next_epoch(), subscription_id=subscription_id, type_name=TRADE.name)
        body.filter = filter or _UNWANTED
        if not filter:
            body.values["share"].float64 = subscription_id * 1e-7
            body.values["limit"].float64 = -1.0
        return pb.Message(subscribe=body)

    def unsubscribe(self, subscription_id: int) -> pb.Message:
        body = pb.Unsubscribe(epoch=self._next_epoch(), subscription_id=subscription_id)
        return pb.Message(unsubscribe=body)

    def update(self, subscription_id: int, limit: float) -> pb.Message:
        body = pb.Update(epoch=self._next_epoch(), subscription_id=subscription_id)
        body.values["limit"].float64 = limit
        return pb.Message(update=body)

    def publish(self, batch: EventBatch, first: int) -> pb.Message:
        body = pb.Publish()
        fill_events(body.events, batch)
        body.events.publisher, body.events.first_sequence = self._name, first
        return pb.Message(publish=body)

    def _next_epoch(self) -> int:
        self._epoch += 1
        return self._epoch

    async def _receive_frames(self) -> None:
        """Until the broker has ended the call. It writes when it likes."""
        try:
            with suppress(CallError):
                await self._call.exchange(LinkEnd(self._receive, lambda: None, schemas=False))
            await self._call.drain()
        finally:
            self._advanced.set()

    def _receive(self, frames: list[Frame[Any]], now_ns: int) -> int:
        for frame in frames:
            self._received = max(self._received, frame.sequence)
            self._settled = max(self._settled, frame.settled)
        self._advanced.set()
        return len(frames)


class Hostile:
    """Its attacks, by name. `done` counts messages, connections or events."""

    def __init__(self, address: str, subscriptions: int, filter_bytes: int, connections: int) -> None:
        self._address = address
        self._connections = connections
        self._ends = False
        self._subscriptions = subscriptions
        self._filter_bytes = filter_bytes
        self.done = 0
        self.closed: dict[str, int] = {}
        """How the connections of a flood have ended."""

    async def prepare(self, attack: str, session: Session) -> None:
        """Before the attack begins."""
        if attack == "end":
            await self._subscribe(session, self._subscriptions)
        elif attack == "updates":
            await self._subscribe(session, _MOVED)
        elif attack == "batches":
            await session.send([session.advertise()])
        await session.until_settled()
        self.done = 0

    async def begin(self, attack: str, session: Session) -> None:
        """The attack, to its end, if it has one."""
        if attack in FLOODS:
            await self._flood(Flood(attack, self._address, self._connections))
            return
        await getattr(self, f"_attack_{attack}")(session)

    async def _flood(self, flood: Flood) -> None:
        await asyncio.get_running_loop().run_in_executor(None, flood.run, lambda: self._ends)
        self.done, self.closed = flood.frames, dict(flood.closed)

    async def end(self, attacking: asyncio.Task[None]) -> None:
        """End a flood, which has results; other attacks go on until their process ends."""
        self._ends = True
        if not attacking.done():
            await asyncio.wait({attacking}, timeout=1.0)

    async def _subscribe(self, session: Session, count: int) -> None:
        for first in range(1, count + 1, _FRAME):
            ids = range(first, min(first + _FRAME, count + 1))
            await session.send([session.subscribe(each) for each in ids])
            self.done += len(ids)

    async def _attack_subscriptions(self, session: Session) -> None:
        await self._subscribe(session, self._subscriptions)

    async def _attack_churn(self, session: Session) -> None:
        for first in itertools.count(1, _FRAME):
            ids = range(first, first + _FRAME)
            await session.send([session.subscribe(each) for each in ids])
            await session.send([session.unsubscribe(each) for each in ids])
            self.done += 2 * len(ids)

    async def _attack_end(self, session: Session) -> None:
        self.done = self._subscriptions
        await session.leave()

    async def _attack_updates(self, session: Session) -> None:
        for number in itertools.count(1):
            start = number * _FRAME
            ids = [each % _MOVED + 1 for each in range(start, start + _FRAME)]
            await session.send([session.update(each, -float(number)) for each in ids])
            self.done += len(ids)

    async def _attack_filters(self, session: Session) -> None:
        """The longest ones, and again and again the same texts, which a broker need not parse again."""
        kinds = (
            ("share in (", "{}.5", ", ", ")"),
            ("", "share between {}.25 and {}.5", " or ", ""),
            ("number < 0 and not (", "share == {}.5", " and ", ")"),
        )
        for number in itertools.count(1):
            start, item, separator, end = kinds[number % len(kinds)]
            room, items = self._filter_bytes - len(start) - len(end), []
            for value in itertools.count(10_000 + number):
                text = item.format(value, value)
                room -= len(text) + len(separator)
                if room < 0:
                    break
                items.append(text)
            await session.send([session.subscribe(number % 8 + 1, start + separator.join(items) + end)])
            self.done += 1

    async def _attack_batches(self, session: Session) -> None:
        columns = [pa.array(np.full(_BATCH, value)) for value in (-5, 0, 0.5)]
        batch = EventBatch.from_arrow(TRADE, pa.record_batch(columns, schema=TRADE.arrow_schema))
        for first in itertools.count(1, _BATCH):
            await session.send([session.publish(batch, first)])
            self.done += _BATCH

    async def _attack_connections(self, session: Session) -> None:
        while True:
            with suppress(CallError):
                async with Channel(self._address) as channel:
                    await Session(channel).greet()
            self.done += 1

    async def _attack_malformed(self, session: Session) -> None:
        wrong = [
            session.subscribe(1, "share << 3"),
            session.subscribe(2, "nothing == 1"),
            session.subscribe(3, "(" * 5_000),
            pb.Message(publish=pb.Publish(events=pb.Events(type_name="Trade", count=9, record_batch=b"x"))),
            pb.Message(update=pb.Update(epoch=1, subscription_id=99)),
            pb.Message(),
        ]
        while True:
            await session.send(wrong * (_FRAME // len(wrong)))
            self.done += _FRAME // len(wrong) * len(wrong)

    async def _attack_packets(self, session: Session) -> None:
        """Such as end the connection."""
        while True:
            with suppress(CallError):
                async with Channel(self._address) as channel:
                    other = Session(channel)
                    await other.greet()
                    await other.send_bytes(secrets.token_bytes(1_000))
                    await other.gone()
            self.done += 1


async def _compute() -> None:
    """What a second process on the machine of a broker costs, whatever it does."""
    while True:
        sum(range(10_000))
        await asyncio.sleep(0)


async def main(
    address: str, attack: str, subscriptions: int, filter_bytes: int, connections: int
) -> None:
    hostile = Hostile(address, subscriptions, filter_bytes, connections)
    loop = asyncio.get_running_loop()
    async with Channel(address) as channel:
        session = Session(channel)
        await session.greet()
        await hostile.prepare(attack, session)
        print("ready", flush=True)
        await loop.run_in_executor(None, sys.stdin.readline)
        computing = asyncio.create_task(_compute())
        await loop.run_in_executor(None, sys.stdin.readline)
        computing.cancel()
        attacking = asyncio.create_task(hostile.begin(attack, session))
        ending = loop.run_in_executor(None, sys.stdin.readline)
        await asyncio.wait({attacking, ending}, return_when=asyncio.FIRST_COMPLETED)
        if attacking.done():
            with suppress(CallError):  # the broker has ended the connection
                attacking.result()
        await ending
        await hostile.end(attacking)
        print(json.dumps({"done": hostile.done, "closed": hostile.closed}), flush=True)
        attacking.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVING_S):
                await session.leave()


if __name__ == "__main__":
    settings: dict[str, Any] = json.loads(sys.argv[1])
    run(main(**settings))
