"""A client in virtual time: a session, its link to a broker, and the calls of its user.

Calls take effect at once, as in the client library; their messages leave when the connection is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from covey.overlay.core.client.actions import DeliverTo, Refused, Settled, Transmit
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.link.link import Hello, Link
from covey.overlay.core.link.size import events_in, size_of
from covey.overlay.core.messages import Message
from covey.sim.simulator.observer import Observer
from covey.sim.simulator.wire import Goodbye, Packet, Port

if TYPE_CHECKING:
    from covey.matcher import EventBatch, EventType, Filter
    from covey.sim.simulator.clock import Clock


class SimulatedClient:
    """A client; `name` is its interface, `client/c1`. It may be used until it leaves."""

    busy = False

    def __init__(
        self,
        name: str,
        broker: str,
        session: ClientSession,
        link: Link,
        clock: Clock,
        observers: Iterable[Observer],
    ) -> None:
        self.name = name
        self.broker = broker
        self.session = session
        self.clock = clock
        self.port = Port(broker, link, self)
        self.present = True
        self.moving = False
        self._observers = observers
        self._filters: dict[int, Filter] = {}

    def rebind(self, broker: str, link: Link, publisher: str) -> None:
        """Switch to another broker, over a new link and under a new identity as a publisher."""
        self.broker = broker
        self.port = Port(broker, link, self)
        self.session.publisher = publisher

    # --- calls of the user ----------------------------------------------------------------------------------

    @property
    def subscriptions(self) -> Mapping[int, Filter]:
        """Filters by subscription id; `session.values` has the values."""
        return self._filters

    def advertise(self, event_type: EventType, filter: Filter | None = None) -> None:
        messages = self.session.advertise(event_type, filter)
        if messages:
            for observer in self._observers:
                observer.advertised(self, event_type)
        self.send(messages)

    def widen(self, event_type: EventType) -> None:
        """As `Client.widen` of the client library, without waiting."""
        advertised = self.session.advertised.get(event_type.name)
        if advertised is not None:
            self.send(self.session.advertise(event_type, advertised.filter))
        self.session.widen(event_type)

    def unadvertise(self, type_name: str) -> None:
        messages = self.session.unadvertise(type_name)
        for observer in self._observers:
            observer.unadvertised(self, type_name)
        self.send(messages)

    def subscribe(self, filter: Filter, values: Mapping[str, object] | None = None) -> int:
        subscription_id, messages = self.session.subscribe(filter, values, now_ns=self.clock.now_ns)
        self._filters[subscription_id] = filter
        for observer in self._observers:
            observer.subscribed(self, subscription_id)
        self.send(messages)
        return subscription_id

    def update(self, subscription_id: int, values: Mapping[str, object], *, gapless: bool = False) -> None:
        old = self.session.values(subscription_id)
        since_ns = max(1, self.clock.now_ns) if gapless else 0
        now_ns = self.clock.now_ns
        messages = self.session.update(subscription_id, values, since_ns=since_ns, now_ns=now_ns)
        if messages:
            for observer in self._observers:
                observer.updated(self, subscription_id, old)
                if gapless:
                    observer.updated_gapless(self, subscription_id)
        self.send(messages)

    def unsubscribe(self, subscription_id: int) -> None:
        messages = self.session.unsubscribe(subscription_id)
        for observer in self._observers:
            observer.unsubscribed(self, subscription_id)
        del self._filters[subscription_id]
        self.send(messages)

    def publish(self, batch: EventBatch) -> EventBatch:
        message = self.session.publish(batch.stamped(ingress_ns=self.clock.now_ns))
        for observer in self._observers:
            observer.published(self, message.batch)
        self.send([message])
        return message.batch

    def send(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.port.link.send(message)
        self.port.pump()

    # --- messages of the broker -----------------------------------------------------------------------------

    def arrive(self, port: Port, generation: int, packet: Packet) -> None:
        """Handle a packet."""
        if port is not self.port or isinstance(packet, Goodbye):
            return
        if isinstance(packet, Hello):
            port.open = True
            if not port.link.resume(packet):
                self.send(self.session.sync())
            port.pump()
            return
        for message in port.link.receive(packet, self.clock.now_ns):
            if events_in(message):
                port.link.consume(size_of(message))
            for observer in self._observers:
                observer.received(port.interface, self.name, message)
            self._handle(message)
        port.pump()

    def touch(self, port: Port) -> None:
        """Never called: a client is never busy."""

    def _handle(self, message: Message) -> None:
        for action in self.session.receive(message):
            if isinstance(action, DeliverTo):
                for observer in self._observers:
                    observer.delivered(self, action)
            elif isinstance(action, Settled):
                for observer in self._observers:
                    observer.settled(self, action.epoch)
            elif isinstance(action, Refused):
                if action.subscription_id:
                    self._filters.pop(action.subscription_id, None)
                for observer in self._observers:
                    observer.refused(self, action)
            elif isinstance(action, Transmit):
                self.send([action.message])
