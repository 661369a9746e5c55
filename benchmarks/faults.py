"""`faults`: what faults of processes, links and disks do to durable events.

    publisher - b1 - b2 - b3 - reader

Brokers are processes, and each link passes a relay in this process (`FaultyLink`). Durable events flow
all the time, at a rate that the publisher catches up with after each fault:

    kill      a broker is killed with SIGKILL, and started again half a second later
    pause     a broker is stopped by SIGSTOP for some seconds
    cut       the connections of a link are closed, and others refused for some seconds
    silence   a link passes nothing on for some seconds, and closes nothing: half-open connections
    full      the files of a broker may grow by 1 MiB at most (RLIMIT_FSIZE): a write fails as on a full disk,
              and the broker stops; half a second later it is started without that bound
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer

from benchmarks.harness import PATIENCE_S, Arrivals, Words, arrivals, command, show_fields
from covey.matcher import EventType
from covey.matcher.errors import CoveyError
from covey.overlay import Client
from covey.overlay.client import inspect_broker
from covey.sim.experiments.local_overlay import LocalOverlay, Proxy, chain, ended
from covey.sim.progress import Progress, silent

_CHUNK_BYTES = 65_536


class FaultyLink(Proxy):
    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._silenced: set[asyncio.Task[None]] = set()
        self._whole = asyncio.Event()
        self._whole.set()
        self._refusing = False

    async def cut(self) -> None:
        """Close the connections, and refuse others until `heal`."""
        self._refusing = True
        await ended(self._connections)

    def silence(self) -> None:
        """Pass nothing on and close nothing: connections are half-open. New ones wait for `heal`."""
        self._whole.clear()
        self._silenced = set(self._connections)

    async def heal(self) -> None:
        """Relay connections opened since the fault, or from now on."""
        self._refusing = False
        await ended(self._silenced)
        self._silenced = set()
        self._whole.set()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_writer: asyncio.StreamWriter | None = None
        passing: set[asyncio.Task[None]] = set()
        try:
            if self._refusing:
                return
            await self._whole.wait()
            back_reader, back_writer = await self._dial()
            passing.add(asyncio.create_task(self._pass(reader, back_writer)))
            passing.add(asyncio.create_task(self._pass(back_reader, writer)))
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in passing:
                each.cancel()
            for end in filter(None, (back_writer, writer)):
                end.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            data = b" "
            while data:
                data = await reader.read(_CHUNK_BYTES)
                await self._whole.wait()  # the end of a connection is lost like any byte
                writer.write(data)
                await writer.drain()


FAULTS = ("kill", "pause", "cut", "silence", "full")
ORDER = EventType("Order", {"number": "int64", "sent_ns": "int64", "text": "string"})
_TEXT = "x" * 100
_TICK_S = 0.01
_POLL_S = 0.05
_MAX_BATCH = 500
_FULL_STATUS = 3
_DOWN_S = 0.5
_ROOM_BYTES = 1 << 20
_CAUGHT_UP_S = 0.2
_SETTLED_S = 0.5
"""For repetitions that come late."""


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Show what faults do to durable events, and how long until events flow again.

    Events pass through three brokers, each a process. Each broker in turn is killed (kill -9), stopped
    (SIGSTOP) and has a full disk; each link is cut, and falls silent with its connections half-open. Times
    are seconds: until all ends of the broken connections have noticed; from the end of the fault until the
    first event arrives that was published after it, and until all that waited has arrived. Status 1 says that
    events were lost, repeated or out of order.

    Example: python -m benchmarks faults --faults pause,silence
    """

    rate: Annotated[int, typer.Option(min=1, help="Durable events per second.")] = 5_000
    seconds: Annotated[
        float, typer.Option(min=0.1, help="How long a broker is stopped, and a link is cut or silent.")
    ] = 10.0
    faults: Annotated[tuple[str, ...], Words("Which", FAULTS)] = FAULTS


