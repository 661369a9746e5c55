"""Subscriptions of clients that end: by their validity period (Liu et al., section 5.1), or many together
with their session.

*Validity.* Only the session's broker removes the subscription, as if the client had cancelled it. A period
counts from the arrival of its message, by this broker's monotonic clock, so no two clocks have to agree.
Messages carry the rest of it; the disk has its end by the clock that stamps events, which goes on while the
broker is down.

*Endings.* Subscriptions of an ended session, or that a client has not repeated, are withdrawn in parts, with
pauses. Invariant: a part costs half a millisecond, and the parts of all ended sessions together at most a
quarter of the broker's time. Until its last part such a session counts for the quotas, and its name is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from covey.overlay.core.endpoint.timers import EndpointClock, Timers
from covey.overlay.core.messages import (
    Action,
    Disconnect,
    Interface,
    Message,
    Refuse,
    Send,
    Subscribe,
    SyncEnd,
    Unsubscribe,
    Update,
    Withdraw,
)
from covey.overlay.core.routing.tables import Tables

AT_ONCE = 200
"""Subscriptions that end in one turn at most."""


class Validity:
    """The validity periods of an endpoint's subscriptions. Sets the timer "validity"."""

    def __init__(self, clock: EndpointClock, timers: Timers[tuple[str, Interface]]) -> None:
        self.expired = 0
        self._clock = clock
        self._timers = timers
        self._due: Timers[tuple[Interface, int]] = Timers()
        self._ends: dict[Interface, dict[int, int]] = {}
        """By session and subscription, by the monotonic clock."""

    def __len__(self) -> int:
        return sum(map(len, self._ends.values()))

    # --- what changes a period ------------------------------------------------------------------------------

    def handled(
        self,
        interface: Interface,
        messages: Iterable[Message],
        actions: Iterable[Action],
        subscriptions: Collection[int],
    ) -> None:
        """The core has answered messages of a client with these actions; `subscriptions` are now its own."""
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
                    continue  # the earlier period stays
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
        """The subscription is valid for so long from now on; not positive: it ends at once."""
        end_ns = self._clock.now_ns + valid_for_ns
        self._ends.setdefault(interface, {})[subscription_id] = end_ns
        self._due.set((interface, subscription_id), end_ns)
        self._arm()

    def restore(self, interface: Interface, subscription_id: int, stored_ns: int) -> None:
        """Restore a stored end, by the clock that stamps events, 0 for none."""
        if stored_ns:
            self.set(interface, subscription_id, stored_ns - self._clock.stamp_ns)

    def forget(self, interface: Interface) -> None:
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
        due_ns = self._due.next_ns
        if due_ns is None:
            self._timers.cancel(("validity", ""))
        else:
            self._timers.set(("validity", ""), due_ns)

    # --- what has ended, and what is left -------------------------------------------------------------------

    def take(self) -> list[tuple[Interface, int]]:
        """Remove and return some expired subscriptions; the timer is set for the others."""
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
        """The rest of the validity period, at least 1; 0 without an end."""
        end_ns = self._ends.get(interface, _NONE).get(subscription_id)
        return 0 if end_ns is None else max(1, end_ns - self._clock.now_ns)

    def stored_ns(self, interface: Interface, subscription_id: int) -> int:
        """The end by the clock that stamps events; 0 for never."""
        end_ns = self._ends.get(interface, _NONE).get(subscription_id)
        return 0 if end_ns is None else max(1, end_ns + self._clock.offset_ns)


_NONE: Mapping[int, int] = {}


def _refused(interface: Interface, actions: Iterable[Action]) -> set[int]:
    return {
        action.message.epoch
        for action in actions
        if isinstance(action, Send) and action.interface == interface and isinstance(action.message, Refuse)
    }


PART = 32
"""Subscriptions, of some 17 us each."""
PAUSE_NS = 2_000_000
"""The least time between the beginnings of two parts."""
_REST = 3
"""The least pause after a part, in multiples of its duration."""


class Endings:
    """Withdraws subscriptions that end together, `part` at a time. `tell_core` passes a message of an
    interface to the core. Sets the timer "ending" of an interface."""

    def __init__(
        self,
        tables: Tables,
        *,
        part: int,
        timers: Timers[tuple[str, Interface]],
        tell_core: Callable[[Message, Interface], None],
        ended: Callable[[Interface], None],
    ) -> None:
        self._tables = tables
        self._part = part
        self._timers = timers
        self._tell_core = tell_core
        self._ended = ended
        self._left: dict[Interface, list[int]] = {}
        self._void: dict[Interface, list[int]] = {}
        self._next_ns = 0
        """The earliest time of the next part."""
        self._rest_until_ns = 0
        self.worked = False
        """Whether there was a part since the last `took`."""

    def __contains__(self, interface: Interface) -> bool:
        return interface in self._left

    def __len__(self) -> int:
        return len(self._left)

    def begin(self, interface: Interface, now_ns: int) -> None:
        """A session has ended. All of it goes now if that is little."""
        peer = self._tables.peers.get(interface)
        if peer is None or len(peer.subscriptions) <= self._part:
            self.finish(interface)
            return
        self._void.pop(interface, None)
        self._left[interface] = list(peer.subscriptions)
        self._set_timer(interface, now_ns)

    def advance(self, interface: Interface, now_ns: int) -> None:
        left = self._left[interface]
        if now_ns < self._rest_until_ns:
            self._set_timer(interface, self._rest_until_ns - PAUSE_NS)
            return
        self.worked = True
        if len(left) <= self._part:
            self.finish(interface)
            return
        self._tell_core(Withdraw(self._last(left)), interface)
        self._set_timer(interface, now_ns)

    def took(self, spent_ns: int, now_ns: int) -> None:
        """The timers that were due until now, a part among them, have taken so long."""
        self.worked = False
        self._rest_until_ns = now_ns + _REST * spent_ns

    def withdraw_void(self, interface: Interface) -> bool:
        """Withdraw a part of what a client has not repeated, if that is more than one; True: the SyncEnd has
        to come again. O(part), except the first time."""
        peer = self._tables.peers.get(interface)
        if peer is None or len(peer.stale_subscriptions) <= self._part:
            self._void.pop(interface, None)
            return False
        left = self._void.get(interface) or list(peer.stale_subscriptions)
        self._void[interface] = left
        part = tuple(each for each in self._last(left) if each in peer.stale_subscriptions)
        self._tell_core(Withdraw(part), interface)
        return True

    def _last(self, left: list[int]) -> tuple[int, ...]:
        """From the end: a dictionary that loses its first items would be searched for the next."""
        part = tuple(left[-self._part :])
        del left[-self._part :]
        return part

    def finish(self, interface: Interface) -> None:
        self._left.pop(interface, None)
        self._void.pop(interface, None)
        self._timers.cancel(("ending", interface))
        self._tell_core(Disconnect(), interface)
        self._ended(interface)

    def _set_timer(self, interface: Interface, now_ns: int) -> None:
        self._next_ns = max(self._next_ns, now_ns) + PAUSE_NS
        self._timers.set(("ending", interface), self._next_ns)
