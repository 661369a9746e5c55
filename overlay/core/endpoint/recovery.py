"""A broker that has lost its state takes no events before it knows where to send them.

What its neighbours have kept for it, and its clients publish, waits until the neighbours, and for a moment
the clients, have said what they want: until then no credit is granted, and no SyncEnd leaves.
"""

from __future__ import annotations

from covey.overlay.core.endpoint.timers import Timers
from covey.overlay.core.link.link import Hello
from covey.overlay.core.messages import Interface

NS_PER_S = 1_000_000_000
RECOVERY_NS = 10 * NS_PER_S
"""How long a restarted broker waits for its neighbours at most ..."""
CLIENTS_NS = 5 * NS_PER_S // 2
"""... and for its clients, which connect again within two seconds, at least."""
_STARTING_NS = 60 * NS_PER_S
_LIFE_SHIFT = 32


class Recovery:
    """One life of a broker; sets the timers "clients" and "recovery"."""

    def __init__(self, life: int, now_ns: int, timers: Timers[tuple[str, Interface]]) -> None:
        self.going_on = False
        self._life = life
        self._started_ns = now_ns
        self._timers = timers
        self._over = False
        self._new_neighbour = False

    def incarnation(self, number: int) -> int:
        """The incarnation of a link of this life, by its number, of 22 bits."""
        return self._life << _LIFE_SHIFT | number << 10 | 1

    def begins(self, hello: Hello, now_ns: int) -> bool:
        """Whether a recovery begins with this hello: its sender knew an earlier life of the broker, which has
        just started.
        """
        known = hello.peer_incarnation
        if not known or known >> _LIFE_SHIFT == self._life:
            return False
        if self.going_on or self._over or now_ns - self._started_ns >= _STARTING_NS:
            return False
        self.going_on = True
        self._timers.set(("clients", ""), now_ns + CLIENTS_NS)
        self._timers.set(("recovery", ""), now_ns + RECOVERY_NS)
        return True

    def neighbour_connected(self, hello: Hello) -> None:
        """Its link has no earlier state: it knows no life of this broker if it has started anew itself."""
        self._new_neighbour |= not hello.peer_incarnation

    def synchronised(self, now_ns: int) -> bool:
        """Whether clients had their time, all neighbours having sent their state: those here, and where a
        neighbour has started anew, those of the brokers behind it, from now on.
        """
        if ("clients", "") not in self._timers and self._new_neighbour:
            self._new_neighbour = False
            self._timers.set(("clients", ""), now_ns + CLIENTS_NS)
        return ("clients", "") not in self._timers

    def end(self) -> None:
        self.going_on, self._over = False, True
        self._timers.cancel(("recovery", ""))
