"""A client's session over a real connection that tells watchers what the simulator's clients tell them.

So the same trace is written and the same judge judges, whether an overlay is simulated or real.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

from covey.overlay.core.client.actions import ClientAction, Matches, Refused, Settled
from covey.overlay.core.client.session import ClientSession

if TYPE_CHECKING:
    from covey.matcher import EventBatch, EventType, Filter
    from covey.overlay.core.messages import Deliver, Message, Publish
    from covey.sim.simulator.client import ClientProcess
    from covey.sim.simulator.watcher import Watcher


class WatchedSession(ClientSession):
    """Watchers know it as a client: `name` and `broker` are those of interfaces."""

    def __init__(
        self, name: str, broker: str, routing: str, resubscribe: str, watchers: Iterable[Watcher]
    ) -> None:
        super().__init__(name.removeprefix("client/"), routing=routing, resubscribe=resubscribe)
        self.name = name
        self.broker = broker
        self.there = True
        self._watchers = watchers
        self._filters: dict[int, Filter] = {}
        for watcher in watchers:
            watcher.came(self._self)

    @property
    def session(self) -> ClientSession:
        return self

    @property
    def subscriptions(self) -> Mapping[int, Filter]:
        return self._filters

    @property
    def _self(self) -> ClientProcess:
        """What watchers use of a client's process is here as well."""
        return cast("ClientProcess", self)

    def leave(self) -> None:
        """Its user leaves."""
        self.there = False
        for watcher in self._watchers:
            watcher.left(self._self, False)

    # --- what its user does ---------------------------------------------------------------------------------

    def advertise(
        self, event_type: EventType, filter: Filter | None = None, *, report_listeners: bool = False
    ) -> list[Message]:
        messages = super().advertise(event_type, filter, report_listeners=report_listeners)
        if messages:
            for watcher in self._watchers:
                watcher.advertised(self._self, event_type)
        return messages

    def subscribe(
        self, filter: Filter, values: Mapping[str, object] | None = None, **times_ns: int
    ) -> tuple[int, list[Message]]:
        subscription_id, messages = super().subscribe(filter, values, **times_ns)
        self._filters[subscription_id] = filter
        for watcher in self._watchers:
            watcher.subscribed(self._self, subscription_id)
        return subscription_id, messages

    def update(self, subscription_id: int, values: Mapping[str, object], **times_ns: int) -> list[Message]:
        old = self.values(subscription_id)
        messages = super().update(subscription_id, values, **times_ns)
        if messages:
            for watcher in self._watchers:
                watcher.updated(self._self, subscription_id, old)
        return messages

    def publish(self, batch: EventBatch) -> Publish:
        message = super().publish(batch)
        for watcher in self._watchers:
            watcher.published(self._self, message.batch)
        return message

    # --- what the broker says -------------------------------------------------------------------------------

    def matches(self, message: Deliver) -> Matches | None:
        self._passed(message)
        matches = super().matches(message)
        for share in matches.divided() if matches is not None and self.there else ():
            for watcher in self._watchers:
                watcher.delivered(self._self, share)
        return matches

    def _passed(self, message: Message) -> None:
        for watcher in self._watchers if self.there else ():
            watcher.passed(self.broker, self.name, message)

    def receive(self, message: Message) -> list[ClientAction]:
        self._passed(message)
        actions = super().receive(message)
        for action in actions if self.there else ():
            for watcher in self._watchers:
                if isinstance(action, Settled):
                    watcher.settled(self._self, action.epoch)
                elif isinstance(action, Refused):
                    watcher.refused(self._self, action)
        return actions
