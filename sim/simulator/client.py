"""A client in virtual time: the endpoint of the client library, and the calls of its user. Calls take effect
at once; their messages leave when the connection is open. The user reads events as they arrive while
`reading`; unread events cost credit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from covey.matcher import parse
from covey.matcher.errors import EventError
from covey.matcher.events.batch import EventBatch
from covey.overlay.core.access.rights import Action, Permission, Rights
from covey.overlay.core.client.actions import DeliverTo, Matches, Settled
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.client.view_reader import ViewReader
from covey.overlay.core.endpoint.client_endpoint import ClientEndpoint
from covey.overlay.core.endpoint.limits import Limits, SlowConsumer
from covey.overlay.core.link.link import Hello, Link
from covey.overlay.core.link.size import size_of
from covey.overlay.core.messages import Answered, Deliver, Expired, Gap, Message, Publish, Refuse
from covey.sim.simulator.cancelling_session import CancellingSession
from covey.sim.simulator.observer import Observer
from covey.sim.simulator.wire import Goodbye, Packet, Port

if TYPE_CHECKING:
    from covey.matcher import EventType, Filter
    from covey.sim.simulator.clock import Clock


class ClientPort(Port):
    __slots__ = ("_clock", "_timer_ns", "endpoint")

    def __init__(
        self, interface: str, owner: SimulatedClient, endpoint: ClientEndpoint, clock: Clock
    ) -> None:
        super().__init__(interface, owner)
        self.endpoint = endpoint
        self._clock = clock
        self._timer_ns: int | None = None

    def hello(self) -> Hello:
        return self.endpoint.hello()

    def pump(self) -> None:
        if not self.open:
            return
        assert self.wire is not None
        while (frame := self.endpoint.next_frame(self._clock.now_ns)) is not None:
            self.wire.transmit(self, frame)
        due_ns = self.endpoint.next_timer()
        if due_ns is not None and (self._timer_ns is None or due_ns < self._timer_ns):
            self._timer_ns = due_ns
            self._clock.at(due_ns, self._on_timer, due_ns)

    def broken(self) -> None:
        self.endpoint.lost()

    def _on_timer(self, due_ns: int) -> None:
        if due_ns != self._timer_ns:
            return  # an earlier one was set in its place
        self._timer_ns = None
        if self.open:
            self.endpoint.handle_timer(self._clock.now_ns)
            self.pump()


class _Claim:
    """Credit for a message, granted again once each of its parts has been read."""

    __slots__ = ("_endpoint", "_parts", "_resets", "_size")

    def __init__(self, endpoint: ClientEndpoint, parts: int, size: int) -> None:
        self._endpoint, self._parts, self._size = endpoint, parts, size
        self._resets = endpoint.resets

    def done(self) -> None:
        self._parts -= 1
        if self._parts == 0 and self._resets == self._endpoint.resets:
            self._endpoint.link.consume(self._size)


class SimulatedClient:
    """`name` is its interface, `client/c1`. It may be used until it leaves."""

    def __init__(
        self,
        name: str,
        broker: str,
        session: ClientSession,
        link: Link,
        clock: Clock,
        observers: Observer,
        *,
        limits: Limits | None = None,
        endpoint_options: Mapping[str, int] | None = None,
    ) -> None:
        self.name = name
        self.broker = broker
        self.session = session
        self.clock = clock
        self.clock_offset_ns = 0
        """Its clock minus virtual time."""
        self.reading = True
        self.republishes: EventType | None = None
        """The user publishes the events `derives(event)` of each event under this type before reading on."""
        self.derives: Callable[[dict[str, Any]], list[dict[str, Any]]] = lambda event: [event]
        self._limits = limits or Limits()
        self._options = dict(endpoint_options or {})
        self._unread: deque[tuple[Matches, _Claim]] = deque()
        self.views: dict[int, ViewReader] = {}
        """By subscription id."""
        self.endpoint, self.port = self._connection(broker, link)
        self.policy = SlowConsumer.BLOCK
        self.durable = False
        """Whether its session outlives its connections and its broker."""
        self.policies: Mapping[str, str] | None = None
        """By permitted event type, a filter of the permitted events; None permits everything."""
        self.present = True
        self.moving = False
        self._observers = observers
        self._filters: dict[int, Filter] = {}

    def rebind(self, broker: str, link: Link, publisher: str) -> None:
        self.broker = broker
        self.session.publisher = publisher
        ticket = self.endpoint.ticket
        self.endpoint, self.port = self._connection(broker, link)
        self.endpoint.ticket = ticket

    def _connection(self, broker: str, link: Link) -> tuple[ClientEndpoint, ClientPort]:
        endpoint = ClientEndpoint(
            self.session, link, stamp=self._stamp, durable=False, ticket="", **self._options
        )
        return endpoint, ClientPort(broker, self, endpoint, self.clock)

    def _stamp(self, batch: EventBatch) -> Publish:
        """Events have their identity from the call of `publish`."""
        if batch.event_type.name not in self.session.advertised:
            raise EventError(f"event type {batch.event_type.name!r} is not advertised any more")
        return Publish(batch)

    # --- calls of the user ----------------------------------------------------------------------------------

    @property
    def _clock_ns(self) -> int:
        return self.clock.now_ns + self.clock_offset_ns

    @property
    def subscriptions(self) -> Mapping[int, Filter]:
        """Filters by subscription id, joined with its policies; `session.values` has the values."""
        return self._filters

    def advertise(self, event_type: EventType, filter: Filter | None = None) -> None:
        messages = self.session.advertise(event_type, filter)
        if messages:
            self._observers.advertised(self, event_type)
        self.send(messages)

    def widen(self, event_type: EventType) -> None:
        """As `Client.widen` of the client library, without waiting."""
        advertised = self.session.advertised.get(event_type.name)
        if advertised is not None:
            self.send(self.session.advertise(event_type, advertised.filter))
        self.session.widen(event_type)

    def unadvertise(self, type_name: str) -> None:
        self.endpoint.unadvertise(type_name)
        self._observers.unadvertised(self, type_name)
        self.port.pump()

    def subscribe(
        self, filter: Filter, values: Mapping[str, object] | None = None, *, valid_for_ns: int = 0
    ) -> int:
        subscription_id, messages = self.session.subscribe(
            filter, values, now_ns=self._clock_ns, valid_for_ns=valid_for_ns, clock_ns=self.clock.now_ns
        )
        self._filters[subscription_id] = self._permitted(filter)
        self._observers.subscribed(self, subscription_id)
        self.send(messages)
        return subscription_id

    def _permitted(self, filter: Filter) -> Filter:
        if self.policies is None:
            return filter
        return parse(f"({filter}) and ({self.policies[filter.event_type.name]})", filter.event_type)

    @property
    def rights(self) -> Rights | None:
        if self.policies is None:
            return None
        subscribe = [Permission(name, where) for name, where in self.policies.items()]
        subject = self.name.removeprefix("client/")
        return Rights(subject, {Action.SUBSCRIBE: subscribe, Action.PUBLISH: [Permission("*")]})

    def update(self, subscription_id: int, values: Mapping[str, object], *, gapless: bool = False) -> None:
        old = self.session.values(subscription_id)
        now_ns = self._clock_ns
        since_ns = max(1, now_ns) if gapless else 0
        messages = self.session.update(
            subscription_id, values, since_ns=since_ns, now_ns=now_ns, clock_ns=self.clock.now_ns
        )
        if messages:
            self._observers.updated(self, subscription_id, old)
            if gapless:
                self._observers.updated_gapless(self, subscription_id)
        self.send(messages)

    def renew(self, subscription_id: int, valid_for_ns: int) -> None:
        messages = self.session.renew(subscription_id, valid_for_ns, self.clock.now_ns)
        self._observers.renewed(self, subscription_id)
        self.send(messages)

    def unsubscribe(self, subscription_id: int) -> None:
        messages = self.session.unsubscribe(subscription_id)
        self._observers.unsubscribed(self, subscription_id)
        del self._filters[subscription_id]
        self.send(messages)

    def view(self, filter: Filter, values: Mapping[str, object] | None = None) -> int:
        """As `Client.view` of the client library, without waiting; returns the view's id."""
        view_id, messages = self.session.view(filter, values)
        self.views[view_id] = ViewReader(self.session, view_id)
        self._observers.viewed(self, view_id)
        self.send(messages)
        return view_id

    def update_view(self, view_id: int, values: Mapping[str, object]) -> None:
        messages = self.session.update(view_id, values)
        self.views[view_id].moved()
        self._observers.view_moved(self, view_id)
        self.send(messages)
        self._read()

    def close_view(self, view_id: int) -> None:
        messages = self.session.unsubscribe(view_id)
        self.views.pop(view_id).discard()
        self._observers.view_closed(self, view_id)
        self.send(messages)

    def publish(self, batch: EventBatch) -> EventBatch:
        message = self.session.publish(batch.stamped(ingress_ns=self._clock_ns))
        self._observers.published(self, message.batch)
        self.endpoint.outbox.put_batch(message.batch)
        self.port.pump()
        return message.batch

    def send(self, messages: Iterable[Message]) -> None:
        self.endpoint.transmit(messages)
        self.port.pump()

    def stop_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
        self._read()
        self.port.pump()

    # --- messages of the broker -----------------------------------------------------------------------------

    def arrive(self, port: Port, generation: int, packet: Packet) -> None:
        if port is not self.port or isinstance(packet, Goodbye):
            return
        endpoint = self.endpoint
        if isinstance(packet, Hello):
            port.open = True
            if not endpoint.open(packet, self._limits, self.clock.now_ns):
                for view_id, reader in self.views.items():
                    reader.begun_anew()
                    self._observers.view_reset(self, view_id)
            self._expire(endpoint.expired)
            endpoint.expired = []
        else:
            for message in endpoint.receive(packet, self.clock.now_ns):
                self._observers.received(port.interface, self.name, message)
                if isinstance(message, Deliver):
                    self._deliver(message)
                else:
                    self._handle(message)
            endpoint.received()
        self._read()
        port.pump()

    def _deliver(self, message: Deliver) -> None:
        matches = self.session.matches(message)
        if matches is None:
            self.endpoint.link.consume(size_of(message))
            return
        if isinstance(self.session, CancellingSession) and self.session.cancellations:
            self.endpoint.transmit(self.session.cancellations)
            self.session.cancellations.clear()
        matches, own = self._of_views(matches)
        claim = _Claim(self.endpoint, 1 + len(own), size_of(message))
        for share in own:
            self.views[share.subscription_id].arrived(share, claim.done)
        self._unread.append((matches, claim))
        self._read()

    def _of_views(self, matches: Matches) -> tuple[Matches, list[DeliverTo]]:
        """The matches of subscriptions, and those of views, which decide themselves about their content."""
        if not self.views:
            return matches, []
        of_views = np.isin(matches.ids, list(self.views))
        rows, ids = matches.rows, matches.ids
        own = replace(matches, rows=rows[of_views], ids=ids[of_views], spurious={}).divided()
        return replace(matches, rows=rows[~of_views], ids=ids[~of_views]), own

    def _read(self) -> None:
        while self._unread and self.reading:
            if self.republishes is not None and self.endpoint.outbox.full(self.republishes.name):
                return  # its call to publish waits
            matches, claim = self._unread.popleft()
            claim.done()
            for share in self.session.strict(matches).divided():
                self._observers.delivered(self, share)
                if self.republishes is not None:
                    rows = [row for event in share.batch.to_pylist() for row in self.derives(event)]
                    if rows:
                        self.publish(EventBatch.from_pylist(self.republishes, rows))
        if self.reading:
            for view_id in self.views:
                self._read_view(view_id)

    def _handle(self, message: Message) -> None:
        for action in self.endpoint.handle(message, self.clock.now_ns):
            if isinstance(action, Settled):
                self._observers.settled(self, action.epoch)
            elif isinstance(action, Answered):
                self._answered(action)
            elif isinstance(action, Expired):
                self._expire([action.subscription_id])
            elif isinstance(action, Gap):
                self._observers.missed(self, action)
            elif isinstance(action, Refuse):
                if not self.session.has_subscription(action.subscription_id):
                    self._filters.pop(action.subscription_id, None)
                self._observers.refused(self, action)

    def _answered(self, answered: Answered) -> None:
        """Users that wait for updates of views read them even if they are not `reading`."""
        for view_id, reader in self.views.items():
            if reader.state.event_type.name == answered.type_name:
                reader.answered(answered.epoch)
                self._read_view(view_id)
                if answered.epoch >= self.session.view_epoch(view_id):
                    self._observers.view_answered(self, view_id)

    def _read_view(self, view_id: int) -> None:
        while (changes := self.views[view_id].next()) is not None:
            self._observers.view_changed(self, view_id, changes)

    def _expire(self, subscription_ids: Iterable[int]) -> None:
        for subscription_id in subscription_ids:
            self.session.forget_expired(subscription_id)  # its user reads nothing more of it
            self._filters.pop(subscription_id, None)
            self._observers.expired(self, subscription_id)
