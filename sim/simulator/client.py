"""A client in virtual time: a session, its link to a broker, and what its user does and sees.

Calls take effect at once, as in the client library; what they say travels when the connection lets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from covey.overlay.core.client.actions import DeliverTo, Refused, Settled, Transmit
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.link.link import Hello, Link
from covey.overlay.core.link.size import events_in, size_of
from covey.overlay.core.messages import Message
from covey.sim.simulator.watcher import Watcher
from covey.sim.simulator.wire import Goodbye, Packet, Port

if TYPE_CHECKING:
    from covey.matcher import EventBatch, EventType, Filter
    from covey.sim.simulator.clock import Clock


class ClientProcess:
    """One client; `name` is that of its interface, `client/c1`. Its user may use it until it leaves."""

    busy = False

    def __init__(
        self,
        name: str,
        broker: str,
        session: ClientSession,
        link: Link,
        clock: Clock,
        watchers: Iterable[Watcher],
    ) -> None:
        self.name = name
        self.broker = broker
        self.session = session
        self.clock = clock
        self.port = Port(broker, link, self)
        self.there = True
        self.moving = False
        self._watchers = watchers
        self._filters: dict[int, Filter] = {}

    def rebind(self, broker: str, link: Link, publisher: str) -> None:
        """Go to another broker, over a new link and under a new identity as a publisher."""
        self.broker = broker
        self.port = Port(broker, link, self)
        self.session.publisher = publisher

    # --- what its user does ---------------------------------------------------------------------------------

    @property
    def subscriptions(self) -> Mapping[int, Filter]:
        """Its subscriptions: id and filter; `session.values` has the values."""
        return self._filters

    def advertise(self, event_type: EventType, filter: Filter | None = None) -> None:
        messages = self.session.advertise(event_type, filter)
        if messages:
            for watcher in self._watchers:
                watcher.advertised(self, event_type)
        self.send(messages)

    def unadvertise(self, type_name: str) -> None:
        messages = self.session.unadvertise(type_name)
        for watcher in self._watchers:
            watcher.unadvertised(self, type_name)
        self.send(messages)

    def subscribe(self, filter: Filter, values: Mapping[str, object] | None = None) -> int:
        subscription_id, messages = self.session.subscribe(filter, values, now_ns=self.clock.now_ns)
        self._filters[subscription_id] = filter
        for watcher in self._watchers:
            watcher.subscribed(self, subscription_id)
        self.send(messages)
        return subscription_id

    def update(self, subscription_id: int, values: Mapping[str, object], *, gapless: bool = False) -> None:
        old = self.session.values(subscription_id)
        since_ns = max(1, self.clock.now_ns) if gapless else 0
        now_ns = self.clock.now_ns
        messages = self.session.update(subscription_id, values, since_ns=since_ns, now_ns=now_ns)
        if messages:
            for watcher in self._watchers:
                watcher.updated(self, subscription_id, old)
                if gapless:
                    watcher.reached_back(self, subscription_id)
        self.send(messages)

    def unsubscribe(self, subscription_id: int) -> None:
        messages = self.session.unsubscribe(subscription_id)
        for watcher in self._watchers:
            watcher.cancelled(self, subscription_id)
        del self._filters[subscription_id]
        self.send(messages)

    def publish(self, batch: EventBatch) -> EventBatch:
        message = self.session.publish(batch.stamped(ingress_ns=self.clock.now_ns))
        for watcher in self._watchers:
            watcher.published(self, message.batch)
        self.send([message])
        return message.batch

    def send(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.port.link.send(message)
        self.port.pump()

    # --- what the broker says -------------------------------------------------------------------------------

    def arrive(self, port: Port, generation: int, packet: Packet) -> None:
        """Take in a packet; clients are never busy."""
        if port is not self.port or isinstance(packet, Goodbye):
            return
        if isinstance(packet, Hello):
            port.open = True
            if not port.link.resume(packet):
                self.send(self.session.sync())
            port.pump()
            return
        for message in port.link.receive(packet):
            if events_in(message):
                port.link.consume(size_of(message))
            for watcher in self._watchers:
                watcher.passed(port.interface, self.name, message)
            self._take(message)
        port.pump()

    def touch(self, port: Port) -> None:
        """Never called: a client is never busy."""

    def _take(self, message: Message) -> None:
        for action in self.session.receive(message):
            if isinstance(action, DeliverTo):
                for watcher in self._watchers:
                    watcher.delivered(self, action)
            elif isinstance(action, Settled):
                for watcher in self._watchers:
                    watcher.settled(self, action.epoch)
            elif isinstance(action, Refused):
                if action.subscription_id:
                    self._filters.pop(action.subscription_id, None)
                for watcher in self._watchers:
                    watcher.refused(self, action)
            elif isinstance(action, Transmit):
                self.send([action.message])
