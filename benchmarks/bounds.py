"""`bounds`: each bound of memory, filled, and what the process then holds.

    publisher -> b1 [- b2] -> a subscriber that does not read, or many that do

A case has brokers of its own, since a process returns little freed memory. Events pass b1 until its count
stops growing; *held* is the growth of its resident size since the first event. Single events alternate
between two types, since a broker joins successive ones of one type.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Any

import typer

from benchmarks.harness import Words, arrivals, command
from covey.cli.support.output import print_table
from covey.matcher import EventBatch, EventType
from covey.overlay import Client
from covey.overlay.client import inspect_broker
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.endpoint.client_endpoint import ClientEndpoint
from covey.overlay.core.link.link import Link
from covey.sim.experiments.local_overlay import LocalOverlay, chain
from covey.sim.experiments.processes import resident_bytes
from covey.sim.progress import Progress, silent

BOUNDS = (
    "session_queue_bytes", "link_queue_bytes", "link_held_bytes", "max_key_bytes", "max_replay_bytes",
    "outbox_bytes",
)  # fmt: skip
TYPES = tuple(
    EventType(name, {"number": "int64", "sent_ns": "int64", "price": "float64", "firm": "string"}, key=key)
    for name, key in (("Quote", None), ("Trade", None), ("Order", "number"), ("Fill", "number"))
)
MANY_SESSIONS = 20
_BATCH, _SINGLES, _BATCHES = 1_024, 1_000, 8
"""Events of a batch; in a round, single events of a type over all sessions, and batches."""
_PATIENCE_S = 3.0
_PATIENCE_UNHELD_S = 60.0
"""Where no source is ever held."""
_NO_LIMIT = 1 << 40


@dataclass(frozen=True, slots=True)
class BoundsPlan:
    """Fill each bound of memory by single events and by batches, and compare with the resident size.

    Each case has processes of its own: brokers, whose counters say what they count, and for the outbox a
    client. What is held is by how much the process has grown.

    Example: python -m benchmarks bounds --of session_queue_bytes,max_replay_bytes
    """

    mib: Annotated[int, typer.Option(min=1, help="Every bound, in MiB.")] = 16
    of: Annotated[tuple[str, ...], Words("Which", BOUNDS, {"all": BOUNDS})] = BOUNDS


@dataclass(frozen=True, slots=True)
class BoundResult:
    """Bytes configured, counted and held, after `events` were published."""

    bound: str
    filled_by: str
    events: int
    configured: int
    counted: int
    held: int


async def measure_bounds(plan: BoundsPlan, progress: Progress = silent) -> list[BoundResult]:
    size = plan.mib << 20
    cases = [(bound, batches, 1) for bound in plan.of for batches in (False, True)]
    if "max_replay_bytes" in plan.of:
        cases.append(("max_replay_bytes", False, MANY_SESSIONS))
    results = []
    for at, (bound, batches, sessions) in enumerate(cases):
        filled_by = f"batches of {_BATCH:,}" if batches else "single events"
        filled_by += f", {sessions} sessions" if sessions > 1 else ""
        progress(f"{bound}: {filled_by}", at / len(cases))
        if bound == "outbox_bytes":
            events, configured, counted, held = await asyncio.to_thread(_outbox, batches, size)
        else:
            async with AsyncExitStack() as stack:
                case = await _Case.of(stack, bound, size, sessions)
                events, configured, counted, held = await case.fill(batches)
        results.append(BoundResult(bound, filled_by, events, configured, counted, held))
    return results


class _Case:
    """Brokers, a publisher at b1 and its subscribers. `types` are the events' types; `configured` is their
    bound."""

    def __init__(
        self, bound: str, size: int, overlay: LocalOverlay, publisher: Client, sessions: int
    ) -> None:
        self._bound = bound
        self._overlay = overlay
        self._publisher = publisher
        self._sessions = sessions
        self._numbers = count()
        self.types = TYPES[2:] if bound == "max_key_bytes" else TYPES[:2]
        self.configured = size * len(self.types) if bound == "link_held_bytes" else size

    @classmethod
    async def of(cls, stack: AsyncExitStack, bound: str, size: int, sessions: int) -> _Case:
        limits = {bound: size, "session_queue_events": 10_000_000, "session_stall_limit_s": 600}
        if bound == "link_held_bytes":
            limits["session_queue_bytes"] = 1 << 20
        overlay = LocalOverlay(
            chain(2) if bound.startswith("link") else (),
            event_types=TYPES,
            limits=limits,
            replay_events=_NO_LIMIT if bound == "max_replay_bytes" else 0,
        )
        await stack.enter_async_context(overlay)
        stack.callback(cls._go_on, overlay)
        publisher = await stack.enter_async_context(Client(overlay.addresses["b1"], "publisher"))
        case = cls(bound, size, overlay, publisher, sessions)
        for event_type in case.types:
            await publisher.advertise(event_type)
        policy = "drop_oldest" if bound == "session_queue_bytes" else "block"
        for number in range(sessions):
            address = overlay.addresses[overlay.brokers[-1]]
            client = Client(address, f"subscriber-{number}", slow_consumer=policy, on_gap=lambda _: None)
            await stack.enter_async_context(client)
            for event_type in case.types:
                wanted = await client.subscribe(event_type, "number >= 0")
                if bound.startswith("max"):
                    await stack.enter_async_context(arrivals(wanted))
        return case

    @staticmethod
    def _go_on(overlay: LocalOverlay) -> None:
        for process_id in overlay.process_ids().values():
            os.kill(process_id, signal.SIGCONT)

    async def fill(self, batches: bool) -> tuple[int, int, int, int]:
        """Publish until the count stops growing: events, and bytes configured, counted and held."""
        await self._publish(batches)
        await self._publisher.flush()
        process_ids = self._overlay.process_ids()
        before, least = resident_bytes(process_ids["b1"]), await self._counted()
        if self._bound == "link_queue_bytes":
            os.kill(process_ids["b2"], signal.SIGSTOP)
        most, stood = 0, 0
        patience_s = _PATIENCE_UNHELD_S if self._bound.startswith("max") else _PATIENCE_S
        rounds = 3 if batches else 3 * self._sessions
        while stood < rounds:
            with suppress(TimeoutError):  # its sources are held, or the machine is busy
                async with asyncio.timeout(patience_s):
                    await self._publish(batches)
                    await self._publisher.flush()
            counted = await self._counted() - least
            stood = stood + 1 if counted <= most and most > self.configured // 4 else stood
            most = max(most, counted)
        return next(self._numbers), self.configured, most, resident_bytes(process_ids["b1"]) - before

    async def _publish(self, batches: bool) -> None:
        for _ in range(_BATCHES if batches else _SINGLES // self._sessions):
            for event_type in self.types:
                await self._publisher.publish_batch(event_type.name, self._batch(event_type, batches))

    def _batch(self, event_type: EventType, batches: bool) -> EventBatch:
        return events_of(event_type, self._numbers, _BATCH if batches else 1)

    async def _counted(self) -> int:
        _, state = await inspect_broker(self._overlay.addresses["b1"], listed=1_000)
        return sum(_COUNTED[self._bound](state, event_type.name) for event_type in self.types)


def events_of(event_type: EventType, numbers: Any, events: int) -> EventBatch:
    """Events, each with a key of its own."""
    rows = [{"number": next(numbers), "sent_ns": 7, "price": 1.5, "firm": "IBM"} for _ in range(events)]
    return EventBatch.from_pylist(event_type, rows)


def _pending(state: dict[str, Any], interface: str) -> int:
    queue = state["interfaces"][interface]
    return int(queue["queued_bytes"] + queue["unacknowledged_bytes"]) // 2  # asked once per type


_COUNTED: dict[str, Callable[[dict[str, Any], str], int]] = {
    "session_queue_bytes": lambda state, _: _pending(state, "client/subscriber-0"),
    "link_queue_bytes": lambda state, _: _pending(state, "broker/b2"),
    "link_held_bytes": lambda state, _: _pending(state, "broker/b2"),
    "max_key_bytes": lambda state, name: int(state["core"]["types"][name]["keys"]["bytes"]),
    "max_replay_bytes": lambda state, name: int(state["core"]["types"][name]["replay"]["bytes"]),
}


def _outbox(batches: bool, size: int) -> tuple[int, int, int, int]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(fill_outbox, (batches, size))


def fill_outbox(batches: bool, size: int) -> tuple[int, int, int, int]:
    """Fill an outbox in this process: events, and bytes configured, counted and held."""
    numbers, event_type = count(), TYPES[0]
    endpoint = ClientEndpoint(ClientSession("c"), Link(1), outbox_events=_NO_LIMIT, outbox_bytes=size)
    endpoint.session.advertise(event_type)
    outbox = endpoint.outbox
    events_of(event_type, count(), _BATCH)
    before = resident_bytes(os.getpid())
    while not outbox.full(event_type.name):
        if batches:
            outbox.put_batch(events_of(event_type, numbers, _BATCH))
        else:
            endpoint.publish(
                event_type.name, {"number": next(numbers), "sent_ns": 7, "price": 1.5, "firm": "IBM"}
            )
    return next(numbers), size, outbox.bytes, resident_bytes(os.getpid()) - before


def show(plan: BoundsPlan, results: list[BoundResult]) -> None:
    columns = ["bound", "filled by", "events", "configured", "counted", "held"]
    sizes = [[size / 2**20 for size in (each.configured, each.counted, each.held)] for each in results]
    rows = [[each.bound, each.filled_by, each.events, *mib] for each, mib in zip(results, sizes, strict=True)]
    print_table("MiB", columns, rows)


bounds = command(BoundsPlan, measure_bounds, show)