@dataclass(frozen=True, slots=True)
class FaultResult:
    """One fault. Seconds: from its begin until all other ends of the connections have noticed (None: not
    before its end); from its end (the start of the process) until the first event arrives that was published
    after it, and until events arrive within 0.2 s of their time again. Events: published since the fault
    before, and of these lost, repeated, and out of order."""

    fault: str
    place: str
    noticed_s: Annotated[float | None, "noticed s"]
    first_event_s: Annotated[float, "first event s"]
    caught_up_s: Annotated[float, "caught up s"]
    published: Annotated[int, "events"]
    lost: int
    repeated: int
    reordered: Annotated[int, "out of order"]


@dataclass(slots=True)
class _Stream:
    """Publishes numbered events at a rate, and faster to catch up."""

    publisher: Client
    rate: int
    published: int = 0
    _began: float = field(default_factory=time.perf_counter)

    def due(self) -> int:
        return int((time.perf_counter() - self._began) * self.rate)

    async def run(self) -> None:
        while True:
            while (behind := self.due() - self.published) > 0:
                count = min(behind, _MAX_BATCH)
                numbers = np.arange(self.published, self.published + count)
                sent = np.full(count, time.perf_counter_ns())
                columns = [pa.array(numbers), pa.array(sent), pa.array([_TEXT] * count)]
                batch = pa.record_batch(columns, schema=ORDER.arrow_schema)
                await self.publisher.publish_batch("Order", batch)
                self.published += count
            await asyncio.sleep(_TICK_S)


async def measure_faults(plan: FaultPlan, progress: Progress = silent) -> list[FaultResult]:
    progress("starting three brokers in a row", 0.0)
    async with AsyncExitStack() as stack:
        overlay = LocalOverlay(chain(3), event_types=[ORDER], durable=["Order"])
        links: dict[tuple[str, ...], FaultyLink] = {}
        for listener, other in [("b1", "publisher"), *chain(3), ("b3", "reader")]:
            link = links[listener, other] = await FaultyLink(overlay.addresses[listener]).start()
            stack.push_async_callback(link.stop)
            overlay.link_addresses[listener, other] = link.address
        await stack.enter_async_context(overlay)
        publisher = Client(links["b1", "publisher"].address, "publisher")
        client = Client(links["b3", "reader"].address, "reader", durable=True)
        for each in (publisher, client):
            await stack.enter_async_context(each)
        await publisher.advertise(ORDER)
        reader = await stack.enter_async_context(arrivals(await client.subscribe(ORDER)))
        clients, stream = {"publisher": publisher, "reader": client}, _Stream(publisher, plan.rate)
        run = _Run(plan, overlay, links, clients, reader, stream)
        return await run.all(progress)


