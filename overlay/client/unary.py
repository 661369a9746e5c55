"""Single calls to brokers without a session, and walks through an overlay from one address. A broker that
does not answer ends its branch, and the result has the reason."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from covey.matcher import EventType
from covey.matcher.errors import CoveyError
from covey.overlay.client.errors import ConnectError
from covey.overlay.core.endpoint.limits import RefusedError
from covey.overlay.storage.files import CANNOT_STORE
from covey.overlay.transport.address import CallError
from covey.overlay.transport.channel import Channel
from covey.overlay.transport.credentials import PLAIN, Credentials, Token, credentials
from covey.overlay.transport.packets import DESCRIBE, EXPLAIN, FOLLOW, INSPECT, Method, Q, R, read_body
from covey.overlay.transport.tls import Tls
from covey.overlay.transport.wire_values import event_type_of

_ANSWER_WITHIN_S = 5.0
Step = dict[str, Any]
MOST_BROKERS = 1_000
_LEAST_FREE_BYTES = 64 << 20
"""A disk with less is nearly full: a segment of a log."""
_AT_ONCE = 32
_SLOW_PAGE = "publishing.md#events-that-a-subscriber-does-not-get"
_FULL_PAGE = "durability.md#a-full-disk"
_RUN_PAGE = "operations.md#run"
_NEIGHBOURS_ALONE = 0
"""The state has all neighbours, whatever `listed` is."""
State = Mapping[str, Any]


async def call_broker(
    address: str,
    method: Method[Q, R],
    request: Q,
    credentials: Credentials = PLAIN,
    within_s: float = _ANSWER_WITHIN_S,
) -> R:
    """`ConnectError` if no broker answers, `RefusedError` for an error status."""
    try:
        async with Channel(address, credentials=credentials) as channel:
            reply = await channel.unary(method.path, request.SerializeToString(), within_s)
            return read_body(method.reply, reply)
    except CallError as error:
        if error.status in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
            raise ConnectError(str(error)) from None
        raise RefusedError(error.status, str(error)) from None


async def event_type_at(address: str, name: str, credentials: Credentials) -> EventType:
    """`RefusedError` (NOT_FOUND) if the broker has none."""
    request = DESCRIBE.request(type_name=name)
    return event_type_of(await call_broker(address, DESCRIBE, request, credentials))


async def inspect_broker(
    address: str,
    *,
    listed: int | None = None,
    tls: Tls | str | Path | None = None,
    token: Token | None = None,
) -> tuple[str, dict[str, Any]]:
    """A broker's state as text and as plain values. `tls` and `token` as for `Client`.

    At most `listed` items of each list (types, clients, subscriptions, slots), by default 100, at most 1,000,
    and the number left off. `ConnectError` if no broker answers.
    """
    return await inspect_as(address, credentials(tls, token), listed)


async def inspect_as(
    address: str, credentials: Credentials, listed: int | None
) -> tuple[str, dict[str, Any]]:
    if listed is not None and listed < 0:
        raise ValueError(f"listed is {listed}: expected 0 to 1,000")
    request = INSPECT.request(listed=listed)
    reply = await call_broker(address, INSPECT, request, credentials)
    return reply.text, json.loads(reply.json)


async def explain(
    address: str,
    client: str,
    subscription_id: int,
    event: Mapping[str, object],
    credentials: Credentials = PLAIN,
) -> tuple[list[Step], list[str]]:
    """Where an event stops on its way to a subscription, and why: each broker's answer, from the subscription
    to the publishers, and a verdict for each place where events enter or the walk ends.

    `RefusedError` if the broker at `address` has no such subscription (NOT_FOUND), or the event does not fit
    its type (INVALID_ARGUMENT); `ConnectError` if it does not answer.
    """
    text = json.dumps(event)
    steps: list[Step] = []
    verdicts: list[str] = []
    todo: list[tuple[str, str, int, list[str]]] = [(address, f"client/{client}", subscription_id, [])]
    while todo:
        where, interface, number, stops = todo.pop(0)
        try:
            request = EXPLAIN.request(interface=interface, subscription_id=number, event=text)
            reply = await call_broker(where, EXPLAIN, request, credentials)
            step = json.loads(reply.json)
        except (ConnectError, RefusedError) as error:
            if not steps:
                raise
            verdicts.append(f"upstream of {interface.removeprefix('broker/')}: {error}")
            continue
        steps.append(step)
        # The broker nearest to the publisher stops the event first.
        stops = [*_stops(step), *stops]
        for publisher in step["publishers"]:
            stop = stops[0] if stops else _delivery(steps[0])
            if publisher in step["outside"]:
                stop = f"it is refused at {step['broker']}: outside of {step['promises'][publisher]}"
            verdicts.append(f"from {publisher.removeprefix('client/')} at {step['broker']}: {stop}")
        for way in step["upstream"]:
            name, neighbour = way["neighbour"], step["neighbours"][way["neighbour"]]
            if way["slot"] is None:
                why = f"which promises {way['promised']}" if way["promised"] else "which promises nothing"
                verdicts.append(
                    f"from upstream of {name}: it stops there: {step['broker']} has no slot at {name}, {why}"
                )
                continue
            pending = []
            if not neighbour["connected"]:
                pending.append(f"it waits at {name}: the link to {step['broker']} is broken")
            if not way["acknowledged"]:
                slot = f"slot {way['slot']} (epoch {way['epoch']})"
                pending.append(f"it may stop at {name}: {slot} has not taken effect yet")
            todo.append((neighbour["address"], f"broker/{step['broker']}", way["slot"], [*pending, *stops]))
    return steps, verdicts or ["no client publishes the type"]


def _delivery(step: Step) -> str:
    if not step["undecided"]:
        return "it is delivered"
    return f"it reaches the client, which decides: {'; '.join(step['calls'])}"


def _stops(step: Step) -> list[str]:
    if step["matches"]:
        return []
    slot = f"{step['interface'].partition('/')[2]}#{step['subscription']}"
    reasons = "; ".join(step["failing"])
    return [f"it stops at {step['broker']}: {slot} (epoch {step['epoch']}) does not match, {reasons}"]


async def follow(
    address: str,
    type_name: str,
    publisher: str,
    sequence: int,
    credentials: Credentials = PLAIN,
    *,
    seconds: float = 2.0,
) -> AsyncIterator[Step]:
    """What each broker did with an event, by its ring of recent events, from `address` on.

    A broker to which the event was sent is polled for `seconds`; then its step has `seen` false. `error` is
    why it does not answer; the first one raises `ConnectError` or `RefusedError`.
    """
    request = FOLLOW.request(type_name=type_name, publisher=publisher, sequence=sequence)
    loop = asyncio.get_running_loop()
    todo = [("", address)]
    while todo:
        name, where = todo.pop(0)
        deadline = loop.time() + seconds
        while True:
            try:
                reply = await call_broker(where, FOLLOW, request, credentials)
                step: Step = json.loads(reply.json)
            except (ConnectError, RefusedError) as error:
                if not name:
                    raise
                step = {"broker": name, "seen": False, "error": str(error)}
                break
            if step["seen"] or loop.time() > deadline:
                break
            await asyncio.sleep(0.02)
        yield step
        if step["seen"]:
            todo += [(name, step["neighbours"][name]["address"]) for name in step["links"]]


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """Rates are events per second since the last reading, 0 in the first. None is unknown."""

    broker: str
    address: str
    state: str
    """"serving", "not ready" or "no answer"."""
    links: str
    """Connected and all, as "2/3"."""
    events_in: float = 0.0
    events_out: float = 0.0
    updates: float = 0.0
    sessions: int = 0
    subscriptions: int = 0
    waiting_events: int = 0
    waiting_bytes: int = 0
    dropped: int = 0
    update_p99_s: float | None = None
    stored_bytes: int | None = None
    resident_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """`page`, of the documents, says what to do."""

    broker: str
    text: str
    page: str


@dataclass(frozen=True, slots=True)
class Overview:
    """Connections with most waiting bytes (`slowest`), sessions with most subscriptions (`largest`), and the
    number of `others` beyond `MOST_BROKERS`, which were not read."""

    brokers: list[BrokerRow]
    problems: list[Problem]
    slowest: list[dict[str, Any]]
    largest: list[dict[str, Any]]
    others: int = 0


class OverviewReader:
    def __init__(self, address: str, credentials: Credentials = PLAIN) -> None:
        self._credentials = credentials
        self._first = address
        self._addresses: dict[str, str] = {}
        self._others: set[str] = set()
        self._before: dict[str, tuple[float, State]] = {}
        self._last: dict[str, State] = {}

    async def read(self) -> Overview:
        """`CoveyError` if no broker answers at first; later, silent ones have a row without values."""
        states, failed = await self._walk()
        now = time.monotonic()
        before, self._before = self._before, {name: (now, state) for name, state in states.items()}
        self._last |= states
        rows, problems = [], []
        for name in sorted(self._addresses):
            address = self._addresses[name]
            if name in states:
                rows.append(row_of(address, states[name], now, before.get(name)))
                problems += problems_of(states[name], before.get(name, (0.0, {}))[1])
            else:
                rows.append(BrokerRow(name, address, "no answer", ""))
                problems.append(self._silent(name, failed[name], states))
        slowest, largest = _first(states, "slowest", "bytes"), _first(states, "largest", "subscriptions")
        return Overview(rows, problems, slowest, largest, len(self._others))

    def _silent(self, name: str, why: str, states: Mapping[str, State]) -> Problem:
        """Why: by its goodbye to a neighbour, or a full disk in its last state."""
        partings = [each["partings"][name] for each in states.values() if name in each["partings"]]
        stored = next((each for each in partings if CANNOT_STORE in each), None)
        if stored is not None:
            return Problem(name, stored, _FULL_PAGE)
        full = full_disk_of(self._last.get(name, {}))
        return Problem(name, f"{why}; {full}", _FULL_PAGE) if full else Problem(name, why, _RUN_PAGE)

    async def read_json(self) -> str:
        return json.dumps(asdict(await self.read()))

    async def _walk(self) -> tuple[dict[str, State], dict[str, str]]:
        """States, and errors of brokers that do not answer."""
        states: dict[str, State] = {}
        failed: dict[str, str] = {}
        if not self._addresses:
            state = await self._state(self._first)
            self._addresses[state["broker"]] = self._first
            states[state["broker"]] = state
            self._note_neighbours(state)
        self._others.clear()
        gate = asyncio.Semaphore(_AT_ONCE)

        async def read(name: str) -> None:
            try:
                async with gate:
                    states[name] = await self._state(self._addresses[name])
            except CoveyError as error:
                failed[name] = str(error)

        while todo := [name for name in self._addresses if name not in states and name not in failed]:
            await asyncio.gather(*map(read, todo))
            for state in list(states.values()):
                self._note_neighbours(state)
        return states, failed

    async def _state(self, address: str) -> State:
        _, state = await inspect_as(address, self._credentials, _NEIGHBOURS_ALONE)
        if "partings" not in state:
            raise CoveyError(f"the broker at {address} is of an older version, which shows too little")
        return state

    def _note_neighbours(self, state: State) -> None:
        for name, neighbour in state["neighbours"].items():
            if len(self._addresses) < MOST_BROKERS:
                self._addresses.setdefault(name, neighbour["address"])
            elif name not in self._addresses:
                self._others.add(name)


def row_of(address: str, state: State, now: float, before: tuple[float, State] | None) -> BrokerRow:
    """Rates are since `before`."""
    neighbours = state["neighbours"].values()

    def rate(count: Callable[[State], int]) -> float:
        if before is None or before[1]["process"] != state["process"]:
            return 0.0
        return max(0.0, (count(state) - count(before[1])) / max(now - before[0], 1e-3))

    return BrokerRow(
        state["broker"],
        address,
        "not ready" if state["missing"] else "serving",
        f"{sum(each['connected'] for each in neighbours)}/{len(neighbours)}",
        rate(lambda each: each["core"]["totals"]["events_received"]),
        rate(lambda each: each["core"]["totals"]["events_sent"]),
        rate(lambda each: each["core"]["totals"]["received"].get("Update", 0)),
        state["sessions"],
        state["subscriptions"],
        state["waiting_events"],
        state["waiting_bytes"],
        state["dropped_events"],
        None if state["update_delay_s"] is None else state["update_delay_s"]["p99"],
        state["stored_bytes"],
        state["resident_bytes"],
    )


def problems_of(state: State, before: State) -> list[Problem]:
    """Most serious first."""
    name = state["broker"]
    cut = {f"broker/{neighbour}" for neighbour, link in state["neighbours"].items() if not link["connected"]}
    found = [
        Problem(name, f"not ready: {each['what']}, {each['why']}", "operations.md#health-and-readiness")
        for each in state["missing"]
        if each["what"] not in cut
    ]
    if full := full_disk_of(state):
        found.append(Problem(name, full, _FULL_PAGE))
    for neighbour, link in state["neighbours"].items():
        if not link["connected"]:
            why = state["partings"].get(neighbour, "not linked yet")
            page = _FULL_PAGE if CANNOT_STORE in why else _RUN_PAGE
            found.append(Problem(name, f"no connection to {neighbour} at {link['address']}: {why}", page))
    for neighbour, conflicts in state.get("type_conflicts", {}).items():
        if name < neighbour:  # the other has the same sentences
            found += [Problem(name, each, _RUN_PAGE) for each in conflicts]
    taken = {each["interface"]: each["frames_acknowledged"] for each in before.get("slowest", ())}
    for queue in state["slowest"]:
        stalled = taken.get(queue["interface"]) == queue["frames_acknowledged"]
        if queue["full"] or stalled:
            size = f"{queue['events']:,} events wait, {queue['bytes'] / 2**20:.1f} MiB"
            why = "its queue is full" if queue["full"] else "it takes nothing"
            text = f"{queue['interface'].partition('/')[2]} is too slow: {size}, {why}"
            found.append(Problem(name, text, _SLOW_PAGE))
    if (lost := state["dropped_events"] - before.get("dropped_events", state["dropped_events"])) > 0:
        found.append(Problem(name, f"{lost:,} events dropped since the last reading", "guarantees.md"))
    if state["held"]:
        text = f"sources are held, since receivers are slow: {', '.join(list(state['held'])[:3])}"
        found.append(Problem(name, text, _SLOW_PAGE))
    return found


def full_disk_of(state: State) -> str:
    """Empty unless the disk is nearly full."""
    free = state.get("free_bytes")
    if free is None or free >= _LEAST_FREE_BYTES:
        return ""
    return f"the disk on which it stores is nearly full: {free / 2**20:.1f} MiB are free"


def _first(states: Mapping[str, State], of: str, by: str) -> list[dict[str, Any]]:
    every = [{"broker": name, **each} for name, state in states.items() for each in state[of]]
    return sorted(every, key=lambda each: -each[by])[:10]
