"""Durable sessions that move from one broker to another.

A client shows the ticket of its session at another broker, the *destination*, which refuses it (UNAVAILABLE,
so that it tries again) and has the session handed over by the *origin*, the broker that has it:

1. ASK, STATE, some subscriptions at a time: the destination subscribes for the session, and stores its events
   from then on. The origin goes on storing them, too.
2. FLUSH, once the subscriptions have taken effect: it follows earlier stored events from broker to broker, so
   on its arrival the origin has all that the destination will not get. A broker that was restarted a moment
   ago lets it wait for what publishers send again.
3. READ, RECORDS: the destination copies what the session has not acknowledged at the origin.
4. COMMIT, once all is on disk: the origin removes the session in one transaction and confirms.

The client gets the copies first, then the destination's records, and drops repetitions. A broker without a
route to another floods a message to its neighbours, and learns routes from answers. Every message is sent
again until answered; answers to another attempt are void.

Invariant: a session is at one broker, the origin until it has committed. Until then both may give up and
nothing has changed. A destination that has sent COMMIT waits for the answer, over restarts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from covey.overlay.core.access.identity import TICKET, DeniedError, Ticket, Tickets
from covey.overlay.core.endpoint.connections import ConnectionRefusedError, ConnectRequest
from covey.overlay.core.endpoint.durability import READ_BYTES, Durability
from covey.overlay.core.endpoint.interface_queue import Copies, InterfaceQueue
from covey.overlay.core.endpoint.interfaces import Interfaces
from covey.overlay.core.endpoint.storage import Arrival
from covey.overlay.core.link.size import size_of
from covey.overlay.core.messages import (
    COPIES,
    Connect,
    Interface,
    MoveStep,
    Receiver,
    SessionMove,
    Subscribe,
)
from covey.overlay.core.warnings import WarningKind

RETRY_NS = 500_000_000
PATIENCE_NS = 10_000_000_000
"""How long a destination goes on without an answer after its client's last request."""
_ENDED = 1_000


@dataclass(slots=True)
class _Arriving:
    """`awaits` is the message to be answered, `settles` the epoch of the last subscription. `places` are
    where to read on by type still to be copied, `starts` where the copies begin in the log; `arrival` is set
    once all is copied."""

    interface: Interface
    origin: str
    number: int
    identity: str
    requested_ns: int
    queue: InterfaceQueue | None = None
    awaits: SessionMove = field(init=False)
    settles: int = 0
    settled: bool = False
    places: dict[str, int] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)
    arrival: Arrival | None = None
    lost: dict[str, int] = field(default_factory=dict)

    @property
    def receiver(self) -> Interface:
        return f"{COPIES}{self.number:x}/{self.interface}"


@dataclass(slots=True)
class _Leaving:
    """A session that another broker has requested; `ends` are the logs' ends once the flush has arrived."""

    broker: str
    number: int
    subscribes: Sequence[Subscribe]
    ends: dict[str, int] | None = None


@dataclass(slots=True)
class _Flush:
    """A FLUSH that waits until a neighbour has the records below these offsets."""

    message: SessionMove
    neighbour: Interface
    ends: Mapping[str, int]


