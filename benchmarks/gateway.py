"""`gateway`: what browsers that never read cost the others.

    publisher -> broker -> gateway 0 -> browsers, all of which read
                        -> gateway 1 -> browsers, some of which never read

Broker, gateways and browsers are processes. Both gateways have all their browsers from the beginning, and
get events in turns, so both have the same noise. Before the first round the queues of the browsers that
never read are filled, so each batch makes the gateway drop or conflate. Latency is from publishing to the
browser's socket.

The browsers' process speaks the gateway's messages by itself, since a WebSocket library takes longer for
a message than the gateway does. A browser acknowledges as `covey.js` does.
"""

from __future__ import annotations

import asyncio
import gc
import json
import struct
import sys
import time
from array import array
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.harness import Words, command, steady
from covey.cli.support.output import print_table
from covey.gateway import Limits
from covey.matcher import EventType
from covey.matcher.errors import CoveyError, InputError
from covey.overlay import Client
from covey.overlay.node.server import descriptor_limit
from covey.overlay.transport import event_loop
from covey.sim.experiments.local_overlay import LocalOverlay, free_addresses
from covey.sim.experiments.processes import Worker, cpu_ns, peak_resident_bytes, serve
from covey.sim.progress import Progress, silent

_ACKNOWLEDGED_WITHIN_S = 1.0
_ACKNOWLEDGED_BYTES = 65_536
_AT_ONCE = 50
_WITHIN_S = 60.0
_TEXT, _CLOSE, _PING, _PONG = 1, 8, 9, 10
_SUBSCRIBED, _UNSUBSCRIBED = 1, 2
_FILTER = "run == $run and number >= $least and x between $x0 and $x1"


class Arrived:
    """An item per batch and browser of one gateway."""

    def __init__(self) -> None:
        self.numbers, self.latencies_ns, self.counts = array("q"), array("q"), array("q")

    def of(self, first: int, last: int) -> np.ndarray[Any, Any]:
        """Numbers, latencies in ns and event counts of batches `first` to `last` - 1."""
        columns = [np.array(each) for each in (self.numbers, self.latencies_ns, self.counts)]
        inside = (columns[0] >= first) & (columns[0] < last)
        return np.stack([column[inside] for column in columns])


