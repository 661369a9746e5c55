"""A network of real cores and clients in memory: brokers, sessions, and messages in flight. Every direction
of a link has two lanes, so control overtakes waiting events. `step` lets one message arrive, the oldest or a
random one, so that every schedule of reliable links is possible."""

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType
from covey.matcher.filters.filter import Filter
from covey.overlay.core.client.actions import ClientAction, DeliverTo, Transmit
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.messages import CONTROL, Connect, Disconnect, Message, Send
from covey.overlay.core.routing.broker import Broker

Trace = Callable[[str, str, Message], None]


@dataclass
class Client:
    """A session, its broker, and the delivered events."""

    name: str
    broker: str
    session: ClientSession
    delivered: list[tuple[int, EventBatch]] = field(default_factory=list)


class Network:
    """Names are interfaces: `broker/b1`, `client/c1`. `options` are a broker's, by name."""

    def __init__(
        self,
        *,
        routing: str = "parametric",
        merging: str = "off",
        on_deliver: Callable[[Client, DeliverTo], None] | None = None,
        trace: Trace | None = None,
        options: Callable[[str], dict[str, Any]] = lambda _: {},
    ) -> None:
        self._options = options
        self.routing, self.merging = routing, merging
        self.brokers: dict[str, Broker] = {}
        self.clients: dict[str, Client] = {}
        self.links: list[tuple[str, str]] = []
        self._lanes: dict[tuple[str, str, bool], deque[tuple[int, Message]]] = {}
        self._serial = 0
        self._on_deliver = on_deliver
        self._trace = trace

    # --- shape ----------------------------------------------------------------------------------------------

    def broker(self, name: str, event_types: Iterable[EventType] = ()) -> Broker:
        """Add a broker, or restart it, with its current neighbours."""
        broker = Broker(
            name.partition("/")[2],
            routing=self.routing,
            merging=self.merging,
            merging_budget=3,
            event_types=event_types,
            neighbours=[
                b.partition("/")[2] for pair in self.links for a, b in (pair, pair[::-1]) if a == name
            ],
            **{"engine": "naive", **self._options(name)},
        )
        self.brokers[name] = broker
        return broker

    def link(self, a: str, b: str) -> None:
        self.links.append((a, b))
        self._feed(a, b, Connect())
        self._feed(b, a, Connect())

    def client(self, name: str, broker: str, session: ClientSession) -> Client:
        client = self.clients[name] = Client(name, broker, session)
        self._feed(broker, name, Connect())
        self.send(name, broker, session.sync())
        return client

    def leave(self, name: str) -> None:
        """A client leaves: its messages arrive, then its broker removes it."""
        client = self.clients.pop(name)
        self._push(name, client.broker, Disconnect(), control=False)
        for lane in (True, False):
            self._lanes.pop((client.broker, name, lane), None)

    def crash(self, name: str) -> None:
        """A broker loses its state and everything on its links, and restarts."""
        for key in [key for key in self._lanes if name in key[:2]]:
            del self._lanes[key]
        pinned = [s.pinned for s in self.brokers[name].tables.types.values() if s.pinned]
        self.broker(name, pinned)
        for a, b in self.links:
            if name in (a, b):
                self._feed(a, b, Connect())
                self._feed(b, a, Connect())
        for client in self.clients.values():
            if client.broker == name:
                self._feed(name, client.name, Connect())
                self.send(client.name, name, client.session.sync())

    # --- traffic --------------------------------------------------------------------------------------------

    def send(self, source: str, target: str, messages: Iterable[Message]) -> None:
        for message in messages:
            self._push(source, target, message, control=isinstance(message, CONTROL))

    def _push(self, source: str, target: str, message: Message, *, control: bool) -> None:
        self._serial += 1
        self._lanes.setdefault((source, target, control), deque()).append((self._serial, message))

    @property
    def quiet(self) -> bool:
        return not any(self._lanes.values())

    def step(self, choose: random.Random | None = None) -> None:
        """Let one message arrive: the oldest, or one that `choose` chooses."""
        ready = [key for key in self._lanes if not self._held_back(key)]
        key = min(ready, key=lambda k: self._lanes[k][0][0]) if choose is None else choose.choice(ready)
        _, message = self._lanes[key].popleft()
        if not self._lanes[key]:
            del self._lanes[key]
        source, target, _ = key
        if self._trace is not None:
            self._trace(source, target, message)
        if target in self.brokers:
            self._feed(target, source, message)
        elif target in self.clients:
            self._received(self.clients[target], message)

    def _held_back(self, key: tuple[str, str, bool]) -> bool:
        """Control overtakes events, never the contrary; a client's leaving arrives last."""
        source, target, is_control = key
        control = None if is_control else self._lanes.get((source, target, True))
        serial, message = self._lanes[key][0]
        return bool(control) and (control[0][0] < serial or isinstance(message, Disconnect))

    def run(self, choose: random.Random | None = None, steps: int | None = None) -> int:
        """Let messages arrive until none is in flight, or `steps` have; returns how many did."""
        done = 0
        while not self.quiet and (steps is None or done < steps):
            self.step(choose)
            done += 1
        return done

    def _feed(self, broker: str, source: str, message: Message) -> None:
        for action in self.brokers[broker].handle(message, source, 0):
            if isinstance(action, Send) and (
                action.interface in self.brokers or action.interface in self.clients
            ):
                self.send(broker, action.interface, [action.message])

    def _received(self, client: Client, message: Message) -> None:
        for action in client.session.receive(message):
            self._note(client, action)

    def _note(self, client: Client, action: ClientAction) -> None:
        if isinstance(action, DeliverTo):
            if len(action.batch):
                client.delivered.append((action.subscription_id, action.batch))
            if self._on_deliver is not None:
                self._on_deliver(client, action)
        elif isinstance(action, Transmit):
            self.send(client.name, client.broker, [action.message])

    # --- what a user does -----------------------------------------------------------------------------------

    def advertise(self, name: str, event_type: EventType) -> None:
        client = self.clients[name]
        self.send(name, client.broker, client.session.advertise(event_type))

    def unadvertise(self, name: str, type_name: str) -> None:
        client = self.clients[name]
        self.send(name, client.broker, client.session.unadvertise(type_name))

    def subscribe(self, name: str, filter: Filter, values: dict[str, object] | None = None) -> int:
        client = self.clients[name]
        subscription_id, messages = client.session.subscribe(filter, values)
        self.send(name, client.broker, messages)
        return subscription_id

    def update(self, name: str, subscription_id: int, values: dict[str, object]) -> None:
        client = self.clients[name]
        self.send(name, client.broker, client.session.update(subscription_id, values))

    def unsubscribe(self, name: str, subscription_id: int) -> None:
        client = self.clients[name]
        self.send(name, client.broker, client.session.unsubscribe(subscription_id))

    def publish(self, name: str, event_type: EventType, rows: list[dict[str, object]]) -> EventBatch:
        client = self.clients[name]
        message = client.session.publish(EventBatch.from_pylist(event_type, rows))
        self.send(name, client.broker, [message])
        return message.batch
