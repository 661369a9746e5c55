"""Subscriptions of clients that end: by their validity period (Liu et al., section 5.1), or many together
with their session.

*Validity.* The broker of the session alone removes the subscription, as if the client had cancelled it. A
period counts from the arrival of its message, by the clock of this broker that never jumps, so no two clocks
have to agree. What leaves the broker is the rest of it; on the disk it is a time by the clock that stamps
events, which goes on while the broker is down. A renewal costs O(log n).

*Endings.* The subscriptions of a session that has ended, or that its client has not repeated, are withdrawn
in parts, with pauses between; a SyncEnd waits for the parts before it, which come in the turns of the client.
Invariant: a part costs the broker half a millisecond, and the parts of all sessions that have ended together
no more than a quarter of its time. Until its last part such a session counts for the quotas, and its name is
taken.
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
"""So many subscriptions end in one turn at most."""


class Validity:
    """The validity periods of an endpoint's subscriptions. Sets the timer "validity"."""

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
        due_ns = self._due.next_ns
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


PART = 32
"""Subscriptions, of some 17 us each."""
PAUSE_NS = 2_000_000
"""From the beginning of a part to that of the next, at least."""
_REST = 3
"""How many times as long as a part the pause behind it is, at least."""


class Endings:
    """Withdraws subscriptions that end together, `part` at a time. `tell_core` passes a message of an
    interface to the core, `ended` learns that all of a session has ended. Sets the timer "ending" of an
    interface.
    """

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
        """The subscriptions that are still there, of each session."""
        self._void: dict[Interface, list[int]] = {}
        """Those that a client has not repeated."""
        self._next_ns = 0
        """Before then no part begins."""
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
        """The timer of an interface is due."""
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
        """Withdraw a part of what a client has not repeated and is to lose by its SyncEnd, if that is much:
        then the SyncEnd has to come again. O(1) but for the first part of all.
        """
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
        """Take a part off: a dictionary that loses its first items would be searched for the next."""
        part = tuple(left[-self._part :])
        del left[-self._part :]
        return part

    def finish(self, interface: Interface) -> None:
        """End the rest of a session at once."""
        self._left.pop(interface, None)
        self._void.pop(interface, None)
        self._timers.cancel(("ending", interface))
        self._tell_core(Disconnect(), interface)
        self._ended(interface)

    def _set_timer(self, interface: Interface, now_ns: int) -> None:
        self._next_ns = max(self._next_ns, now_ns) + PAUSE_NS
        self._timers.set(("ending", interface), self._next_ns)
