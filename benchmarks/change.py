"""`change`: missed, duplicate and stale events while a subscription changes, and the delay of changes.

    publisher -> b1 -> b2 -> b3 -> subscriber

Brokers are processes; publisher and subscriber share one, so that their histories have one order. *Both*:
every event matches the old and the new filter, `level < $value` with values above every level.
*Disjoint*: the filter `side == $value` alternates between two sides, and so do events. Changes come at a
rate, without waiting for earlier ones. By the demonstration's oracle (`checkers/oracle.py`) an event is
expected if it matches the last change in effect at its publication and every later one up to its
delivery.
"""

from __future__ import annotations

import asyncio
import operator
import statistics
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import product
from typing import Annotated

import typer

from benchmarks.harness import Counts, Words, command, show_fields, steady
from covey.matcher import EventType
from covey.overlay import Client, Subscription
from covey.sim.checkers.oracle import SubscriberHistory, ValueChange
from covey.sim.experiments.local_overlay import LocalOverlay, chain
from covey.sim.experiments.processes import BackgroundTasks
from covey.sim.progress import Progress, silent

LEVEL = EventType("Level", {"number": "int64", "level": "int64", "side": "int64"})
FILTERS = {"both": "level < $value", "disjoint": "side == $value"}
VALUES = {"both": (10, 20), "disjoint": (0, 1)}
MODES = {
    "parametric": ("parametric", "subscribe-first"),
    "subscribe-first": ("static", "subscribe-first"),
    "unsubscribe-first": ("static", "unsubscribe-first"),
}
"""Per mode, the routing and the order of re-subscription."""

_QUIET_S = 1.0


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """Change a subscription while events flow; count missed, duplicate and stale events.

    Events pass through three brokers. With the filter "both" every event matches before and after each
    change; with "disjoint" it matches only before or only after. subscribe-first and unsubscribe-first are
    the orders of a re-subscription under static routing. An event is expected if, from when it is published
    until it is delivered, it matches the last change in effect and every later one.

    Example: python -m benchmarks change --modes parametric --changes 100,1000 --json
    """

    modes: Annotated[tuple[str, ...], Words("How it changes", MODES)] = tuple(MODES)
    filters: Annotated[tuple[str, ...], Words("Kinds of filters", FILTERS)] = tuple(FILTERS)
    events: Annotated[tuple[int, ...], Counts("Events per second")] = (200, 2000)
    changes: Annotated[tuple[int, ...], Counts("Changes per second")] = (10, 100, 1000)
    seconds: Annotated[float, typer.Option(min=0.1, help="Duration of each case.")] = 3.0


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """One case. Rates are those achieved; `spurious` events reached the client, which dropped them; times are
    from a change to the first event that only the new filter matches."""

    mode: str
    filter: Annotated[str, "filters"]
    events_per_s: Annotated[float, "events/s"]
    changes_per_s: Annotated[float, "changes/s"]
    published: int
    expected: int
    delivered: Annotated[int, ""]
    missed: int
    duplicate: int
    stale: int
    spurious: int
    first_new_p50_ms: Annotated[float | None, "first new event p50 ms"]
    first_new_p99_ms: Annotated[float | None, "p99 ms"]


async def measure_changes(plan: ChangePlan, progress: Progress = silent) -> list[ChangeResult]:
    """Run all cases of a plan, with one overlay per routing."""
    results: list[ChangeResult] = []
    cases = list(product(plan.modes, plan.filters, plan.events, plan.changes))
    progress("starting three brokers in a row", 0.0)
    for routing in dict.fromkeys(MODES[mode][0] for mode in plan.modes):
        async with LocalOverlay(chain(3), routing=routing) as overlay:
            for case in cases:
                if MODES[case[0]][0] == routing:
                    mode, filter, events, changes = case
                    progress(
                        f"{mode}, {filter}, {events:,} events/s, {changes:,} changes/s",
                        len(results) / len(cases),
                    )
                    results.append(await _case(overlay, plan.seconds, *case))
    return results


