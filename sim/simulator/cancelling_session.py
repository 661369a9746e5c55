"""A client that re-subscribes and cancels late: the "practical solution" of Jayaram et al., section 4.2. The
outdated subscription is cancelled at the first event that it does not match, which shows that the new one has
reached a publisher. After a change that only narrows there is no such event: the next change cancels it, so
there is one at most. Invariant: while there is one, the client evaluates events again, and delivers those
that match its newest values, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.messages import Deliver, Message, Subscribe, Unsubscribe

if TYPE_CHECKING:
    from covey.matcher import Filter
    from covey.overlay.core.client.actions import Matches
    from covey.overlay.core.client.strictness import ClientSubscription

CANCEL_LATE = "cancel-late"
"""The value of `resubscribe`, in addition to those of `ClientSession`."""


class CancellingSession(ClientSession):
    """A session under static routing. Send its `cancellations` after each Deliver."""

    def __init__(self, publisher: str, *, engine: str = "cluster") -> None:
        super().__init__(publisher, routing="static", engine=engine)
        self.cancellations: list[Message] = []
        self._outdated: dict[int, int] = {}
        """By subscription, the wire id of its outdated one."""
        self._sent: dict[int, Filter] = {}
        """By wire id, the filter with its values."""

    @property
    def outdated(self) -> list[Filter]:
        """The outdated subscriptions that have not been cancelled, with their values."""
        return [self._sent[old] for old in self._outdated.values()]

    def matches(self, message: Deliver) -> Matches | None:
        name = message.batch.event_type.name
        own = [uid for uid in self._outdated if self._subscriptions[uid].filter.event_type.name == name]
        if own:
            view = self._reception.types[name]
            view.newest = max(view.newest, message.epoch + 1)  # the broker's matches do not stand
        matches = super().matches(message)
        for uid in own:
            if self._shows(message, self._subscriptions[uid].wire_id, self._outdated[uid]):
                self.cancellations += self._cancel(uid)
        return matches

    @staticmethod
    def _shows(message: Deliver, new: int, old: int) -> bool:
        rows = np.repeat(np.arange(len(message.batch)), np.diff(message.offsets))
        return bool(len(np.setdiff1d(rows[message.ids == new], rows[message.ids == old])))

    def unsubscribe(self, subscription_id: int) -> list[Message]:
        return [*self._cancel(subscription_id), *super().unsubscribe(subscription_id)]

    def sync(self, clock_ns: int = 0) -> list[Message]:
        """Outdated subscriptions are not repeated, and so void."""
        messages = super().sync(clock_ns)
        for old in self._outdated.values():
            self._retire(old)
        self._outdated.clear()
        self.cancellations.clear()
        return messages

    def _resubscription(self, subscription: ClientSubscription, clock_ns: int) -> list[Message]:
        uid, old = subscription.uid, subscription.wire_id
        subscription.wire_id = self._next_id
        self._next_id += 1
        self._reception.wire_ids.add(subscription.wire_id, uid)
        subscribe = self._subscribe_message(subscription, clock_ns)
        earlier = self._cancel(uid)
        self._outdated[uid] = old
        return [subscribe, *earlier]

    def _subscribe_message(self, subscription: ClientSubscription, clock_ns: int) -> Subscribe:
        message = super()._subscribe_message(subscription, clock_ns)
        self._sent[message.subscription_id] = message.filter
        return message

    def _cancel(self, uid: int) -> list[Message]:
        old = self._outdated.pop(uid, None)
        if old is None:
            return []
        message = Unsubscribe(self._next_epoch(), old)
        self._retire(old)
        return [message]

    def _retire(self, old: int) -> None:
        """Events may arrive for it until everything sent so far has taken effect."""
        del self._sent[old]
        self._reception.wire_ids.retire(old, self.epoch)

    def _remove(self, subscription: ClientSubscription, epoch: int) -> None:
        old = self._outdated.pop(subscription.uid, None)
        if old is not None:
            self._retire(old)
        del self._sent[subscription.wire_id]
        super()._remove(subscription, epoch)
