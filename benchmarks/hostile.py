"""`hostile`: what hostile clients cost the others.

    publisher -> b2 - b1        a subscriber at b1 and one at b2
                      |
                   hostile      a process

Single events are published at a steady rate. Before each attack the subscribers' latency is measured
while the hostile process is silent, since the machine's load varies, and while it only computes, since it
takes processors from brokers. An event counts for the time of its publication. The hostile client's
sessions end before the next attack.

The hostile process prepares itself, computes, attacks, and reports how much it did. It speaks the
protocol by itself, since the library's client merges updates, waits for answers, and takes longer than
the broker. No event matches its subscriptions, and no other filter covers them.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, astuple, dataclass, replace
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer

from benchmarks.floods import FLOODS, Flood
from benchmarks.harness import Arrivals, Counts, Words, arrivals, command, steady
from covey.cli.support.output import print_table
from covey.matcher import EventBatch, EventType
from covey.matcher.errors import CoveyError
from covey.overlay import Client
from covey.overlay.client import inspect_broker
from covey.overlay.core.endpoint.quotas import Bounds
from covey.overlay.core.link.link import Frame, Hello
from covey.overlay.transport.address import CallError
from covey.overlay.transport.channel import Channel
from covey.overlay.transport.codec import fill_events
from covey.overlay.transport.event_loop import run
from covey.overlay.transport.packets import (
    CONNECT,
    Goodbye,
    Greeting,
    LinkEnd,
    Role,
    encode_goodbye,
    encode_greeting,
)
from covey.overlay.transport.wire_values import fill_event_type
from covey.proto import broker_pb2 as pb
from covey.sim.experiments.local_overlay import LocalOverlay, chain
from covey.sim.experiments.processes import Worker, resident_bytes, serve
from covey.sim.progress import Progress, silent

TRADE = EventType("Trade", {"number": "int64", "sent_ns": "int64", "share": "float64"})
"""The type of the other clients; their numbers are not negative."""
_FRAME = 128
_MOVED = 1_000
"""Subscriptions that are updated in turn."""
_BATCH = 4_096
_LEAVING_S = 10.0
_UNWANTED = "share == $share and number < $limit"


class Session:
    """A session at the broker that sends frames as fast as its connection takes them."""

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
        """Send one frame. `CallError` if the broker has ended the connection."""
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
        self._call.send(encode_goodbye(Goodbye("OK", "it leaves")))
        await self.gone()

    async def gone(self) -> None:
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
        """Until the broker ends the call, which writes by itself."""
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
    """Its attacks, by name; a role of a `Worker`. `done` counts messages, connections or events."""

    def __init__(
        self, address: str, attack: str, subscriptions: int, filter_bytes: int, connections: int
    ) -> None:
        self._address = address
        self._attack = attack
        self._connections = connections
        self._ends = False
        self._subscriptions = subscriptions
        self._filter_bytes = filter_bytes
        self._channel = Channel(address)
        self.done = 0
        self.closed: dict[str, int] = {}

    async def start(self) -> None:
        await self._channel.__aenter__()
        session = self._session = Session(self._channel)
        await session.greet()
        if self._attack == "end":
            await self._subscribe(session, self._subscriptions)
        elif self._attack == "updates":
            await self._subscribe(session, _MOVED)
        elif self._attack == "batches":
            await session.send([session.advertise()])
        await session.until_settled()
        self.done = 0

    async def compute(self) -> None:
        self._computing = asyncio.create_task(_compute())

    async def attack(self) -> None:
        self._computing.cancel()
        self._attacking = asyncio.create_task(self._begin())

    async def end(self) -> dict[str, Any]:
        attacking = self._attacking
        self._ends = True  # of a flood, which has results; other attacks go on until their process ends
        await asyncio.wait({attacking}, timeout=1.0)
        if attacking.done():
            with suppress(CallError):  # the broker has ended the connection
                attacking.result()
        attacking.cancel()
        return {"done": self.done, "closed": self.closed}

    async def stop(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVING_S):
                await self._session.leave()
        await self._channel.__aexit__(None, None, None)

    async def _begin(self) -> None:
        if self._attack in FLOODS:
            await self._flood(Flood(self._attack, self._address, self._connections))
        else:
            await getattr(self, f"_attack_{self._attack}")(self._session)

    async def _flood(self, flood: Flood) -> None:
        await asyncio.get_running_loop().run_in_executor(None, flood.run, lambda: self._ends)
        self.done, self.closed = flood.frames, dict(flood.closed)

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
        """The longest filters, and then the same texts repeatedly, which a broker need not parse again."""
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
        """Packets that end the connection."""
        while True:
            with suppress(CallError):
                async with Channel(self._address) as channel:
                    other = Session(channel)
                    await other.greet()
                    await other.send_bytes(secrets.token_bytes(1_000))
                    await other.gone()
            self.done += 1


async def _compute() -> None:
    """The cost of any second process on a broker's machine."""
    while True:
        sum(range(10_000))
        await asyncio.sleep(0)


