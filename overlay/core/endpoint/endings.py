"""Subscriptions that end together, many of one session: they are withdrawn in parts, with pauses between.

A session has ended, or its client has synchronised without repeating them. Then its SyncEnd, and what is
behind it, waits for the parts before it, which come in the turns of the client.

Invariant: a part costs the broker half a millisecond, and the parts of all sessions that have ended together
no more than a quarter of its time, on a busy machine as well. Until its last part such a session counts for
the quotas, and its name is taken: to free it at once needs subscriptions without an interface in every table.
"""

from __future__ import annotations

from collections.abc import Callable

from covey.overlay.core.endpoint.timers import Timers
from covey.overlay.core.messages import Disconnect, Interface, Message, Withdraw
from covey.overlay.core.routing.tables import Tables

PART = 32
"""Subscriptions, of some 17 us each."""
PAUSE_NS = 2_000_000
"""From the beginning of a part to that of the next, at least."""
_REST = 3
"""How many times as long as a part the pause behind it is, at least."""


class Endings:
    """Those of one endpoint, of `part` subscriptions each. `tell_core` passes a message of an interface to
    the core, `ended` learns that all of a session has ended. Sets the timer "ending" of an interface.
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
        self._worked = False
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
        self._worked = True
        if len(left) <= self._part:
            self.finish(interface)
            return
        self._tell_core(Withdraw(self._last(left)), interface)
        self._set_timer(interface, now_ns)

    def took(self, spent_ns: int, now_ns: int) -> None:
        """The timers that were due until now have taken so long."""
        if self._worked:
            self._worked = False
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
