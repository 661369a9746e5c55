"""A client that re-subscribes and cancels late: the third way of Jayaram et al., section 4.2.

Besides subscribing first and unsubscribing first, the paper has "a practical solution": the outdated
subscription is cancelled when the first event arrives that it does not match, since such an event shows that
the new one has reached a publisher. A change that only narrows brings no such event: its outdated
subscription stays until the next change, which cancels it, so there is one at most.

Invariant: while there is one, what arrives is evaluated again, so that the client hands out what matches its
newest values, once.
"""

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
"""The value of `resubscribe` beside those of `ClientSession`."""


class CancellingSession(ClientSession):
    """A session under static routing that cancels late. After a Deliver, `cancellations` are to be sent."""

    def __init__(self, publisher: str, *, engine: str = "cluster") -> None:
        super().__init__(publisher, routing="static", engine=engine)
        self.cancellations: list[Message] = []
        self._outdated: dict[int, int] = {}
        """By subscription, the id on the wire of its outdated one."""
        self._sent: dict[int, Filter] = {}
        """By id on the wire, the filter with its values."""

    @property
    def outdated(self) -> list[Filter]:
        """The outdated subscriptions, with their values, that have not been cancelled."""
        return [self._sent[old] for old in self._outdated.values()]

    def matches(self, message: Deliver) -> Matches | None:
        name = message.batch.event_type.name
        own = [uid for uid in self._outdated if self._subscriptions[uid].filter.event_type.name == name]
        if own:
            view = self._reception.views[name]
            view.newest = max(view.newest, message.epoch + 1)  # the broker's matches do not stand
        matches = super().matches(message)
        for uid in own:
            if self._shows(message, self._subscriptions[uid].wire_id, self._outdated[uid]):
                self.cancellations += self._cancel(uid)
        return matches

    @staticmethod
    def _shows(message: Deliver, new: int, old: int) -> bool:
        """Whether an event came for the new subscription and not for the outdated one."""
        rows = np.repeat(np.arange(len(message.batch)), np.diff(message.offsets))
        return bool(len(np.setdiff1d(rows[message.ids == new], rows[message.ids == old])))

    def unsubscribe(self, subscription_id: int) -> list[Message]:
        return [*self._cancel(subscription_id), *super().unsubscribe(subscription_id)]

    def sync(self, clock_ns: int = 0) -> list[Message]:
        """What is outdated is not repeated, and so void."""
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
        """Of the outdated subscription, if there is one."""
        old = self._outdated.pop(uid, None)
        if old is None:
            return []
        message = Unsubscribe(self._next_epoch(), old)
        self._retire(old)
        return [message]

    def _retire(self, old: int) -> None:
        """Events may come for it until all that was sent so far has taken effect."""
        del self._sent[old]
        self._reception.wire_ids.retire(old, self.epoch)

    def _remove(self, subscription: ClientSubscription, epoch: int) -> None:
        old = self._outdated.pop(subscription.uid, None)
        if old is not None:
            self._retire(old)
        del self._sent[subscription.wire_id]
        super()._remove(subscription, epoch)
