"""The connection of a client to its broker: opened again whenever it breaks, until the client closes.

Invariant: while the broker keeps the session, a broken connection loses nothing and repeats nothing
(`core/link/link.py`); after the session has ended, the client resends its whole state first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

from covey.overlay.client.errors import ConnectError
from covey.overlay.core.endpoint.client_endpoint import ClientEndpoint
from covey.overlay.core.endpoint.limits import SlowConsumer
from covey.overlay.core.link.link import Frame, LinkError
from covey.overlay.core.messages import Acknowledge, Message
from covey.overlay.transport.backoff import Backoff
from covey.overlay.transport.call_error import CallError
from covey.overlay.transport.channel import CONNECT, Channel, error_of
from covey.overlay.transport.codec import WireMessage
from covey.overlay.transport.credentials import PLAIN, Credentials
from covey.overlay.transport.errors import MalformedPacketError
from covey.overlay.transport.loop_timer import LoopTimer
from covey.overlay.transport.packets import Greeting, Role, decode_packet, encode_greeting
from covey.overlay.transport.pump import Pump
from covey.overlay.transport.rpc_call import RpcCall

log = logging.getLogger("covey.client")

_ANSWER_WITHIN_S = 10.0
_REFUSED_TOKENS = 3
"""So many in a row end a client that has connected before: a new one does not help."""
_PASSING = {"OK", "UNAVAILABLE", "CANCELLED", "INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED"}
"""Statuses after which the client tries again; all others end it."""


class Handlers(Protocol):
    """What the connection calls: messages arrived; events were accepted or refused; the connection opened,
    broke, or failed for good.
    """

    def take(self, messages: tuple[WireMessage | Acknowledge, ...]) -> None: ...

    def advanced(self) -> None: ...

    def opened(self, resumed: bool) -> None: ...

    def lost(self, why: str) -> None: ...

    def failed(self, error: ConnectError) -> None: ...


class BrokerConnection:
    """Keeps a link to a broker open. `run` returns when the client closes or cannot connect again."""

    def __init__(
        self,
        address: str,
        name: str,
        endpoint: ClientEndpoint,
        slow_consumer: SlowConsumer,
        handlers: Handlers,
        credentials: Credentials = PLAIN,
        *,
        durable: bool = False,
    ) -> None:
        self._durable = durable
        self.address = address
        self.credentials = credentials
        self.name = name
        self.endpoint = endpoint
        self.broker = ""
        self.why = ""
        self._slow_consumer = slow_consumer
        self._handlers = handlers
        self._pump: Pump | None = None
        self._closing = asyncio.Event()
        self._timer = LoopTimer()
        self._refused_tokens = _REFUSED_TOKENS

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
        endpoint, resets = self.endpoint, self.endpoint.resets

        def release() -> None:
            if resets == endpoint.resets:
                endpoint.link.consume(size)
                if endpoint.link.ready:
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
            async with Channel(self.address, credentials=self.credentials) as channel:
                call = channel.call(CONNECT)
                greeting = await self._greet(call)
                opened = True
                backoff.connected()
                await self._pump_until_it_ends(call, greeting)
        except CallError as failure:
            self.why = str(failure)
            if failure.status not in _PASSING and not self._renews(failure.status, opened):
                error = ConnectError(self.why, failure.status)
        except (LinkError, MalformedPacketError) as failure:
            self.why = str(failure)
        except TimeoutError:
            self.why = f"no answer from {self.address} within {_ANSWER_WITHIN_S:g} s"
        finally:
            self._pump = None
            self.endpoint.lost()
        if opened:
            self._handlers.lost(self.why)
        return error

    def _renews(self, status: str, opened: bool) -> bool:
        """Whether another token may help: this one has expired while the client was connected."""
        self._refused_tokens = 0 if opened else self._refused_tokens + 1
        renewable = status == "UNAUTHENTICATED" and self.credentials.renews
        return renewable and self._refused_tokens < _REFUSED_TOKENS

    async def _greet(self, call: RpcCall) -> Greeting:
        hello = Greeting(
            Role.CLIENT,
            self.name,
            self.endpoint.hello(),
            slow_consumer=self._slow_consumer,
            durable=self._durable,
        )
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
        endpoint, handlers = self.endpoint, self._handlers
        resumed = endpoint.open(greeting.hello, greeting.limits, time.monotonic_ns())
        self._pump = Pump(self, call, schemas=True, await_end=True)
        handlers.opened(resumed)
        await self._pump.run()
        raise error_of(call, self.address)

    # --- what the pump calls --------------------------------------------------------------------------------

    def delay_s(self) -> float:
        return 0.0

    @property
    def ready(self) -> bool:
        return self.endpoint.ready

    def receive(self, frames: list[Frame[WireMessage]]) -> int:
        now_ns = time.monotonic_ns()
        for frame in frames:
            messages = self.endpoint.receive(frame, now_ns)
            self._handlers.take(messages)
        self.endpoint.received()
        self._handlers.advanced()
        self._timer.arm(self.endpoint.next_timer(), now_ns, self._on_timer)
        if self.endpoint.ready:
            self.wake()
        return len(frames)

    def next_frame(self) -> Frame[Message] | None:
        now_ns = time.monotonic_ns()
        frame = self.endpoint.next_frame(now_ns)
        if self.endpoint.outbox.finished:
            self._handlers.advanced()
        self._timer.arm(self.endpoint.next_timer(), now_ns, self._on_timer)
        return frame

    def _on_timer(self, now_ns: int) -> None:
        self.endpoint.handle_timer(now_ns)
        self._timer.arm(self.endpoint.next_timer(), now_ns, self._on_timer)
        self.wake()

    # --- closing --------------------------------------------------------------------------------------------

    async def drained(self) -> None:
        """Until the broker has received everything and knows what has arrived here, or the connection
        breaks.
        """
        while self.connected and not self.endpoint.link.idle:
            self.endpoint.link.ask()
            self.wake()
            await asyncio.sleep(0.005)
        if self.connected:
            self.endpoint.link.acknowledge()
            self.wake()
            await asyncio.sleep(0)

    def close(self) -> None:
        """Send a goodbye: the broker then ends the session."""
        self._closing.set()
        if self._pump is not None:
            self._pump.close("OK", "closed by the client")
