"""The session of a real client that calls the observers as a simulated client does.

So one judge and one trace serve simulated and real overlays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from covey.overlay.core.client.actions import ClientAction, Matches, Refused, Settled
from covey.overlay.core.client.session import ClientSession

if TYPE_CHECKING:
    from covey.matcher import EventBatch, EventType, Filter
    from covey.overlay.core.messages import Deliver, Message, Publish
    from covey.sim.simulator.observer import Observer


class ObservedSession(ClientSession):
    """An `ObservedClient`. A client that moves goes on with it at another broker."""

    def __init__(
        self,
        name: str,
        broker: str,
        routing: str,
        resubscribe: str,
        observers: Iterable[Observer],
    ) -> None:
        super().__init__(name.removeprefix("client/"), routing=routing, resubscribe=resubscribe)
        self.name = name
        self.broker = broker
        self.present = True
        self.durable = False
        self._observers = observers
        for observer in observers:
            observer.joined(self)

    @property
    def session(self) -> ClientSession:
        return self

    def move(self, broker: str) -> None:
        """The connection to the old broker is closed; the next one is to `broker`."""
        self.broker = broker
        for observer in self._observers:
            observer.moved(self, broker)

    def leave(self) -> None:
        """The user leaves."""
        self.present = False
        for observer in self._observers:
            observer.left(self, False)

    # --- calls of the user ----------------------------------------------------------------------------------

    def advertise(
        self, event_type: EventType, filter: Filter | None = None, *, report_listeners: bool = False
    ) -> list[Message]:
        messages = super().advertise(event_type, filter, report_listeners=report_listeners)
        if messages:
            for observer in self._observers:
                observer.advertised(self, event_type)
        return messages

    def subscribe(
        self, filter: Filter, values: Mapping[str, object] | None = None, **times_ns: int
    ) -> tuple[int, list[Message]]:
        subscription_id, messages = super().subscribe(filter, values, **times_ns)
        for observer in self._observers:
            observer.subscribed(self, subscription_id)
        return subscription_id, messages

    def update(
        self,
        subscription_id: int,
        values: Mapping[str, object],
        *,
        traceparent: str = "",
        **times_ns: int,
    ) -> list[Message]:
        old = self.values(subscription_id)
        messages = super().update(subscription_id, values, traceparent=traceparent, **times_ns)
        if messages:
            for observer in self._observers:
                observer.updated(self, subscription_id, old)
        return messages

    def publish(self, batch: EventBatch) -> Publish:
        message = super().publish(batch)
        for observer in self._observers:
            observer.published(self, message.batch)
        return message

    # --- messages of the broker -----------------------------------------------------------------------------

    def matches(self, message: Deliver) -> Matches | None:
        self._notify_received(message)
        matches = super().matches(message)
        for share in matches.divided() if matches is not None and self.present else ():
            for observer in self._observers:
                observer.delivered(self, share)
        return matches

    def _notify_received(self, message: Message) -> None:
        for observer in self._observers if self.present else ():
            observer.received(self.broker, self.name, message)

    def receive(self, message: Message) -> list[ClientAction]:
        self._notify_received(message)
        actions = super().receive(message)
        for action in actions if self.present else ():
            for observer in self._observers:
                if isinstance(action, Settled):
                    observer.settled(self, action.epoch)
                elif isinstance(action, Refused):
                    observer.refused(self, action)
        return actions
