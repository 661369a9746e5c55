"""How fast one client may send: a bucket per session and kind that fills at the rate and holds one second of
it. Invariant: over any t seconds the accepted amount is at most rate * (t + 1), and one message more.

A message passes while there is anything in the bucket, and takes what it has, so a batch is never split.
"""

from __future__ import annotations

from collections.abc import Hashable

from covey.overlay.core.messages import Interface

_NS_PER_S = 1_000_000_000


class Rates:
    """The buckets of all sessions, made when they are first used."""

    def __init__(self) -> None:
        self._buckets: dict[Interface, dict[Hashable, tuple[float, int]]] = {}

    def passes(self, interface: Interface, kind: Hashable, amount: int, rate: float, now_ns: int) -> bool:
        """Whether a message of this amount keeps the rate, in amounts per second; if so it counts. A clock
        that goes back fills nothing.
        """
        buckets = self._buckets.setdefault(interface, {})
        level, since_ns = buckets.get(kind, (rate, now_ns))
        level = min(rate, level + max(0, now_ns - since_ns) / _NS_PER_S * rate)
        passed = level > 0
        buckets[kind] = (level - amount if passed else level, now_ns)
        return passed

    def forget(self, interface: Interface) -> None:
        """The session has ended."""
        self._buckets.pop(interface, None)
