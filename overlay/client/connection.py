"""The connection of a client to its broker: opened again whenever it breaks, until the client closes.

Invariant: while the broker keeps the session, a broken connection loses nothing and repeats nothing
(`core/link/link.py`); after the session has ended, the client resends its whole state first.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from typing import Protocol

from covey.overlay.client.errors import ConnectError
from covey.overlay.core.endpoint.limits import SlowConsumer
from covey.overlay.core.link.link import Frame, Link, LinkError
from covey.overlay.core.messages import Acknowledge, Message
from covey.overlay.transport.backoff import Backoff
from covey.overlay.transport.channel import CONNECT, Channel, error_of
from covey.overlay.transport.codec import WireMessage
from covey.overlay.transport.errors import CallError, MalformedPacketError
from covey.overlay.transport.packets import Greeting, Role, decode_packet, encode_greeting
from covey.overlay.transport.pump import Pump
from covey.overlay.transport.rpc_call import RpcCall

log = logging.getLogger("covey.client")

_ANSWER_WITHIN_S = 10.0
_PASSING = {"OK", "UNAVAILABLE", "CANCELLED", "INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED"}
"""Statuses after which the client tries again; all others end it."""


class Handlers(Protocol):
    """What the connection calls: messages arrived; a frame is about to be built, was sent, was received; the
    connection opened, broke, or failed for good.
    """

    def take(self, messages: tuple[WireMessage | Acknowledge, ...]) -> None: ...

    def prepare(self) -> None: ...

    def sent(self, frame: Frame[Message]) -> None: ...

    def received(self) -> None: ...

    def opened(self, greeting: Greeting, resumed: bool) -> None: ...

    def lost(self, why: str) -> None: ...

    def failed(self, error: ConnectError) -> None: ...


class BrokerConnection:
    """Keeps a link to a broker open. `run` returns when the client closes or cannot connect again."""

    def __init__(
        self, address: str, name: str, slow_consumer: SlowConsumer, window_bytes: int, handlers: Handlers
    ) -> None:
        self.address = address
        self.name = name
        self.incarnation = secrets.randbits(63) | 1
        # One frame in flight, so that events gather as soon as the broker is busy. With two, the latency of
        # single events through a chain of three loaded brokers was 17 ms in place of 8.
        self.link = Link(self.incarnation, window_bytes=window_bytes, frames_in_flight=1)
        self.broker = ""
        self.why = ""
        self._slow_consumer = slow_consumer
        self._handlers = handlers
        self._pump: Pump | None = None
        self._closing = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._resets = 0

    @property
    def connected(self) -> bool:
        return self._pump is not None

    def wake(self) -> None:
        if self._pump is not None:
            self._pump.wake()

    def claim(self, size: int) -> Callable[[], None]:
        """A callback that grants so many bytes of credit again. It has no effect after the link was reset:
        then the broker has got a whole new window.
        """
        resets = self._resets

        def release() -> None:
            if resets == self._resets:
                self.link.consume(size)
                self.wake()

        return release

    async def run(self) -> None:
        backoff = Backoff()
        try:
            while not self._closing.is_set():
                error = await self._attempt(backoff)
                if self._closing.is_set():
                    return
                if error is not None:
                    self._handlers.failed(error)
                    return
                try:
                    await asyncio.wait_for(self._closing.wait(), backoff.pause_s())
                except TimeoutError:
                    continue
        except Exception as error:
            self._handlers.failed(ConnectError(f"the client's connection failed: {error!r}", "INTERNAL"))
            raise

    async def _attempt(self, backoff: Backoff) -> ConnectError | None:
        """One connection from beginning to end; the error if no other attempt can succeed."""
        opened = False
        error = None
        try:
            async with Channel(self.address) as channel:
                call = channel.call(CONNECT)
                greeting = await self._greet(call)
                opened = True
                backoff.connected()
                await self._pump_until_it_ends(call, greeting)
        except CallError as failure:
            self.why = str(failure)
            if failure.status not in _PASSING:
                error = ConnectError(self.why, failure.status)
        except (LinkError, MalformedPacketError) as failure:
            self.why = str(failure)
        except TimeoutError:
            self.why = f"no answer from {self.address} within {_ANSWER_WITHIN_S:g} s"
        finally:
            self._pump = None
        if opened:
            self._handlers.lost(self.why)
        return error

    async def _greet(self, call: RpcCall) -> Greeting:
        hello = Greeting(Role.CLIENT, self.name, self.link.hello(), slow_consumer=self._slow_consumer)
        call.send(encode_greeting(hello))
        data = await asyncio.wait_for(call.read(), _ANSWER_WITHIN_S)
        if data is None:
            raise error_of(call, self.address)
        greeting = decode_packet(data)
        if not isinstance(greeting, Greeting) or greeting.role is not Role.BROKER:
            raise MalformedPacketError(f"{self.address} did not answer as a broker")
        return greeting

    async def _pump_until_it_ends(self, call: RpcCall, greeting: Greeting) -> None:
        self.broker = greeting.id
        self.link.max_frame_bytes = greeting.limits.max_frame_bytes
        resumed = self.link.resume(greeting.hello)
        if not resumed:
            self._resets += 1
        handlers = self._handlers
        self._pump = Pump(self, call, schemas=True, await_end=True)
        handlers.opened(greeting, resumed)
        await self._pump.run()
        raise error_of(call, self.address)

    # --- what the pump calls --------------------------------------------------------------------------------

    busy = False

    @property
    def ready(self) -> bool:
        return self.link.ready

    def receive(self, frames: list[Frame[WireMessage]]) -> None:
        now_ns = time.monotonic_ns()
        for frame in frames:
            messages = self.link.receive(frame, now_ns)
            if messages:
                self._handlers.take(messages)
            self._handlers.received()
        self._arm(now_ns)
        self.wake()

    def next_frame(self) -> Frame[Message] | None:
        self._handlers.prepare()
        frame = self.link.next_frame()
        if frame is not None:
            self._handlers.sent(frame)
        return frame

    def _arm(self, now_ns: int) -> None:
        due_ns = self.link.next_timer()
        if self._timer is None and due_ns is not None:
            delay_s = max(0, due_ns - now_ns) / 1e9
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ns = time.monotonic_ns()
        self.link.handle_timer(now_ns)
        self._arm(now_ns)
        self.wake()

    async def close(self, grace_s: float) -> None:
        """Send a goodbye once all that was sent has arrived or the time is up: the broker then ends the
        session.
        """
        deadline = asyncio.get_running_loop().time() + grace_s
        while self.connected and not self.link.idle and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.005)
        self._closing.set()
        if self._pump is not None:
            self._pump.close("OK", "closed by the client")