async def _case(
    overlay: LocalOverlay, seconds: float, mode: str, filter: str, events: int, changes: int
) -> ChangeResult:
    routing, resubscribe = MODES[mode]
    first, last = overlay.addresses["b1"], overlay.addresses["b3"]
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(Client(first, routing=routing))
        subscriber = await stack.enter_async_context(Client(last, routing=routing, resubscribe=resubscribe))
        await publisher.advertise(LEVEL)
        subscription = await subscriber.subscribe(LEVEL, FILTERS[filter], value=VALUES[filter][0])
        run = _Run(publisher, subscriber, subscription, filter)
        reader = asyncio.create_task(run.read())
        start = time.monotonic()
        await asyncio.gather(run.publish(events, seconds), run.change(changes, seconds))
        took_s = time.monotonic() - start
        await run.rest()
        await subscription.unsubscribe()
        await reader
    verdict = run.history.judge(run.sides)
    times = sorted(run.first_new_ns)
    return ChangeResult(
        mode,
        filter,
        round(len(run.sides) / took_s, 1),
        round((len(run.history.changes) - 1) / took_s, 1),
        len(run.sides),
        verdict.expected,
        verdict.delivered,
        verdict.missed,
        verdict.duplicate,
        verdict.spurious,
        subscription.spurious,
        round(statistics.median(times) / 1e6, 3) if times else None,
        round(times[int(len(times) * 0.99)] / 1e6, 3) if times else None,
    )


class _Run:
    """Events are numbered by their position in the stream."""

    def __init__(
        self, publisher: Client, subscriber: Client, subscription: Subscription, filter: str
    ) -> None:
        self._publisher = publisher
        self._subscriber = subscriber
        self._subscription = subscription
        self._values = VALUES[filter]
        self._matches: Callable[[int, int], bool] = operator.eq if filter == "disjoint" else lambda *_: True
        self._tasks = BackgroundTasks()
        self._changed_ns = 0
        self.history = SubscriberHistory(self._matches, self._values[0])
        self.sides: list[int] = []
        self.first_new_ns: list[int] = []
        """From a change to the first event that only the new value matches, if before the next change."""

    async def publish(self, rate: int, seconds: float) -> None:
        async for number in steady(rate, round(rate * seconds)):
            side = number % 2
            self.sides.append(side)
            self._tasks.start(self._publisher.publish("Level", number=number, level=5, side=side))

    async def change(self, rate: int, seconds: float) -> None:
        async for number in steady(rate, round(rate * seconds)):
            value = self._values[(number + 1) % 2]
            change = self.history.issue(value)
            self._changed_ns = time.monotonic_ns()
            self._subscription.update_nowait(value=value)
            self._tasks.start(self._settle(change))

    async def _settle(self, change: ValueChange[int]) -> None:
        await self._subscriber.settled()
        change.settled = len(self.sides)

    async def read(self) -> None:
        async for batch in self._subscription.batches():
            now_ns = time.monotonic_ns()
            for number in batch.record_batch.column("number").to_pylist():
                self.history.arrive(number)
                if self._changed_ns and self._is_new(self.sides[number]):
                    self.first_new_ns.append(now_ns - self._changed_ns)
                    self._changed_ns = 0

    def _is_new(self, side: int) -> bool:
        old, new = (change.values for change in self.history.changes[-2:])
        return self._matches(side, new) and not self._matches(side, old)

    async def rest(self) -> None:
        """Wait until everything is published, in effect and delivered."""
        await self._tasks.join()
        await asyncio.sleep(_QUIET_S)


def show(plan: ChangePlan, results: list[ChangeResult]) -> None:
    show_fields("Changing a subscription while events flow", results)


change = command(ChangePlan, measure_changes, show, prepare=lambda: None, loop=asyncio.run)