class SessionMoves:
    """The sessions that come and go. Sets the timer "move" of an interface."""

    def __init__(
        self,
        endpoint: Interfaces,
        durability: Durability,
        tickets: Tickets,
    ) -> None:
        self._endpoint, self._clock = endpoint, endpoint.clock
        self.name = endpoint.tables.broker_id
        self.tickets = tickets
        endpoint.admit, endpoint.ticket, endpoint.ended = self.admit, self.issue, self._forget
        self._durability = durability
        self._routes: dict[str, Interface] = {}
        """By broker, the neighbour from which its last message came."""
        self._arriving: dict[Interface, _Arriving] = {}
        self._leaving: dict[Interface, _Leaving] = {}
        self._flushes: list[_Flush] = []
        self._ended: dict[Interface, str] = {}
        """Sessions that no broker has any more, by their identity."""
        for interface, arrival in durability.unconfirmed.items():
            queue = endpoint.queues[interface]
            arriving = self._arriving[interface] = _Arriving(
                interface, arrival.origin, arrival.number, queue.identity, self._clock.now_ns, queue
            )
            arriving.arrival, arriving.settled = arrival, True
            arriving.awaits = self._message(arriving, MoveStep.COMMIT)
            endpoint.timers.set(("move", interface), self._clock.now_ns)

    # --- clients --------------------------------------------------------------------------------------------

    def issue(self, queue: InterfaceQueue) -> str:
        return self.tickets.issue(queue.interface, Ticket(self.name, queue.identity))

    def admit(self, peer: ConnectRequest) -> None:
        """`ConnectionRefusedError` unless a client may have the session of its name here now."""
        interface = peer.interface
        try:
            ticket = self.tickets.read(interface, peer.hello.ticket)
        except DeniedError as error:
            self._endpoint.guard.denials[TICKET] += 1
            raise ConnectionRefusedError(error.status, str(error)) from None
        queue, arriving = self._endpoint.queues.get(interface), self._arriving.get(interface)
        if queue is not None and queue.durable and self._is_orphan(queue, ticket):
            self._endpoint.end_session(queue, "its client has another one", "ABORTED")
            queue = None
        durable = queue is not None and queue.durable
        identity = "" if queue is None else queue.identity
        if arriving is not None:
            identity = arriving.identity
        if self.tickets.keys and identity and (ticket is None or ticket.identity != identity):
            self._endpoint.guard.denials[TICKET] += 1
            reason = f"{interface} has a durable session here: expected its ticket"
            raise ConnectionRefusedError("UNAUTHENTICATED", reason)
        if arriving is not None:
            arriving.requested_ns = self._clock.now_ns
            raise self._refusal(arriving.origin)
        if durable:
            self._leaving.pop(interface, None)
            return
        if not peer.durable or ticket is None or (queue is not None and queue.connected):
            return
        origin = ticket.broker
        if origin == self.name:
            origin, _ = self._durability.storage.moved_to(interface)
        if not origin or self._ended.get(interface) == ticket.identity:
            return
        refusal = self._endpoint.session_refusal(peer.principal, len(self._arriving))
        if refusal is not None:
            raise ConnectionRefusedError("RESOURCE_EXHAUSTED", refusal)
        if queue is not None:
            self._endpoint.end_session(queue, "replaced by a durable one", "ABORTED")
        self._endpoint.quotas.session_opened(interface, peer.principal)
        self._ask(interface, origin, ticket.identity, self._clock.now_ns)
        raise self._refusal(origin)

    def _forget(self, interface: Interface) -> None:
        self._leaving.pop(interface, None)

    def arrives(self, interface: Interface) -> bool:
        return interface in self._arriving

    def _is_orphan(self, queue: InterfaceQueue, ticket: Ticket | None) -> bool:
        """Whether a client, having left before it got the ticket of an empty session, shows another's."""
        interface = queue.interface
        other = ticket is not None and ticket.identity != queue.identity and interface not in self._arriving
        return other and not queue.connected and not self._endpoint.in_use(interface)

    @staticmethod
    def _refusal(origin: str) -> ConnectionRefusedError:
        return ConnectionRefusedError("UNAVAILABLE", f"broker {origin} has yet to hand the session over")

    # --- messages -------------------------------------------------------------------------------------------

    def receive(self, message: SessionMove, source: Interface) -> None:
        self._routes[message.sender] = source
        if message.receiver != self.name:
            self._pass_on(message, source)
            return
        step = message.step
        if step in (MoveStep.ASK, MoveStep.FLUSH, MoveStep.READ, MoveStep.COMMIT):
            if step is not MoveStep.FLUSH or self._steady:
                self._pass_on(self._answer(message), "")
            return
        arriving = self._arriving.get(message.interface)
        if arriving is None or arriving.number != message.number:
            return
        if step is MoveStep.REFUSED:
            self._refused(arriving, message)
        elif step is MoveStep.STATE and arriving.awaits.step is MoveStep.ASK:
            self._subscribe(arriving, message)
        elif step is MoveStep.FLUSHED and arriving.awaits.step is MoveStep.FLUSH:
            arriving.places = dict(message.offsets)
            arriving.starts = self._durability.ends()
            self._read(arriving)
        elif step is MoveStep.RECORDS:
            self._copy(arriving, message)
        elif step is MoveStep.COMMITTED and arriving.awaits.step is MoveStep.COMMIT:
            self._complete(arriving)

    @property
    def _steady(self) -> bool:
        """Whether this broker has all unacknowledged events from before its restart. Otherwise repeated ones
        may have gone on before, and other brokers would drop them."""
        return self._endpoint.recovery.steady(self._clock.now_ns)

    def _message(self, arriving: _Arriving, step: MoveStep) -> SessionMove:
        return SessionMove(self.name, arriving.origin, arriving.interface, arriving.number, step)

    def _pass_on(self, message: SessionMove, source: Interface) -> None:
        """Send to the receiver's route, else flood to all neighbours but the source. What cannot be sent is
        repeated by its sender."""
        route = self._routes.get(message.receiver, "")
        known = self._endpoint.queues.get(route)
        others = [route] if known is not None and known.connected and route != source else None
        for neighbour in others or [each for each in self._endpoint.neighbours if each != source]:
            if message.step is MoveStep.FLUSH:
                self._flush(message, neighbour)
            elif self._endpoint.queues[neighbour].connected:
                self._endpoint.queues[neighbour].send(message)

    def _flush(self, message: SessionMove, neighbour: Interface) -> None:
        if not any(each.message == message and each.neighbour == neighbour for each in self._flushes):
            mine = message.interface, message.sender
            self._flushes = [
                each
                for each in self._flushes
                if each.neighbour != neighbour or (each.message.interface, each.message.sender) != mine
            ]
            self._flushes.append(_Flush(message, neighbour, self._durability.ends()))

    def advance(self) -> None:
        """Send what has waited for the last change."""
        if self._flushes:
            self._advance_flushes()
        for arriving in list(self._arriving.values()) if self._arriving else ():
            if arriving.arrival is not None and arriving.awaits.step is not MoveStep.COMMIT:
                self._prepare(arriving, arriving.arrival)
            elif arriving.awaits.step is MoveStep.FLUSH and not arriving.settled:
                peer = self._endpoint.core.tables.peers.get(arriving.interface)
                if peer is not None and peer.acknowledged >= arriving.settles:
                    arriving.settled = True
                    self._await(arriving, MoveStep.FLUSH)

    def _advance_flushes(self) -> None:
        waiting = []
        for flush in self._flushes:
            queue = self._endpoint.queues.get(flush.neighbour)
            if queue is None:
                continue
            if not self._steady or not self._durability.has_all(queue, flush.ends):
                waiting.append(flush)
            elif queue.connected:
                queue.send(flush.message)
        self._flushes = waiting

    # --- the origin -----------------------------------------------------------------------------------------

    def _answer(self, message: SessionMove) -> SessionMove:
        interface, number, step = message.interface, message.number, message.step
        answer = SessionMove(self.name, message.sender, interface, number, MoveStep.REFUSED)
        refused = replace(answer, reason="busy" if step is MoveStep.ASK else "over")
        queue = self._endpoint.queues.get(interface)
        moved_to = self._durability.storage.moved_to(interface)
        if step is MoveStep.COMMIT and moved_to == (message.sender, number):
            return replace(answer, step=MoveStep.COMMITTED)
        if interface in self._arriving:
            return refused
        leaving = self._leaving.get(interface)
        if queue is None or not queue.durable:
            self._leaving.pop(interface, None)
            if step is MoveStep.ASK and moved_to[0]:
                return replace(answer, reason="moved", moved_to=moved_to[0])
            return replace(answer, reason="unknown" if step is MoveStep.ASK else "over")
        if step is MoveStep.ASK and message.identity != queue.identity:
            return replace(answer, reason="unknown")
        if queue.connected:
            queue.link.probe()
            queue.wake()
            return refused
        if step is MoveStep.ASK:
            if leaving is None or (leaving.broker, leaving.number) != (message.sender, number):
                recalled = self._durability.sessions.recalled(interface)
                subscribes = [each for each in recalled if isinstance(each, Subscribe)]
                leaving = self._leaving[interface] = _Leaving(message.sender, number, subscribes)
            some = _some(leaving.subscribes, message.offset)
            following = message.offset + len(some)
            return replace(
                answer,
                step=MoveStep.STATE,
                identity=queue.identity,
                offset=following,
                offsets={"": message.offset},
                subscriptions=some,
                reason="end" if following >= len(leaving.subscribes) else "",
            )
        if leaving is None or (leaving.broker, leaving.number) != (message.sender, number):
            return refused
        if step is MoveStep.FLUSH:
            if leaving.ends is None:
                leaving.ends = self._durability.ends()
            return replace(answer, step=MoveStep.FLUSHED, offsets=self._durability.starts(queue))
        if leaving.ends is None:
            return refused
        if step is MoveStep.READ:
            name = message.type_name
            records, place, lost = self._durability.read_on(queue, name, message.offset)
            return replace(
                answer,
                step=MoveStep.RECORDS,
                type_name=name,
                offset=place,
                offsets={name: message.offset},
                records=tuple(records),
                lost=lost,
                reason="end" if place >= leaving.ends.get(name, 0) else "",
            )
        del self._leaving[interface]
        queue.moved_to = message.sender, number
        sentence = f"its durable session is now at broker {message.sender}"
        self._endpoint.warn(interface, WarningKind.SESSION_MOVED, sentence)
        self._endpoint.end_session(queue, f"it is now at broker {message.sender}", "UNAVAILABLE")
        return replace(answer, step=MoveStep.COMMITTED)

    # --- the destination ------------------------------------------------------------------------------------

    def _ask(self, interface: Interface, origin: str, identity: str, requested_ns: int) -> None:
        arriving = _Arriving(interface, origin, self._endpoint.new_number(), identity, requested_ns)
        self._arriving[interface] = arriving
        self._await(arriving, MoveStep.ASK)

    def _await(self, arriving: _Arriving, step: MoveStep, type_name: str = "", offset: int = 0) -> None:
        """Send a message, and again until it is answered."""
        identity = arriving.identity if step is MoveStep.ASK else ""
        message = self._message(arriving, step)
        arriving.awaits = replace(message, identity=identity, type_name=type_name, offset=offset)
        self._resend(arriving)

    def _resend(self, arriving: _Arriving) -> None:
        step = arriving.awaits.step
        settling = step is MoveStep.FLUSH and not arriving.settled
        if not settling and (arriving.arrival is None or step is MoveStep.COMMIT):
            self._pass_on(arriving.awaits, "")
        self._endpoint.timers.set(("move", arriving.interface), self._clock.now_ns + RETRY_NS)

    def handle_timer(self, interface: Interface) -> None:
        """An answer has not come."""
        arriving = self._arriving.get(interface)
        if arriving is None:
            return
        if arriving.queue is not None and self._endpoint.queues.get(interface) is not arriving.queue:
            del self._arriving[interface]
        elif (
            arriving.awaits.step is not MoveStep.COMMIT
            and self._clock.now_ns - arriving.requested_ns > PATIENCE_NS
        ):
            sentence = f"broker {arriving.origin} does not hand its session over"
            self._endpoint.warn(interface, WarningKind.SESSION_NOT_MOVED, sentence)
            self._give_up(arriving)
        else:
            self._resend(arriving)

    def _give_up(self, arriving: _Arriving) -> None:
        del self._arriving[arriving.interface]
        self._endpoint.timers.cancel(("move", arriving.interface))
        queue = arriving.queue
        if queue is not None:
            queue.moved_to = arriving.origin, 0
            self._endpoint.end_session(queue, "it is at another broker", "UNAVAILABLE")
        else:
            self._endpoint.quotas.forget(arriving.interface)

    def _refused(self, arriving: _Arriving, message: SessionMove) -> None:
        principal = self._endpoint.quotas.principal(arriving.interface)
        self._give_up(arriving)
        if message.reason == "moved" and message.moved_to != self.name:
            self._endpoint.quotas.session_opened(arriving.interface, principal)
            self._ask(arriving.interface, message.moved_to, arriving.identity, arriving.requested_ns)
        elif message.reason in ("unknown", "moved"):  # the session came here, and has ended since
            self._ended[arriving.interface] = arriving.identity
            if len(self._ended) > _ENDED:
                del self._ended[next(iter(self._ended))]

    def _subscribe(self, arriving: _Arriving, message: SessionMove) -> None:
        interface = arriving.interface
        if message.offsets != {"": arriving.awaits.offset}:
            return
        if arriving.queue is None:
            if interface in self._endpoint.queues:  # a client without a durable session has the name
                self._give_up(arriving)
                return
            queue = arriving.queue = self._endpoint.restored(interface)
            queue.identity = arriving.identity = message.identity
            queue.stop_blocking("out of reach")
            self._durability.begin_behind(queue)
            self._endpoint.tell(Connect(), interface)
        for subscribe in message.subscriptions:
            self._endpoint.tell(subscribe, interface)
            if subscribe.valid_for_ns:
                self._endpoint.validity.set(interface, subscribe.subscription_id, subscribe.valid_for_ns)
            arriving.settles = subscribe.epoch
        if message.reason != "end":
            self._await(arriving, MoveStep.ASK, offset=message.offset)
            return
        arriving.awaits = replace(arriving.awaits, step=MoveStep.FLUSH, identity="", offset=0)
        self.advance()

    def _read(self, arriving: _Arriving) -> None:
        """Request what is to be copied next, or go on to COMMIT."""
        for name, place in arriving.places.items():
            self._await(arriving, MoveStep.READ, name, place)
            return
        arriving.arrival = Arrival(
            arriving.receiver, self._durability.ends(), arriving.origin, arriving.number
        )
        self.advance()

    def _copy(self, arriving: _Arriving, message: SessionMove) -> None:
        name, awaits = message.type_name, arriving.awaits
        if arriving.arrival is not None or message.offsets != {awaits.type_name: awaits.offset}:
            return
        for each in message.records:
            copied = Receiver(arriving.receiver, None, each.offsets, each.ids)
            self._durability.storage.append_copy(each.batch, copied)
        arriving.places[name] = message.offset
        arriving.lost[name] = arriving.lost.get(name, 0) + message.lost
        if message.reason == "end":
            del arriving.places[name]
        self._read(arriving)

    def _prepare(self, arriving: _Arriving, arrival: Arrival) -> None:
        """Once all copies are on disk, store the session."""
        storage, queue = self._durability.storage, arriving.queue
        assert queue is not None
        if any(storage.synced(name) < end for name, end in arrival.ends.items()):
            return
        for name, end in arrival.ends.items():
            queue.copies[name] = Copies(arrival.receiver, arriving.starts[name], end)
        self._durability.save_cursors()
        self._durability.opened(queue, arrival)
        self._await(arriving, MoveStep.COMMIT)

    def _complete(self, arriving: _Arriving) -> None:
        del self._arriving[arriving.interface]
        self._endpoint.timers.cancel(("move", arriving.interface))
        queue, arrival = arriving.queue, arriving.arrival
        assert queue is not None
        assert arrival is not None
        self._durability.storage.save_arrival(arriving.interface, replace(arrival, origin=""))
        for name, lost in arriving.lost.items():
            if lost:
                queue.lost(name, lost, 0)
        self._endpoint.disconnected(queue)


def _some(subscribes: Sequence[Subscribe], start: int) -> tuple[Subscribe, ...]:
    """From a position on, as many as fit into a message, at least one."""
    end, size = start, 0
    while end < len(subscribes) and (end == start or size < READ_BYTES):
        size += size_of(subscribes[end])
        end += 1
    return tuple(subscribes[start:end])