class Browser(asyncio.Protocol):
    """A browser that does not read (`reads` false) stops after it has subscribed, until `listen`."""

    def __init__(self, address: str, hello: dict[str, Any], values: dict[str, Any], arrived: Arrived) -> None:
        self.policy: str = hello["overflow"]
        self.reads = True
        self.stage = asyncio.Event()
        """Set when it has subscribed, has received everything, or its session has ended."""
        self.got = 0
        self.gaps: Counter[str] = Counter()
        self.notices: Counter[str] = Counter()
        """Counts of overflows, and of ends: of connections by close code, of sessions."""
        self._address, self._hello, self._values, self._arrived = address, hello, values, arrived
        self._buffer = bytearray()
        self._open = self._listening = self._lost = False
        self._received = self._unacknowledged = 0
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    async def connect(self) -> None:
        """Returns when it has subscribed, or has received everything."""
        host, _, port = self._address.rpartition(":")
        await asyncio.get_running_loop().create_connection(lambda: self, host, int(port))
        await asyncio.wait_for(self.stage.wait(), _WITHIN_S)

    async def listen(self) -> None:
        """Read on; returns when it has received everything. A broken connection is followed by another one,
        which resumes the session."""
        assert self._transport is not None
        self.stage.clear()
        self.reads = self._listening = True
        if not self._lost:
            self._unsubscribe()
            self._transport.resume_reading()
            await asyncio.wait_for(self.stage.wait(), _WITHIN_S)
        if self._lost:
            self.stage.clear()
            await self.connect()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- the connection ---------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport, self._open, self._lost = transport, False, False
        self._buffer.clear()
        key = b64encode(bytes(16)).decode()
        lines = (
            "GET /socket HTTP/1.1", f"Host: {self._address}", "Upgrade: websocket", "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", "",
        )  # fmt: skip
        transport.write("\r\n".join(lines).encode())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._open:
            head, end, _ = self._buffer.partition(b"\r\n\r\n")
            if not end:
                return
            if not head.startswith(b"HTTP/1.1 101"):
                self.notices[head.split(b"\r\n")[0].decode(errors="replace")] += 1
                return self.close()
            del self._buffer[: len(head) + len(end)]
            self._open = True
            self._say("hello", **self._hello, received=self._received)
        now_ns = time.perf_counter_ns()
        for code, payload in self._frames():
            if code == _TEXT:
                self._message(payload, now_ns)
            elif code == _PING:
                self._send(_PONG, payload)
            elif code == _CLOSE:
                self.notices[f"closed {int.from_bytes(payload[:2])}"] += 1
                self.close()

    def _frames(self) -> Iterator[tuple[int, bytes]]:
        """The complete frames; a server sends each message in one, and does not mask it."""
        buffer, at = self._buffer, 0
        while len(buffer) - at >= 2:
            length, start = buffer[at + 1], at + 2
            if length == 126:
                length, start = int.from_bytes(buffer[start : start + 2]), start + 2
            elif length == 127:
                length, start = int.from_bytes(buffer[start : start + 8]), start + 8
            if start + length > len(buffer):
                break
            yield buffer[at] & 15, bytes(buffer[start : start + length])
            at = start + length
        del buffer[:at]

    def _send(self, code: int, payload: bytes) -> None:
        assert self._transport is not None
        size = len(payload)
        length = bytes([128 | size]) if size < 126 else struct.pack("!BH", 128 | 126, size)
        self._transport.write(bytes([128 | code]) + length + bytes(4) + payload)

    def _say(self, kind: str, **fields: Any) -> None:
        self._send(_TEXT, json.dumps({"kind": kind, **fields}).encode())

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._lost = True
        self.notices["connection lost"] += 1
        self.stage.set()

    # --- messages ---------------------------------------------------------------------------------

    def _message(self, data: bytes, now_ns: int) -> None:
        if data.startswith(b'{"kind":"welcome"'):
            return self._welcome(json.loads(data))
        self._received += 1
        if data.startswith(b'{"kind":"events"'):
            self._events(data, now_ns)
        else:
            self._other(json.loads(data))
        if self.reads:
            self._acknowledge_later(len(data))

    def _welcome(self, message: dict[str, Any]) -> None:
        if self._hello.get("session") is None:
            self._hello["session"] = message["session"]
            fields = {"type": "Position", "filter": _FILTER, "values": self._values}
            self._say("subscribe", request=_SUBSCRIBED, subscription=1, **fields)
        elif not message["resumed"]:
            self.notices["session ended"] += 1
            self.stage.set()
        elif message["request"] < _UNSUBSCRIBED:
            self._unsubscribe()

    def _unsubscribe(self) -> None:
        """Its answer comes behind everything else."""
        self._say("unsubscribe", request=_UNSUBSCRIBED, subscription=1)

    def _events(self, data: bytes, now_ns: int) -> None:
        """All events of a batch have the same time and number."""
        count = data.count(b'"sent_ns":')
        self.got += count
        if not self._listening:
            self._arrived.numbers.append(_number(data, b'"number":'))
            self._arrived.latencies_ns.append(now_ns - _number(data, b'"sent_ns":'))
            self._arrived.counts.append(count)

    def _other(self, message: dict[str, Any]) -> None:
        match message:
            case {"kind": "answer"}:
                if not self.reads and self._transport is not None:
                    self._transport.pause_reading()
                self.stage.set()
            case {"kind": "gap", "cause": cause, "count": count}:
                self.gaps[cause] += count
            case {"kind": "overflow"}:
                self.notices["overflow"] += 1
            case {"kind": "error", "status": status}:
                self.notices[status] += 1

    def _acknowledge_later(self, size: int) -> None:
        self._unacknowledged += size
        if self._unacknowledged >= _ACKNOWLEDGED_BYTES:
            self._acknowledge()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_ACKNOWLEDGED_WITHIN_S, self._acknowledge)

    def _acknowledge(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._unacknowledged = None, 0
        self._say("acknowledge", received=self._received)


def _number(data: bytes, name: bytes) -> int:
    start = data.index(name) + len(name)
    end = data.index(b",", start)
    return int(data[start:end].rstrip(b"}]"))


def box_of(number: int, count: int, share: float) -> tuple[float, float]:
    """The bounds of one of `count` browsers, each of which has `share` of the interval from 0 to 1."""
    x0 = (1 - share) * number / max(1, count - 1)
    return x0, x0 + share


class Browsers:
    def __init__(self, browsers: int, share: float, runs: list[Any]) -> None:
        self._arrived: list[Arrived] = []
        self._runs: list[list[Browser]] = []
        for run_number, (address, policies) in enumerate(runs):
            arrived, of_run = Arrived(), []
            for number in range(browsers):
                silent = number < len(policies)
                x0, x1 = (0.0, 1.0) if silent else box_of(number, browsers, share)
                values = {"run": run_number, "least": -1 if silent else 0, "x0": x0, "x1": x1}
                hello = {"overflow": policies[number] if silent else "drop_oldest"}
                of_run.append(Browser(address, hello, values, arrived))
                of_run[-1].reads = not silent
            self._arrived.append(arrived)
            self._runs.append(of_run)

    async def start(self) -> None:
        descriptor_limit()
        gc.disable()  # its pauses would be taken for the gateway's
        room = asyncio.Semaphore(_AT_ONCE)

        async def connect(browser: Browser) -> None:
            async with room:
                await browser.connect()

        await asyncio.gather(*(connect(browser) for of_run in self._runs for browser in of_run))

    async def until(self, run: int, first: int, last: int, events: int) -> dict[str, Any]:
        """What the reading browsers have of some batches, once it is so many events, or after a minute."""
        deadline = time.perf_counter() + _WITHIN_S
        numbers, latencies, counts = arrived = self._arrived[run].of(first, last)
        while counts.sum() < events and time.perf_counter() < deadline:
            await asyncio.sleep(0.05)
            numbers, latencies, counts = arrived = self._arrived[run].of(first, last)
        p50, p99 = np.percentile(latencies, (50, 99)) if arrived.size else (0, 0)
        most = int(latencies.max()) if arrived.size else 0
        frames, got = len(numbers), int(counts.sum())
        return {"frames": frames, "events": got, "p50_ns": float(p50), "p99_ns": float(p99), "max_ns": most}

    async def listen(self, run: int) -> dict[str, Any]:
        """What the browsers receive that have not read so far."""
        silent = [each for each in self._runs[run] if not each.reads]
        await asyncio.gather(*(each.listen() for each in silent))
        told = [
            {"policy": each.policy, "got": each.got, "gaps": each.gaps, "notices": each.notices}
            for each in silent
        ]
        return {"told": told}

    async def stop(self) -> None:
        for browser in [each for of_run in self._runs for each in of_run]:
            browser.close()


if __name__ == "__main__":
    serve({"browsers": Browsers}, event_loop.run)


POSITION = EventType(
    "Position",
    {"id": "int64", "run": "int64", "number": "int64", "sent_ns": "int64", "x": "float64", "y": "float64"},
    key="id",
)
POLICIES = ("drop_oldest", "drop_newest", "conflate", "disconnect")
RUNS = ("all read", "some never read")
_START_S = 300.0
_FILLING = 100
"""Events of a batch before the first round."""
_EVENT_BYTES = 80
"""At least, as JSON."""


@dataclass(frozen=True, slots=True)
class GatewayPlan:
    """Measure browsers on one gateway, with and without some that never read.

    One broker, two gateways and a process with all browsers. At the first gateway all browsers read; at the
    second some never do, and their queues are full before the first round. The figures are medians over the
    rounds, of the browsers that read. In the end the others read, too, and the second table says what they
    got and were told.

    Example: python -m benchmarks gateway --share 0.3 --batch 100
    """

    browsers: Annotated[int, typer.Option(min=2, help="WebSockets of each gateway.")] = 1_000
    silent: Annotated[int, typer.Option(min=1, help="Of those of the second one, never read.")] = 100
    overflow: Annotated[tuple[str, ...], Words("What these ask for, in turn", POLICIES)] = POLICIES[:3]
    rate: Annotated[int, typer.Option(min=1, help="Batches per second.")] = 10
    batch: Annotated[int, typer.Option(min=1, help="Events of a batch.")] = 10
    share: Annotated[
        float, typer.Option(help="Of each batch in the bounds of a browser, which are its own below 1.")
    ] = 1.0
    seconds: Annotated[float, typer.Option(min=0.1, help="Of each round, for each gateway.")] = 8.0
    rounds: Annotated[int, typer.Option(min=1, help="Of the first and then the second gateway.")] = 3

    def __post_init__(self) -> None:
        if not 0 < self.silent < self.browsers:
            raise InputError(f"silent is {self.silent}: expected from 1 to {self.browsers - 1}, one reads")
        if not 0.0 < self.share <= 1.0:
            raise InputError(f"share is {self.share}: expected more than 0, at most 1")


@dataclass(slots=True)
class RunResult:
    """The reading browsers of one gateway: by round, frames per second, p50, p99 and maximum in ms, and the
    gateway's share of a core. `missing` events of all rounds did not come within a minute."""

    name: str
    frames_per_s: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    max_ms: list[float] = field(default_factory=list)
    cores: list[float] = field(default_factory=list)
    missing: int = 0
    peak_mb: float = 0.0


@dataclass(slots=True)
class Told:
    """What browsers of one policy that never read received in the end: events, events in gaps by cause,
    notices and ends of connections; and events that neither came nor were in a gap."""

    policy: str
    browsers: int = 0
    got: int = 0
    gaps: dict[str, int] = field(default_factory=dict)
    notices: dict[str, int] = field(default_factory=dict)
    untold: int = 0


@dataclass(frozen=True, slots=True)
class GatewayResults:
    runs: list[RunResult]
    told: list[Told]


async def measure_gateway(plan: GatewayPlan, progress: Progress = silent) -> GatewayResults:
    progress("starting a broker and two gateways", 0.0)
    async with AsyncExitStack() as stack:
        overlay = await stack.enter_async_context(LocalOverlay((), event_types=[POSITION]))
        publisher = await stack.enter_async_context(Client(overlay.addresses["b1"], "publisher"))
        await publisher.advertise(POSITION)
        gateways = [
            await stack.enter_async_context(_gateway(overlay.addresses["b1"], plan.browsers)) for _ in RUNS
        ]
        policies = [*islice(cycle(plan.overflow), plan.silent)]
        progress(f"connecting {2 * plan.browsers:,} browsers", 0.05)
        runs = [[gateways[0][0], []], [gateways[1][0], policies]]
        settings = {"browsers": plan.browsers, "share": plan.share, "runs": runs}
        browsers = await stack.enter_async_context(
            Worker("benchmarks.gateway", "browsers", patience_s=_START_S, **settings)
        )
        return await _Rounds(plan, publisher, [pid for _, pid in gateways], browsers).all(progress)


class _Rounds:
    def __init__(
        self, plan: GatewayPlan, publisher: Client, process_ids: list[int], browsers: Worker
    ) -> None:
        self._plan = plan
        self._publisher = publisher
        self._process_ids = process_ids
        self._browsers = browsers
        self._numbers = [0, 0]
        self._x = [(each + 0.5) / plan.batch for each in range(plan.batch)]
        self._per_batch = [_matching(plan, self._x, run * plan.silent) for run in (0, 1)]
        """Events of a batch for all reading browsers together."""

    async def all(self, progress: Progress) -> GatewayResults:
        plan = self._plan
        progress("filling the queues of those that never read", 0.2)
        filled = await self._fill()
        results = [*map(RunResult, RUNS)]
        for run in (0, 1):  # once without a measurement
            await self._round(run, RunResult(""), 1.0)
        for number in range(plan.rounds):
            for run, result in enumerate(results):
                done = (number + run / 2) / plan.rounds
                progress(f"round {number + 1} of {plan.rounds}: {result.name}", 0.3 + 0.6 * done)
                await self._round(run, result, plan.seconds)
        for process_id, result in zip(self._process_ids, results, strict=True):
            result.peak_mb = peak_resident_bytes(process_id) / 1e6
        progress("reading what the others are told", 0.95)
        published = filled + self._numbers[1] * plan.batch
        listened = await self._browsers.request("listen", run=1)
        return GatewayResults(results, _told(listened["told"], published))

    async def _fill(self) -> int:
        """Publish more events than a gateway keeps for a browser, to those that do not read; returns how
        many."""
        limits = Limits()
        batches = int(1.1 * (limits.queue_bytes + limits.window_bytes) / (_FILLING * _EVENT_BYTES)) + 1
        for _ in range(batches):
            await self._publish(1, -1, [0.5] * _FILLING)
        return batches * _FILLING

    async def _publish(self, run: int, number: int, x: list[float]) -> None:
        fields = {"run": run, "number": number, "sent_ns": time.perf_counter_ns(), "y": 0.123456}
        events = [{"id": each, "x": at, **fields} for each, at in enumerate(x)]
        await self._publisher.publish_batch(POSITION.name, events, confirm=True)

    async def _round(self, run: int, result: RunResult, seconds: float) -> None:
        plan, first = self._plan, self._numbers[run]
        count = max(1, round(plan.rate * seconds))
        began, used_ns = time.perf_counter(), cpu_ns(self._process_ids[run])
        async for number in steady(plan.rate, count):
            await self._publish(run, first + number, self._x)
        self._numbers[run] += count
        events = count * self._per_batch[run]
        got = await self._browsers.request("until", run=run, first=first, last=first + count, events=events)
        took_s = time.perf_counter() - began
        result.frames_per_s.append(got["frames"] / took_s)
        for times, of in ((result.p50_ms, "p50_ns"), (result.p99_ms, "p99_ns"), (result.max_ms, "max_ns")):
            times.append(got[of] / 1e6)
        result.cores.append((cpu_ns(self._process_ids[run]) - used_ns) / 1e9 / took_s)
        result.missing += events - got["events"]


def _matching(plan: GatewayPlan, x: list[float], silent: int) -> int:
    boxes = (box_of(each, plan.browsers, plan.share) for each in range(silent, plan.browsers))
    return sum(x0 <= each <= x1 for x0, x1 in boxes for each in x)


def _told(browsers: list[dict[str, Any]], published: int) -> list[Told]:
    by_policy: dict[str, Told] = {}
    for each in browsers:
        told = by_policy.setdefault(each["policy"], Told(each["policy"]))
        told.browsers += 1
        told.got += each["got"]
        for counts, more in ((told.gaps, each["gaps"]), (told.notices, each["notices"])):
            for name, count in more.items():
                counts[name] = counts.get(name, 0) + count
        told.untold += published - each["got"] - sum(each["gaps"].values())
    return [*by_policy.values()]


@asynccontextmanager
async def _gateway(broker: str, browsers: int) -> AsyncIterator[tuple[str, int]]:
    (address,) = free_addresses(1)
    bounds = ("--max-connections-per-address", str(browsers + 10))
    words = ("gateway", "--broker", broker, "--listen", address, *bounds)
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "covey.cli.main", *words), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert started.stdout is not None
        if not await asyncio.wait_for(started.stdout.readline(), _START_S):
            raise CoveyError("a gateway does not serve")
        yield address, started.pid
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()


def show(plan: GatewayPlan, results: GatewayResults) -> None:
    print_table(
        f"{plan.browsers:,} browsers, of which {plan.silent:,} never read at the second gateway; {plan.rate} "
        f"batches of {plan.batch} events per second: ms from publishing to the socket",
        ["gateway", "frames/s", "p50", "p99", "worst p99", "max", "missing", "cores", "peak MB"],
        [
            [
                each.name,
                *(round(median(values), 1) for values in (each.frames_per_s, each.p50_ms, each.p99_ms)),
                *(round(max(values), 1) for values in (each.p99_ms, each.max_ms)),
                each.missing,
                round(median(each.cores), 2),
                round(each.peak_mb, 1),
            ]
            for each in results.runs
        ],
    )
    print_table(
        "what those that never read got and were told, once they did",
        ["overflow", "browsers", "events", "in gaps", "notices and ends", "neither"],
        [
            [each.policy, each.browsers, each.got, _words(each.gaps), _words(each.notices), each.untold]
            for each in results.told
        ],
    )


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())) or "-"


gateway = command(GatewayPlan, measure_gateway, show)
