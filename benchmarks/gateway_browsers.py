"""The browsers of `gateway`: a process with many WebSockets, some of which stop to read.

It speaks the gateway's messages by itself, since a WebSocket library would need more time for what arrives
than the gateway does for what it sends. A browser acknowledges as `covey.js` does.
"""

from __future__ import annotations

import asyncio
import gc
import json
import struct
import time
from array import array
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from covey.overlay.node.server import descriptor_limit
from covey.overlay.transport.event_loop import run
from covey.sim.experiments.processes import serve

_ACKNOWLEDGED_WITHIN_S = 1.0
_ACKNOWLEDGED_BYTES = 65_536
_AT_ONCE = 50
"""Connections that are being opened."""
_WITHIN_S = 60.0
_TEXT, _CLOSE, _PING, _PONG = 1, 8, 9, 10
_SUBSCRIBED, _UNSUBSCRIBED = 1, 2
_FILTER = "run == $run and number >= $least and x between $x0 and $x1"


class Arrived:
    """The batches that the browsers of one gateway have got: an item for each of them and browser."""

    def __init__(self) -> None:
        self.numbers, self.latencies_ns, self.counts = array("q"), array("q"), array("q")

    def of(self, first: int, last: int) -> np.ndarray[Any, Any]:
        """Numbers, latencies in ns and counts of the events of batches `first` to `last` - 1."""
        columns = [np.array(each) for each in (self.numbers, self.latencies_ns, self.counts)]
        inside = (columns[0] >= first) & (columns[0] < last)
        return np.stack([column[inside] for column in columns])


class Browser(asyncio.Protocol):
    """One browser. `reads` is false for one that stops when it has subscribed, until `listen`."""

    def __init__(self, address: str, hello: dict[str, Any], values: dict[str, Any], arrived: Arrived) -> None:
        self.policy: str = hello["overflow"]
        self.reads = True
        self.stage = asyncio.Event()
        """Set when it has subscribed, or is told everything, or its session has ended."""
        self.got = 0
        self.gaps: Counter[str] = Counter()
        self.notices: Counter[str] = Counter()
        """Of overflows, and of ends: of connections by their close code, of sessions."""
        self._address, self._hello, self._values, self._arrived = address, hello, values, arrived
        self._buffer = bytearray()
        self._open = self._listening = self._lost = False
        self._received = self._unacknowledged = 0
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    async def connect(self) -> None:
        """Returns when it has subscribed, or is told everything."""
        host, _, port = self._address.rpartition(":")
        await asyncio.get_running_loop().create_connection(lambda: self, host, int(port))
        await asyncio.wait_for(self.stage.wait(), _WITHIN_S)

    async def listen(self) -> None:
        """Read on; returns when it has got or is told everything. A connection that has broken meanwhile is
        followed by another one, which goes on with the session."""
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
        """A frame, masked with zeros."""
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
        """All of a batch have the same time and number."""
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
    """The first number of this name."""
    start = data.index(name) + len(name)
    end = data.index(b",", start)
    return int(data[start:end].rstrip(b"}]"))


def box_of(number: int, count: int, share: float) -> tuple[float, float]:
    """The bounds of one of `count` browsers, each with that share of the interval from 0 to 1."""
    x0 = (1 - share) * number / max(1, count - 1)
    return x0, x0 + share


class Browsers:
    """All of them, by the run that they belong to; a role of a `Worker`."""

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

    async def start(self) -> dict[str, Any]:
        """Returns when all have subscribed."""
        descriptor_limit()
        gc.disable()  # its pauses would be taken for the gateway's
        room = asyncio.Semaphore(_AT_ONCE)

        async def connect(browser: Browser) -> None:
            async with room:
                await browser.connect()

        await asyncio.gather(*(connect(browser) for of_run in self._runs for browser in of_run))
        return {}

    async def execute(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return await (self._until(**arguments) if command == "until" else self._listen(**arguments))

    async def _until(self, run: int, first: int, last: int, events: int) -> dict[str, Any]:
        """What the browsers that read have got of some batches, once these are so many events; or what came
        within a minute."""
        deadline = time.perf_counter() + _WITHIN_S
        numbers, latencies, counts = arrived = self._arrived[run].of(first, last)
        while counts.sum() < events and time.perf_counter() < deadline:
            await asyncio.sleep(0.05)
            numbers, latencies, counts = arrived = self._arrived[run].of(first, last)
        p50, p99 = np.percentile(latencies, (50, 99)) if arrived.size else (0, 0)
        most = int(latencies.max()) if arrived.size else 0
        frames, got = len(numbers), int(counts.sum())
        return {"frames": frames, "events": got, "p50_ns": float(p50), "p99_ns": float(p99), "max_ns": most}

    async def _listen(self, run: int) -> dict[str, Any]:
        """What those get that have not read so far, and are told."""
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
    serve({"browsers": Browsers}, run)