if __name__ == "__main__":
    serve({"hostile": Hostile}, run)


ATTACKS = {
    "subscriptions": "subscribes, up to a number",
    "churn": "subscribes and unsubscribes",
    "end": "leaves, having so many subscriptions",
    "updates": "updates 1,000 subscriptions",
    "filters": "subscribes the longest filters",
    "batches": "publishes batches of 4,096 events",
    "connections": "connects and goes",
    "malformed": "sends messages that are refused",
    "packets": "connects and sends random bytes",
    **FLOODS,
}
_LEASE_S = 2
_PREPARING_S = 900.0
_PAUSE_S = 0.5
_GONE_S = 300.0


@dataclass(frozen=True, slots=True)
class HostilePlan:
    """Measure the latency of clients while another one is hostile to their broker.

    Single events pass from b2 to subscribers at b1 and b2; the hostile client is a process that attacks b1.
    Before each attack its process is silent, and then computes: what any process costs on the same
    processors. Floods are frames that bring nothing: window_update, priority, unknown and others.

    Example: python -m benchmarks hostile --attacks floods --seconds 5

    Example: python -m benchmarks hostile --attacks subscriptions,end --subscriptions 1000000 --seconds 60
    """

    rate: Annotated[int, typer.Option(min=1, help="Events per second of the others.")] = 200
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Of each of the three measurements of an attack.")
    ] = 10.0
    subscriptions: Annotated[int, typer.Option(min=1, help="Of the attacks subscriptions and end.")] = 100_000
    attacks: Annotated[
        tuple[str, ...], Words("Which", ATTACKS, {"all": tuple(ATTACKS), "floods": tuple(FLOODS)})
    ] = tuple(ATTACKS)
    connections: Annotated[tuple[int, ...], Counts("Of a flood at once: numbers, each tried")] = (3, 100)
    rounds: Annotated[
        int, typer.Option(min=1, help="Rounds through all attacks; medians are shown, and the most memory.")
    ] = 1


@dataclass(frozen=True, slots=True)
class Latency:
    """Of the events published in some time, in milliseconds."""

    p50: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class HostileResult:
    """One attack on b1: messages, connections, frames or events sent; of a flood, its concurrent connections
    and how they ended; the others' latency at b1 and b2 while the hostile process is silent, computes and
    attacks; the memory of b1; and how long after the attack its sessions had ended."""

    attack: str
    connections: int
    done: int
    closed: dict[str, int]
    silent: Latency
    computing: Latency
    attacked: Latency
    neighbour_silent: Latency
    neighbour_computing: Latency
    neighbour: Latency
    memory_mb: float
    ended_s: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.ratio}

    @property
    def ratio(self) -> float:
        """The p99 at b1 under attack to that beside a computing process."""
        return self.attacked.p99 / self.computing.p99


async def measure_hostile(plan: HostilePlan, progress: Progress = silent) -> list[HostileResult]:
    progress("starting two brokers", 0.0)
    async with AsyncExitStack() as stack:
        overlay = LocalOverlay(chain(2), event_types=[TRADE], limits={"session_lease_s": _LEASE_S})
        await stack.enter_async_context(overlay)
        publisher = await stack.enter_async_context(Client(overlay.addresses["b2"], "publisher"))
        await publisher.advertise(TRADE)
        readers = []
        for broker in ("b1", "b2"):
            client = await stack.enter_async_context(Client(overlay.addresses[broker], f"reader-{broker}"))
            wanted = await client.subscribe(TRADE, "number >= 0")
            readers.append(await stack.enter_async_context(arrivals(wanted)))
        return await _Run(plan, overlay, publisher, readers).all(progress)


