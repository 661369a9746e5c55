"""Sessions that have ended with many subscriptions: these are withdrawn in parts, with pauses between.

Invariant: a part costs the broker about a millisecond, and the parts of all sessions together no more than
half of its time. Until its last part a session counts for the quotas, and its name is taken.
"""

from __future__ import annotations

from collections.abc import Callable

from covey.overlay.core.endpoint.timers import Timers
from covey.overlay.core.messages import Disconnect, Interface, Message, Withdraw
from covey.overlay.core.routing.tables import Tables

PART = 64
"""Subscriptions, of some 17 us each."""
PAUSE_NS = 2_000_000
"""From the beginning of a part to that of the next."""


class Endings:
    """Those of one endpoint. `tell_core` passes a message of an interface to the core, `ended` learns that
    all of a session has ended. Sets the timer "ending" of an interface.
    """

    def __init__(
        self,
        tables: Tables,
        *,
        timers: Timers[tuple[str, Interface]],
        tell_core: Callable[[Message, Interface], None],
        ended: Callable[[Interface], None],
    ) -> None:
        self._tables = tables
        self._timers = timers
        self._tell_core = tell_core
        self._ended = ended
        self._left: dict[Interface, list[int]] = {}
        """The subscriptions that are still there, of each session."""
        self._next_ns = 0
        """Before then no part begins."""

    def __contains__(self, interface: Interface) -> bool:
        return interface in self._left

    def __len__(self) -> int:
        return len(self._left)

    def begin(self, interface: Interface, now_ns: int) -> None:
        """A session has ended. All of it goes now if that is little."""
        peer = self._tables.peers.get(interface)
        if peer is None or len(peer.subscriptions) <= PART:
            self.finish(interface)
            return
        self._left[interface] = list(peer.subscriptions)
        self._set_timer(interface, now_ns)

    def advance(self, interface: Interface, now_ns: int) -> None:
        """The timer of an interface is due."""
        left = self._left[interface]
        if len(left) <= PART:
            self.finish(interface)
            return
        part = tuple(left[-PART:])  # a dictionary that loses its first items would be searched for the next
        del left[-PART:]
        self._tell_core(Withdraw(part), interface)
        self._set_timer(interface, now_ns)

    def finish(self, interface: Interface) -> None:
        """End the rest of a session at once."""
        self._left.pop(interface, None)
        self._timers.cancel(("ending", interface))
        self._tell_core(Disconnect(), interface)
        self._ended(interface)

    def _set_timer(self, interface: Interface, now_ns: int) -> None:
        self._next_ns = max(self._next_ns, now_ns) + PAUSE_NS
        self._timers.set(("ending", interface), self._next_ns)
