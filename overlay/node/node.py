"""One broker at work: drives its endpoint, which decides everything, on an event loop.

It reads the clocks, decodes messages, and re-arms one timer. Everything runs on one event loop, between two
awaits, so nothing needs a lock. An exception that nobody expected stops the broker: what it would do after it
is not known.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from covey.matcher.evaluation.evaluator import Evaluator
from covey.overlay.core.endpoint.admission import Undecodable
from covey.overlay.core.endpoint.broker_endpoint import BrokerEndpoint
from covey.overlay.core.endpoint.connections import (
    Connection,
    ConnectionRefusedError,
    IncomingConnection,
    Peer,
)
from covey.overlay.core.endpoint.interface_queue import InterfaceQueue
from covey.overlay.core.endpoint.options import EndpointOptions
from covey.overlay.core.link.link import Frame, Hello, Link, LinkError
from covey.overlay.core.messages import Interface, Message
from covey.overlay.core.operators.limits import Limiter
from covey.overlay.core.routing.broker import Broker
from covey.overlay.http2.frames import ErrorCode
from covey.overlay.node.operator_runner import LimitedRunner
from covey.overlay.node.overlay import Overlay
from covey.overlay.transport.call_error import CallError
from covey.overlay.transport.codec import WireMessage, decode_message, event_bytes
from covey.overlay.transport.errors import MessageError
from covey.overlay.transport.loop_timer import LoopTimer

T = TypeVar("T")

log = logging.getLogger("covey.broker")


class Node:
    """One broker process: its core and its endpoint. `on_failure` is called with an exception that nobody
    expected; the broker must end.
    """

    def __init__(
        self, overlay: Overlay, name: str, on_failure: Callable[[BaseException], None] | None = None
    ) -> None:
        self.overlay = overlay
        self.name = name
        self.started_ns = time.time_ns()
        self.operators = LimitedRunner(Limiter(overlay.operator_limits))
        self.core = Broker(
            name,
            routing=overlay.routing,
            engine=overlay.engine,
            event_types=overlay.event_types,
            neighbours=overlay.neighbours(name),
            replay_events=overlay.replay_events,
            damping=overlay.damping,
            merging=overlay.merging,
            merging_budget=overlay.merging_budget,
            evaluator=Evaluator(run=self.operators),
        )
        self.endpoint: BrokerEndpoint[WireMessage] = BrokerEndpoint(
            self.core,
            [f"broker/{neighbour}" for neighbour in overlay.neighbours(name)],
            _options(overlay),
            new_link=self._link,
            life=secrets.randbits(30) + 1,
            decode=self._decode,
            warn=self._warn,
            now_ns=time.monotonic_ns(),
            dialled=_dialled(overlay, name),
        )
        self.wire_faults: Counter[ErrorCode] = Counter()
        """Rules of HTTP/2 that peers broke, by code."""
        self.refused_connections = 0
        self.failed = False
        """Whether an exception that nobody expected has ended the use of the core."""
        self._on_failure = on_failure
        self._timer = LoopTimer(self._on_timer)

    @property
    def queues(self) -> dict[Interface, InterfaceQueue]:
        return self.endpoint.queues

    @property
    def draining(self) -> bool:
        return self.endpoint.draining

    def set_overlay(self, overlay: Overlay) -> None:
        """From now on other limits and links; new neighbours may connect, or are to be dialled. Those that
        are no neighbours any more are left to `remove_neighbour`.
        """
        self.overlay = overlay
        self.operators.limiter.set_limits(overlay.operator_limits, time.monotonic_ns())
        self.endpoint.set_options(_options(overlay))
        for neighbour in overlay.neighbours(self.name):
            self.endpoint.add_neighbour(f"broker/{neighbour}")
        self._run(lambda now_ns: self.endpoint.set_dialled(_dialled(overlay, self.name), now_ns))

    async def remove_neighbour(self, neighbour: str, seconds: float) -> None:
        """Disconnect a broker that is no neighbour any more. What is under way has so many seconds to arrive,
        and as many again what is queued for it then.
        """
        interface = f"broker/{neighbour}"
        queue = self.queues[interface]
        queue.link.withhold_credit(True)
        await self._drain_link(queue, seconds)
        self._run(lambda now_ns: self.endpoint.release_neighbour(interface, now_ns))
        await self._drain_link(queue, seconds)
        reason = f"broker {neighbour} is no neighbour of {self.name} any more"
        self._run(lambda now_ns: self.endpoint.remove_neighbour(interface, reason, now_ns))

    async def _drain_link(self, queue: InterfaceQueue, seconds: float) -> None:
        """Until all that waits for an interface has arrived there, or it has no connection, or time is up."""
        deadline = time.monotonic() + seconds
        while queue.connected and not queue.link.idle and time.monotonic() < deadline and not self.failed:
            queue.link.ask()
            queue.wake()
            await asyncio.sleep(0.02)

    def _link(self, incarnation: int) -> Link:
        limits = self.overlay.limits
        return Link(
            incarnation,
            max_frame_bytes=limits.max_frame_bytes,
            join_events=limits.max_batch_events,
        )

    def _decode(self, wire: WireMessage, from_broker: bool) -> Message | Undecodable:
        try:
            return decode_message(wire, self.core.event_type, from_broker=from_broker)
        except MessageError as error:
            refuse = error.refuse
            if refuse.status == "NOT_FOUND":
                refuse = replace(refuse, reason=self.unknown_type(refuse.type_name))
            return Undecodable(refuse, event_bytes(wire))

    def count_refused_connection(self) -> None:
        self.refused_connections += 1

    def _warn(self, interface: Interface, sentence: str) -> None:
        log.warning("%s: %s", interface, sentence)

    def unknown_type(self, name: str) -> str:
        """The error message for an event type that this broker does not have."""
        known = ", ".join(self.core.known_types()) or "none yet"
        return f"broker {self.name} has no event type {name!r}; it has {known}"

    # --- connections ----------------------------------------------------------------------------------------

    def accept(self, peer: Peer, connection: IncomingConnection) -> None:
        """As `BrokerEndpoint.accept`."""
        self._run(lambda now_ns: self.endpoint.accept(peer, connection, now_ns))

    def answer(self, interface: Interface, hello: Hello, connection: Connection) -> bool:
        """As `BrokerEndpoint.answer`."""
        if self.failed:
            raise CallError("UNAVAILABLE", f"broker {self.name} is shutting down")
        return self._run(lambda now_ns: self.endpoint.answer(interface, hello, connection, now_ns))

    def receive(self, interface: Interface, connection: Connection, frames: list[Frame[WireMessage]]) -> None:
        """As `BrokerEndpoint.receive`."""
        if self.failed:
            # What it acknowledges counts; what it brings is not acknowledged, and so is sent again.
            frames = [replace(frame, sequence=0, messages=(), settled=0) for frame in frames]
        self._run(lambda now_ns: self.endpoint.receive(interface, connection, frames, now_ns))

    def lost(self, interface: Interface, connection: Connection, why: str) -> None:
        """As `BrokerEndpoint.lost`."""
        log.info("%s disconnected: %s", interface, why)
        if self._abandon(interface, connection):
            return
        self._run(lambda now_ns: self.endpoint.lost(interface, connection, now_ns))

    def goodbye(self, interface: Interface, connection: Connection, why: str) -> None:
        """As `BrokerEndpoint.goodbye`."""
        log.info("session of %s ended: %s", interface, why)
        if self._abandon(interface, connection):
            return
        self._run(lambda now_ns: self.endpoint.goodbye(interface, connection, now_ns))

    # --- the loop -------------------------------------------------------------------------------------------

    def _run(self, call: Callable[[int], T]) -> T:
        """Make a call of the endpoint with the time, and see to what it leaves to do."""
        endpoint = self.endpoint
        now_ns = time.monotonic_ns()
        endpoint.clock_offset_ns = time.time_ns() - now_ns
        try:
            return call(now_ns)
        except (LinkError, ConnectionRefusedError):
            raise
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            if endpoint.deferred:
                # Behind the frames for neighbours, which were woken before.
                asyncio.get_running_loop().call_soon(self._deliver)
            self._timer.arm(endpoint.next_timer(), now_ns)

    def fail(self, error: BaseException) -> None:
        """Stop the broker because of an exception that nobody expected. Its core is not used any more, and no
        frame is acknowledged; frames that are queued may still be sent.
        """
        if self.failed:
            return
        self.failed = True
        self.endpoint.fail()
        log.critical("broker %s stops: %r", self.name, error, exc_info=error)
        if self._on_failure is not None:
            self._on_failure(error)

    def _abandon(self, interface: Interface, connection: Connection) -> bool:
        """Whether the broker has failed: then a connection just ends."""
        queue = self.queues.get(interface)
        if self.failed and queue is not None and queue.connection is connection:
            queue.connection = None
        return self.failed

    def _deliver(self) -> None:
        if self.endpoint.deferred:
            self._run(lambda _: self.endpoint.deliver())

    def start(self) -> None:
        """Begin to keep time, on the running loop."""
        self._timer.arm(self.endpoint.next_timer(), time.monotonic_ns())

    def _on_timer(self, _: int) -> None:
        if not self.failed:
            self._run(self.endpoint.handle_timer)

    # --- ending ---------------------------------------------------------------------------------------------

    async def drain(self, seconds: float) -> None:
        """Accept no more events, and wait until the accepted ones have reached the next broker or client, or
        time is up."""
        self.endpoint.drain()
        deadline = time.monotonic() + seconds
        while not self.endpoint.drained and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    def close_connections(self) -> None:
        """End every connection with a goodbye."""
        self.endpoint.close_connections(f"broker {self.name} is shutting down")

    def close(self) -> None:
        """Stop the timer and the thread of operators."""
        self._timer.cancel()
        self.operators.close()


def _options(overlay: Overlay) -> EndpointOptions:
    return EndpointOptions(
        overlay.limits,
        overlay.sessions,
        overlay.link_limits,
        overlay.bounds,
        overlay.limits.max_batch_events,
    )


def _dialled(overlay: Overlay, name: str) -> list[Interface]:
    return [f"broker/{neighbour}" for neighbour, dials in overlay.neighbours(name).items() if dials]