@dataclass(slots=True)
class _Run:
    _plan: HostilePlan
    _overlay: LocalOverlay
    _publisher: Client
    _readers: list[Arrivals]
    _published: int = 0

    async def all(self, progress: Progress) -> list[HostileResult]:
        publishing = asyncio.create_task(self._publish())
        try:
            await self._latency(1.0)
            sessions = await self._sessions()
            results = []
            runs = [
                (attack, connections)
                for attack in self._plan.attacks
                for connections in (self._plan.connections if attack in FLOODS else (1,))
            ]
            for at, (attack, connections) in enumerate(runs * self._plan.rounds):
                progress(f"{attack}: it {ATTACKS[attack]}", at / (len(runs) * self._plan.rounds))
                results.append(await self._result(attack, connections, sessions))
            return [_median(results[at :: len(runs)]) for at in range(len(runs))]
        finally:
            publishing.cancel()
            with suppress(asyncio.CancelledError):
                await publishing

    async def _publish(self) -> None:
        async for number in steady(self._plan.rate):
            values = {"number": number, "sent_ns": time.perf_counter_ns(), "share": 0.5}
            await self._publisher.publish(TRADE.name, values)
            self._published += 1

    async def _result(self, attack: str, connections: int, sessions: int) -> HostileResult:
        settings = {
            "address": self._overlay.addresses["b1"],
            "attack": attack,
            "subscriptions": self._plan.subscriptions,
            "filter_bytes": Bounds().filter_bytes,
            "connections": connections,
        }
        worker = Worker("benchmarks.hostile", "hostile", patience_s=_PREPARING_S, **settings)
        async with worker as hostile:
            await asyncio.sleep(_PAUSE_S)
            silent = await self._latency(self._plan.seconds)
            await hostile.request("compute")
            computing = await self._latency(self._plan.seconds)
            await hostile.request("attack")
            attacked = await self._latency(self._plan.seconds)
            memory = resident_bytes(self._overlay.process_ids()["b1"])
            said = await hostile.request("end")
            began = time.perf_counter()
        await self._until_gone(sessions)
        ended_s = time.perf_counter() - began
        mb = round(memory / 1e6, 1)
        near, far = zip(silent, computing, attacked, strict=True)
        return HostileResult(attack, connections, said["done"], said["closed"], *near, *far, mb, ended_s)

    async def _latency(self, seconds: float) -> list[Latency]:
        """The latency at each reader of what is published within some seconds."""
        first = self._published
        await asyncio.sleep(seconds)
        last = self._published
        for reader in self._readers:
            await reader.until_newest(last - 1, "events under an attack", _GONE_S)
        latencies = []
        for reader in self._readers:
            numbers, times = np.concatenate(reader.numbers), np.concatenate(reader.latencies)
            times = times[(numbers >= first) & (numbers < last)] / 1e6
            p50, p99 = np.percentile(times, (50, 99))
            latencies.append(Latency(float(p50), float(p99), float(times.max())))
        return latencies

    async def _sessions(self) -> int:
        _, state = await inspect_broker(self._overlay.addresses["b1"], listed=0)
        return int(state["sessions"])

    async def _until_gone(self, sessions: int) -> None:
        """Wait until b1 has as many sessions as before. `CoveyError` after five minutes."""
        deadline = time.perf_counter() + _GONE_S
        while await self._sessions() > sessions:
            if time.perf_counter() > deadline:
                raise CoveyError(f"sessions of a hostile client: expected to end within {_LEAVING_S:g} s")
            await asyncio.sleep(0.1)


def _median(rounds: list[HostileResult]) -> HostileResult:
    """The rounds of one attack: medians, sums of what was done and closed, and the most memory."""

    names = ("silent", "computing", "attacked", "neighbour_silent", "neighbour_computing", "neighbour")
    latencies: dict[str, Any] = {}
    for name in names:
        each = [astuple(getattr(result, name)) for result in rounds]
        latencies[name] = Latency(*np.median(each, axis=0).tolist())
    return replace(
        rounds[0],
        done=sum(result.done for result in rounds),
        closed=dict(sum((Counter(result.closed) for result in rounds), Counter[str]())),
        memory_mb=max(result.memory_mb for result in rounds),
        ended_s=float(np.median([result.ended_s for result in rounds])),
        **latencies,
    )


def show(plan: HostilePlan, results: list[HostileResult]) -> None:
    rows = []
    for each in results:
        p99 = [each.silent.p99, each.computing.p99, each.attacked.p99]
        at_b2 = [each.neighbour_silent.p99, each.neighbour_computing.p99, each.neighbour.p99]
        most = [each.attacked.p50, each.attacked.max]
        attack = f"{each.attack} x{each.connections}" if each.attack in FLOODS else each.attack
        closed = ", ".join(f"{count:,} {name}" for name, count in each.closed.items())
        ends = [each.memory_mb, each.ended_s]
        rows.append([attack, each.done, closed, *p99, each.ratio, *most, *at_b2, *ends])
    near = ["connections ended", "p99", "p99 computing", "p99 attacked"]
    near += ["ratio", "p50 attacked", "max attacked"]
    far = ["p99 at b2", "computing", "attacked"]
    print_table(
        f"{plan.rate:,} events per second of others, ms from publishing to arrival",
        ["attack", "done", *near, *far, "memory MB", "ended s"],
        rows,
    )


hostile = command(HostilePlan, measure_hostile, show)