@dataclass(slots=True)
class _Run:
    """A place of a fault is a broker, or a link as (listener, other end)."""

    _plan: FaultPlan
    _overlay: LocalOverlay
    _links: dict[tuple[str, ...], FaultyLink]
    _clients: dict[str, Client]
    _reader: Arrivals
    _stream: _Stream
    _counted: tuple[int, int, int, int] = (0, 0, 0, 0)

    async def all(self, progress: Progress) -> list[FaultResult]:
        brokers = [(broker,) for broker in self._overlay.brokers]
        places = {"cut": [*self._links], "silence": [*self._links]}
        planned = [(fault, place) for fault in self._plan.faults for place in places.get(fault, brokers)]
        streaming = asyncio.create_task(self._stream.run())
        results = []
        try:
            await self._caught_up("the first events")
            for at, (fault, place) in enumerate(planned):
                progress(f"{fault} {'-'.join(place)}", (at + 1) / (len(planned) + 1))
                results.append(await self._result(fault, place))
        finally:
            streaming.cancel()
            with suppress(asyncio.CancelledError):
                await streaming
        return results

    async def _result(self, fault: str, place: tuple[str, ...]) -> FaultResult:
        what = f"{fault} {'-'.join(place)}"
        await self._begin(fault, place)
        began = time.perf_counter()
        noticing = asyncio.create_task(self._noticed_s(place, began))
        await asyncio.sleep(_DOWN_S if fault in ("kill", "full") else self._plan.seconds)
        ended, newest = time.perf_counter(), self._stream.published
        ending = asyncio.create_task(self._end(fault, place))
        await self._reader.until_newest(newest, f"an event after {what}")
        first_event_s = time.perf_counter() - ended
        await self._caught_up(f"events at their time after {what}")
        caught_up_s = time.perf_counter() - ended
        await ending
        noticed_s = await noticing
        await asyncio.sleep(_SETTLED_S)
        counted = self._counts()
        new, self._counted = np.subtract(counted, self._counted).tolist(), counted
        return FaultResult(fault, "-".join(place), noticed_s, first_event_s, caught_up_s, *new)

    async def _caught_up(self, what: str) -> None:
        behind = _CAUGHT_UP_S * self._plan.rate
        await self._reader.until(lambda: self._reader.newest >= self._stream.due() - behind, what)

    def _counts(self) -> tuple[int, int, int, int]:
        """Published, lost, repeated, and out of order, up to the newest event that has arrived."""
        numbers = np.concatenate(self._reader.numbers)
        published, different = int(numbers.max()) + 1, len(np.unique(numbers))
        reordered = int((numbers < np.maximum.accumulate(numbers)).sum())
        return published, published - different, len(numbers) - different, reordered

    async def _noticed_s(self, place: tuple[str, ...], began: float) -> float | None:
        """Seconds until every other end of this place's connections has noticed; None if not within
        `seconds`."""
        watched = [(here, there) for link in self._links for here, there in (link, link[::-1])]
        if len(place) == 1:
            watched = [each for each in watched if each[1] == place[0]]
        else:
            watched = [each for each in watched if set(each) == set(place)]
        try:
            async with asyncio.timeout(self._plan.seconds), asyncio.TaskGroup() as group:
                for here, there in watched:
                    group.create_task(self._until_broken(here, there))
        except TimeoutError:
            return None
        return time.perf_counter() - began

    async def _until_broken(self, here: str, there: str) -> None:
        while await self._connected(here, there):
            await asyncio.sleep(_POLL_S)

    async def _connected(self, here: str, there: str) -> bool:
        if here in self._clients:
            return self._clients[here].connected
        kind = "client" if there in self._clients else "broker"
        try:
            _, state = await inspect_broker(self._overlay.addresses[here], listed=len(self._clients))
        except CoveyError:
            return True
        interfaces: dict[str, dict[str, bool]] = state["interfaces"]
        return interfaces.get(f"{kind}/{there}", {}).get("connected", False)

    async def _begin(self, fault: str, place: tuple[str, ...]) -> None:
        match fault:
            case "kill":
                await self._overlay.kill(place[0])
            case "pause":
                os.kill(self._overlay.process_ids()[place[0]], signal.SIGSTOP)
            case "cut":
                await self._links[place].cut()
            case "silence":
                self._links[place].silence()
            case "full":
                await self._fill(place[0])

    async def _end(self, fault: str, place: tuple[str, ...]) -> None:
        match fault:
            case "kill" | "full":
                await self._overlay.start(place[0])
            case "pause":
                os.kill(self._overlay.process_ids()[place[0]], signal.SIGCONT)
            case _:
                await self._links[place].heal()

    async def _fill(self, broker: str) -> None:
        import resource  # not on Windows

        files = [file.stat().st_size for file in self._overlay.storage(broker).rglob("*") if file.is_file()]
        process_id = self._overlay.process_ids()[broker]
        _, hard = resource.prlimit(process_id, resource.RLIMIT_FSIZE)
        resource.prlimit(process_id, resource.RLIMIT_FSIZE, (max(files) + _ROOM_BYTES, hard))
        async with asyncio.timeout(PATIENCE_S):
            status = await self._overlay.exit_status(broker)
        if status != _FULL_STATUS:
            raise CoveyError(f"{broker} with a full disk: expected exit status {_FULL_STATUS}, got {status}")


def show(plan: FaultPlan, results: list[FaultResult]) -> None:
    show_fields(f"{plan.rate:,} durable events per second through three brokers", results)


def passed(results: list[FaultResult]) -> bool:
    return not any(each.lost or each.repeated or each.reordered for each in results)


faults = command(FaultPlan, measure_faults, show, prepare=lambda: None, passed=passed, loop=asyncio.run)
