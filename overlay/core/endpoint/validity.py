"""When the subscriptions of clients end that have a validity period (Liu et al., section 5.1).

The broker of the session alone knows: it removes the subscription as if the client had cancelled it, which
takes the interest out of the whole overlay. A period counts from the arrival of the message that has it, by
the clock of this broker that never jumps, so no two clocks have to agree. What leaves the broker, to the
client's next process, to another broker or to the disk, is the rest of it; on the disk as a time by the clock
that stamps events, which goes on while the broker is down.

Who renews is proved as for any message of a session: by the connection that the session has (`tickets.py`).
Ends are in a heap: a subscription that does not end costs nothing, one that does O(log n) per renewal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from covey.overlay.core.endpoint.clock import EndpointClock
from covey.overlay.core.endpoint.timers import Timers
from covey.overlay.core.messages import (
    Action,
    Interface,
    Message,
    Refuse,
    Send,
    Subscribe,
    SyncEnd,
    Unsubscribe,
    Update,
)

AT_ONCE = 200
"""So many subscriptions end in one turn at most."""


class Validity:
    """Those of one endpoint. Sets the timer "validity"."""

    def __init__(self, clock: EndpointClock, timers: Timers[tuple[str, Interface]]) -> None:
        self.expired = 0
        """Subscriptions that have ended."""
        self._clock = clock
        self._timers = timers
        self._due: Timers[tuple[Interface, int]] = Timers()
        self._ends: dict[Interface, dict[int, int]] = {}
        """By session and subscription, when it ends, by the clock that never jumps."""

    def __len__(self) -> int:
        """How many subscriptions have a period."""
        return sum(map(len, self._ends.values()))

    # --- what changes a period ------------------------------------------------------------------------------

    def handled(
        self,
        interface: Interface,
        messages: Iterable[Message],
        actions: Iterable[Action],
        subscriptions: Collection[int],
    ) -> None:
        """The core has answered messages of a client with these actions; these are now its subscriptions."""
        refused: set[int] | None = None
        for message in messages:
            known = self._ends.get(interface, _NONE)
            if message.__class__ is Subscribe or message.__class__ is Update:
                number = message.subscription_id
                replaced = message.__class__ is Subscribe and number in known
                if not (message.valid_for_ns or replaced) or number not in subscriptions:
                    continue
                if refused is None:
                    refused = _refused(interface, actions)
                if message.epoch in refused:
                    continue  # as before, with the period that it had
                if message.valid_for_ns:
                    self.set(interface, number, message.valid_for_ns)
                else:
                    self._cancel(interface, number)
            elif isinstance(message, Unsubscribe):
                self._cancel(interface, message.subscription_id)
            elif isinstance(message, SyncEnd):
                for each in [each for each in known if each not in subscriptions]:
                    self._cancel(interface, each)

    def set(self, interface: Interface, subscription_id: int, valid_for_ns: int) -> None:
        """From now on a subscription is valid for so long; at once over if that is not positive."""
        end_ns = self._clock.now_ns + valid_for_ns
        self._ends.setdefault(interface, {})[subscription_id] = end_ns
        self._due.set((interface, subscription_id), end_ns)
        self._arm()

    def restore(self, interface: Interface, subscription_id: int, stored_ns: int) -> None:
        """As it was stored: the end by the clock that stamps events, 0 for none."""
        if stored_ns:
            self.set(interface, subscription_id, stored_ns - self._clock.stamp_ns)

    def forget(self, interface: Interface) -> None:
        """The session has ended here."""
        for subscription_id in list(self._ends.get(interface, ())):
            self._cancel(interface, subscription_id)

    def _cancel(self, interface: Interface, subscription_id: int) -> None:
        known = self._ends.get(interface)
        if known is None or known.pop(subscription_id, None) is None:
            return
        if not known:
            del self._ends[interface]
        self._due.cancel((interface, subscription_id))
        self._arm()

    def _arm(self) -> None:
        due_ns = self._due.next_ns()
        if due_ns is None:
            self._timers.cancel(("validity", ""))
        else:
            self._timers.set(("validity", ""), due_ns)

    # --- what has ended, and what is left -------------------------------------------------------------------

    def take(self) -> list[tuple[Interface, int]]:
        """Some subscriptions of which the period is over; the timer is set for the others."""
        taken = self._due.take(self._clock.now_ns, AT_ONCE)
        for interface, subscription_id in taken:
            known = self._ends[interface]
            del known[subscription_id]
            if not known:
                del self._ends[interface]
        self.expired += len(taken)
        self._arm()
        return taken

    def left_ns(self, interface: Interface, subscription_id: int) -> int:
        """How long a subscription is still valid, at least 1; 0 for one without an end."""
        end_ns = self._ends.get(interface, _NONE).get(subscription_id)
        return 0 if end_ns is None else max(1, end_ns - self._clock.now_ns)

    def stored_ns(self, interface: Interface, subscription_id: int) -> int:
        """When it ends, as it is stored; 0 for never."""
        end_ns = self._ends.get(interface, _NONE).get(subscription_id)
        return 0 if end_ns is None else max(1, end_ns + self._clock.offset_ns)


_NONE: Mapping[int, int] = {}


def _refused(interface: Interface, actions: Iterable[Action]) -> set[int]:
    """The epochs of the messages of an interface that were refused."""
    return {
        action.message.epoch
        for action in actions
        if isinstance(action, Send) and action.interface == interface and isinstance(action.message, Refuse)
    }
