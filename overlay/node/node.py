"""One broker process: drives its endpoint, which decides everything, on an event loop, so it needs no locks.
An unexpected exception stops the broker, since its state is then unknown."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from covey.matcher.evaluation.evaluator import Evaluator
from covey.overlay.core.access.identity import HANDSHAKE, Tickets
from covey.overlay.core.endpoint.broker_endpoint import BrokerEndpoint
from covey.overlay.core.endpoint.connections import (
    Connection,
    ConnectionRefusedError,
    ConnectRequest,
    IncomingConnection,
)
from covey.overlay.core.endpoint.interface_queue import InterfaceQueue
from covey.overlay.core.endpoint.limits import Undecodable
from covey.overlay.core.endpoint.observing import Timings, Tracing
from covey.overlay.core.endpoint.repairing import Repairing
from covey.overlay.core.endpoint.state import EndpointOptions
from covey.overlay.core.link.link import Frame, Hello, Link, LinkError
from covey.overlay.core.messages import Interface, Message
from covey.overlay.core.operators.operator_limits import Limiter
from covey.overlay.core.routing.broker import Broker
from covey.overlay.core.warnings import WarningKind
from covey.overlay.documents import ConfigError
from covey.overlay.http2.frames import ErrorCode
from covey.overlay.node.authentication import Authentication, read_ticket_keys
from covey.overlay.node.operators import LimitedRunner
from covey.overlay.node.overlay import Overlay
from covey.overlay.node.storage_directory import Syncing, broker_directory, open_storage
from covey.overlay.storage.files import CANNOT_STORE, StorageError
from covey.overlay.transport.address import CallError
from covey.overlay.transport.codec import WireMessage, decode_message, event_bytes, weight
from covey.overlay.transport.credentials import Credentials
from covey.overlay.transport.event_loop import LoopTimer
from covey.overlay.transport.tls import TlsContexts, check_broker
from covey.overlay.transport.wire_values import MessageError

T = TypeVar("T")

log = logging.getLogger("covey.broker")


class Node:
    """`on_failure` is called with an unexpected exception; the broker must then end."""

    def __init__(
        self,
        overlay: Overlay,
        name: str,
        on_failure: Callable[[BaseException], None] | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self.overlay = overlay
        self.name = name
        self.storage = None
        if overlay.durable:
            self.storage = open_storage(broker_directory(overlay.storage, name), overlay.durable)
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
            durable=overlay.durable,
            key_max_age_s=overlay.key_max_age_s,
            max_key_bytes=overlay.max_key_bytes,
            max_replay_bytes=overlay.max_replay_bytes,
        )
        self._tickets = Tickets(overlay.name, read_ticket_keys(overlay.tickets))
        self.endpoint: BrokerEndpoint[WireMessage] = BrokerEndpoint(
            self.core,
            [f"broker/{neighbour}" for neighbour in overlay.neighbours(name)],
            _options(overlay),
            new_link=self._link,
            life=secrets.randbits(30) + 1,
            decode=self._decode,
            weigh=weight,
            warn=self._warn,
            now_ns=time.monotonic_ns(),
            clock_offset_ns=time.time_ns() - time.monotonic_ns(),
            dialled=_dialled(overlay, name),
            storage=self.storage,
            tickets=self._tickets,
            timings=Timings(time.perf_counter_ns) if name in overlay.metrics else None,
            tracing=tracing,
        )
        self._log_restored()
        self.repairing: Repairing | None = None
        if overlay.repair_after_s:
            after_ns = round(overlay.repair_after_s * 1e9)
            self.repairing = Repairing(self.endpoint, name, overlay.rule(), after_ns, self._log_released)
        self.wire_faults: Counter[ErrorCode] = Counter()
        """Broken HTTP/2 rules of peers, by code."""
        self.refused_connections: Counter[str] = Counter()
        check = partial(check_broker, overlay=overlay.name, broker=name)
        self.credentials = Credentials(
            None if overlay.tls is None else TlsContexts(overlay.tls.of(name), check), check_host=False
        )
        """Used when this broker dials."""
        self.denials = self.endpoint.guard.denials
        self.authentication = Authentication(overlay.name, overlay.clients, self.denials)
        self.link_faults: dict[Interface, str] = {}
        """Why the last attempt to reach a neighbour failed; removed when one succeeds."""
        self.partings: dict[Interface, str] = {}
        """Why a neighbour's last connection ended; removed when it has another."""
        self.type_conflicts: dict[Interface, list[str]] = {}
        """By neighbour, event types on which the overlay files disagree."""
        self._stopping = f"broker {name} is shutting down"
        self.failed = False
        self.drained = asyncio.Event()
        self.not_sent_on: dict[Interface, int] = {}
        """By neighbour, records that it lacked when `drain` ended."""
        self._on_failure = on_failure
        self._timer = LoopTimer()
        self.syncing = None
        if self.storage is not None:
            self.syncing = Syncing(
                self.storage, self.endpoint, lambda: self._run(self.endpoint.synced), self.fail
            )

    @property
    def queues(self) -> dict[Interface, InterfaceQueue]:
        return self.endpoint.queues

    @property
    def draining(self) -> bool:
        return self.endpoint.draining

    def set_overlay(self, overlay: Overlay) -> None:
        """Apply other limits and links. Former neighbours are left to `remove_neighbour`."""
        self.overlay = overlay
        self.operators.limiter.set_limits(overlay.operator_limits, time.monotonic_ns())
        self.endpoint.set_options(_options(overlay))
        try:
            self._tickets.keys = read_ticket_keys(overlay.tickets)
        except ConfigError as error:
            log.warning("%s; the keys read before stay in use", error)
        repairing = self.repairing
        if repairing is not None:
            self._run(lambda now_ns: repairing.set_rule(overlay.rule(), now_ns))
            return
        for neighbour in overlay.neighbours(self.name):
            self.endpoint.add_neighbour(f"broker/{neighbour}")
        self._run(lambda now_ns: self.endpoint.set_dialled(_dialled(overlay, self.name), now_ns))

    def neighbours(self) -> dict[str, bool]:
        """Neighbours, each with whether this broker dials."""
        if self.repairing is None:
            return self.overlay.neighbours(self.name)
        return self.repairing.neighbours()

    def repair(self) -> None:
        if self.repairing is not None and not self.failed:
            self._run(self.repairing.advance)

    def _log_restored(self) -> None:
        for name, state in self.core.tables.types.items():
            if state.restored and state.keys is not None:
                took_s = (time.time_ns() - self.started_ns) / 1e9
                log.info("%s: %s keys restored from the log, in %.1f s", name, f"{len(state.keys):,}", took_s)

    def _log_released(self, interface: Interface) -> None:
        self.link_faults.pop(interface, None)
        self.partings.pop(interface, None)
        self.type_conflicts.pop(interface, None)
        log.warning("%s: the link has been released", interface)

    async def remove_neighbour(self, neighbour: str, seconds: float) -> None:
        """Disconnect a former neighbour. Its events have `seconds` to arrive, then its queue as long
        again."""
        interface = f"broker/{neighbour}"
        queue = self.queues[interface]
        queue.link.withhold_credit(True)
        await self._drain_link(queue, seconds)
        self._run(lambda now_ns: self.endpoint.release_neighbour(interface, now_ns))
        await self._drain_link(queue, seconds)
        reason = f"broker {neighbour} is no neighbour of {self.name} any more"
        self._run(lambda now_ns: self.endpoint.remove_neighbour(interface, reason, now_ns))
        self.partings.pop(interface, None)
        self.type_conflicts.pop(interface, None)

    async def _drain_link(self, queue: InterfaceQueue, seconds: float) -> None:
        """Until the queue has arrived, the connection is gone or time is up."""
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
            most = None if from_broker else self.overlay.bounds.filter_bytes
            return decode_message(wire, self.core.event_type, from_broker=from_broker, filter_bytes=most)
        except MessageError as error:
            refuse = error.refuse
            if refuse.status == "NOT_FOUND":
                refuse = replace(refuse, reason=self.unknown_type(refuse.type_name))
            return Undecodable(refuse, event_bytes(wire))

    def count_refused_connection(self, status: str = "RESOURCE_EXHAUSTED") -> None:
        self.refused_connections[status] += 1

    def count_failed_handshake(self) -> None:
        self.denials[HANDSHAKE] += 1

    def _warn(self, interface: Interface, kind: WarningKind, sentence: str) -> None:
        log.warning("%s: %s", interface, sentence, extra={"event": kind})

    def unknown_type(self, name: str) -> str:
        """The error for a type that this broker does not have."""
        if not self.authentication.open:
            return f"event type {name!r} is not known here"  # which others there are not everybody may know
        known = ", ".join(self.core.known_types())
        has = known or "none yet (publishers advertise them, or event_types of the overlay file has them)"
        return f"broker {self.name} has no event type {name!r}; it has {has}"

    # --- connections ----------------------------------------------------------------------------------------

    def accept(self, peer: ConnectRequest, connection: IncomingConnection) -> None:
        def accept(now_ns: int) -> None:
            repairing = self.repairing if peer.interface.startswith("broker/") else None
            if repairing is not None and not repairing.admit(peer.interface, now_ns):
                reason = f"{peer.interface} may have no upward link to broker {self.name}"
                raise ConnectionRefusedError("FAILED_PRECONDITION", reason)
            self.endpoint.accept(peer, connection, now_ns)

        self._run(accept)

    def answer(self, interface: Interface, hello: Hello, connection: Connection) -> bool:
        if self.failed:
            raise CallError("UNAVAILABLE", f"broker {self.name} is shutting down")
        return self._run(lambda now_ns: self.endpoint.answer(interface, hello, connection, now_ns))

    def receive(
        self, interface: Interface, connection: Connection, frames: list[Frame[WireMessage]], now_ns: int
    ) -> int:
        endpoint = self.endpoint
        # Reading the processor's time is a system call, so a lone message counts with its elapsed time. If
        # that was longer, the next turns are too short until they have doubled.
        several = len(frames) > 1 or len(frames[0].messages) > 1
        working_ns = time.thread_time_ns() if several else None
        endpoint.clock.offset_ns = time.time_ns() - now_ns
        try:
            handled = endpoint.receive(interface, connection, frames, now_ns)
        except (LinkError, ConnectionRefusedError):
            raise
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            self._see_to()
        if endpoint.turn_weight:
            ended_ns = time.monotonic_ns()
            worked_ns = None if working_ns is None else time.thread_time_ns() - working_ns
            endpoint.took(interface, ended_ns - now_ns, ended_ns, worked_ns)
        return handled

    def lost(self, interface: Interface, connection: Connection, why: str) -> None:
        log.info("%s disconnected: %s", interface, why)
        queue = self.queues.get(interface)
        if queue is not None and queue.connection is connection:  # else it has another one already
            if queue.is_broker:
                self.partings[interface] = why
            if self.failed:  # a connection just ends
                queue.connection = None
        if not self.failed:
            self._run(lambda now_ns: self.endpoint.lost(interface, connection, now_ns))

    def goodbye(self, interface: Interface, connection: Connection, why: str) -> None:
        """As `BrokerEndpoint.goodbye`; a broker's means that it has another upward link."""
        repairing = self.repairing if interface.startswith("broker/") else None
        if self.failed or repairing is not None:
            self.lost(interface, connection, why)
            if repairing is not None and not self.failed:
                self._run(lambda now_ns: repairing.left(interface, now_ns))
            return
        ended = self._run(lambda now_ns: self.endpoint.goodbye(interface, connection, now_ns))
        if ended:
            log.info("session of %s ended: %s", interface, why)
        else:
            log.info("%s disconnected, its session stays: %s", interface, why)

    # --- the loop -------------------------------------------------------------------------------------------

    def _run(self, call: Callable[[int], T]) -> T:
        """Call the endpoint with the time, then handle what it has left to do."""
        endpoint = self.endpoint
        now_ns = time.monotonic_ns()
        endpoint.clock.offset_ns = time.time_ns() - now_ns
        try:
            return call(now_ns)
        except (LinkError, ConnectionRefusedError):
            raise
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            self._see_to()

    def _see_to(self) -> None:
        endpoint = self.endpoint
        if endpoint.deferred:
            # Behind the frames for neighbours, which were woken before.
            asyncio.get_running_loop().call_soon(self._deliver)
        due_ns = endpoint.next_timer()
        if due_ns is not None and due_ns < self._timer.due_ns:
            self._timer.arm(due_ns, self._on_timer)
        if self.syncing is not None and not self.failed:
            try:
                self.syncing.poke()
            except StorageError as error:
                self.fail(error)

    def fail(self, error: BaseException) -> None:
        """After an unexpected exception the core is not used and nothing is acknowledged; queued frames may
        be sent."""
        if self.failed:
            return
        self.failed = True
        self.endpoint.fail()
        if isinstance(error, StorageError):
            log.critical("broker %s stops, since it cannot store events: %s", self.name, error)
            # Without the path: clients get it, too.
            self._stopping = f"broker {self.name} stops, since it {CANNOT_STORE}: {error.sentence}"
        else:
            log.critical("broker %s stops: %r", self.name, error, exc_info=error)
        if self._on_failure is not None:
            self._on_failure(error)

    def _deliver(self) -> None:
        if self.endpoint.deferred:
            self._run(lambda _: self.endpoint.deliver())

    def start(self) -> None:
        """Call on the running loop, once the broker listens."""
        now_ns = time.monotonic_ns()
        self.endpoint.opened(now_ns)
        self._timer.arm(self.endpoint.next_timer(), self._on_timer)

    def _on_timer(self, began_ns: int) -> None:
        if not self.failed:
            self._run(self.endpoint.handle_timer)
            ended_ns = time.monotonic_ns()
            self.endpoint.timers_took(ended_ns - began_ns, ended_ns)

    # --- ending ---------------------------------------------------------------------------------------------

    async def drain(self, seconds: float, links_s: float = 0.0) -> None:
        """Accept no more events; wait `seconds` until accepted ones have arrived at the next hop, or
        `links_s`, if longer, for those to brokers."""
        self.endpoint.drain()
        start = time.monotonic()
        while not self._drained or (links_s and self._links_drain()):
            lasting = links_s if self._links_drain() else 0.0
            if time.monotonic() - start >= max(seconds, lasting):
                break
            await asyncio.sleep(0.02)
        self.not_sent_on = self.endpoint.promised
        self.drained.set()

    def _links_drain(self) -> bool:
        neighbours = self.endpoint.neighbours.values()
        return any(queue.connected and (queue.behind or not queue.link.idle) for queue in neighbours)

    @property
    def _drained(self) -> bool:
        return self.endpoint.drained and (self.syncing is None or self.syncing.idle)

    def close_connections(self) -> None:
        self.endpoint.close_connections(self._stopping)

    def close(self) -> None:
        self._timer.cancel()
        self.operators.close()
        if self.syncing is None:
            return
        try:
            if not self.failed:
                self.endpoint.save_progress()
            self.syncing.close()
        except StorageError as error:
            self.fail(error)


def _options(overlay: Overlay) -> EndpointOptions:
    return EndpointOptions(
        overlay.limits,
        overlay.sessions,
        overlay.link_limits,
        overlay.bounds,
        overlay.limits.max_batch_events,
        drop_repeats=overlay.repair_after_s > 0,
    )


def _dialled(overlay: Overlay, name: str) -> list[Interface]:
    return [f"broker/{neighbour}" for neighbour, dials in overlay.neighbours(name).items() if dials]
