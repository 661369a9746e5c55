"""How those who send to a broker share it: by holds, windows and turns.

*Holds.* A source holds a type exactly while some other interface that wants the type is full, from its first
event of the type on. It is not held for its own sake: a client may publish what it computes from what it
reads.

*Windows.* The more clients publish, the less each may have on its way.

*Turns.* A turn has at most `TURN_MESSAGES` messages; beside others, as many as would take `TURN_NS` by the
last turn, at least one. Clients whose turns take at least `DEAR_NS` stand in one line, in which each turn is
followed by as long a rest. Invariant: all of them together have at most half of the broker's time while
others need any; a client that is alone has all of it. Neighbours never rest, and their frames are not
divided, since merged updates take effect together."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

from covey.overlay.core.messages import Hold, Interface


class Holds:
    def __init__(self, tell: Callable[[Interface, Hold], None]) -> None:
        self._tell = tell
        self._full: dict[str, dict[Interface, None]] = {}
        """By type, the full interfaces."""
        self._types: dict[Interface, dict[str, None]] = {}
        """By interface, the types for which it is full."""
        self._sources: dict[str, dict[Interface, int | None]] = {}
        """By type and source, the bytes sent since its Hold; None if not held."""
        self._sent: dict[Interface, dict[str, None]] = {}
        """By source, the types that it has sent."""
        self.types = 0

    def set_full(self, interface: Interface, types: Iterable[str]) -> None:
        wanted, known = dict.fromkeys(types), self._types.get(interface, {})
        for name in [name for name in known if name not in wanted]:
            del self._full[name][interface]
            if not self._full[name]:
                del self._full[name]
            self._balance(name)
        for name in [name for name in wanted if name not in known]:
            self._full.setdefault(name, {})[interface] = None
            self._balance(name)
        if wanted:
            self._types[interface] = wanted
        else:
            self._types.pop(interface, None)

    def sent(self, source: Interface, type_name: str, size: int) -> int:
        """The source has sent `size` bytes of a type; returns the bytes since its Hold, 0 if not held."""
        if type_name not in self._sources:
            self._sources[type_name] = {}
            self.types += 1
        sources = self._sources[type_name]
        if source not in sources:
            sources[source] = None
            self._sent.setdefault(source, {})[type_name] = None
            if type_name in self._full:
                self._balance(type_name)
        since = sources[source]
        if since is None:
            return 0
        sources[source] = since = since + size
        return since

    def forget_types(self, known: Container[str]) -> None:
        """Remove the sources of unknown types, unless held."""
        for name in [name for name in self._sources if name not in known and name not in self._full]:
            for source in self._sources.pop(name):
                del self._sent[source][name]
        self.types = len(self._sources)

    def forget_source(self, source: Interface) -> None:
        """The source has ended, or has lost its holds."""
        for name in self._sent.pop(source, ()):
            del self._sources[name][source]
            if not self._sources[name]:
                del self._sources[name]
        self.types = len(self._sources)

    def as_dict(self) -> dict[str, list[Interface]]:
        return {name: list(full) for name, full in self._full.items()}

    def _balance(self, type_name: str) -> None:
        full = self._full.get(type_name, {})
        sources = self._sources.get(type_name, {})
        for source, since in sources.items():
            hold = len(full) > (source in full)
            if hold is (since is None):
                sources[source] = 0 if hold else None
                self._tell(source, Hold(type_name, hold))


@dataclass(frozen=True, slots=True)
class WindowSizes:
    """Bytes: the window of a client that has published nothing; of all that have, together; the least of
    each."""

    first: int = 256 << 10
    publishers: int = 8 << 20
    least: int = 64 << 10


TURN_MESSAGES = 128
"""A full frame of control messages of the client library (12 KiB), some 10 ms of new subscriptions."""
TURN_NS = 1_000_000
DEAR_NS = 500_000
"""Less than `TURN_NS`, or short turns would have no rest."""
FIRST_MESSAGES = 8
"""Of the first turn, before any is measured."""
ACTIVE_NS = 1_000_000_000
"""How long an interface counts as active after its last message, and a client's turns as dear."""


@dataclass(slots=True)
class Share:
    """The time of the last dear turn, until when the next is expected to be dear, the place in the line or
    None, the messages of the next turn beside others, and whether the interface rests, as clients do."""

    spent_ns: int = 0
    dear_until_ns: int = 0
    place_ns: int | None = None
    messages: int = FIRST_MESSAGES
    rests: bool = True


class Turns:
    def __init__(self) -> None:
        self._line_ns = 0
        """When a client that joins the line now may have its turn."""
        self._active: list[tuple[Share, int]] = []
        """The last two interfaces whose turns were not dear, or that do not rest, and when."""

    def delay_ns(self, share: Share, now_ns: int) -> int:
        """How long an interface has to wait for its next turn; 0: it has it now. O(1)."""
        if not share.rests:
            return 0
        if share.place_ns is None:
            if share.dear_until_ns <= now_ns or not self._others_active(share, now_ns):
                return 0
            share.place_ns = max(self._line_ns, now_ns)
            self._line_ns = share.place_ns + 2 * share.spent_ns
        if share.place_ns > now_ns:
            return share.place_ns - now_ns
        share.place_ns = None
        return 0

    def messages(self, share: Share, now_ns: int, most: int = TURN_MESSAGES) -> int:
        """How many messages a turn may have that begins now, at most `most`. O(1)."""
        return share.messages if share.messages < most and self._others_active(share, now_ns) else most

    def measure(self, share: Share, messages: int, spent_ns: int) -> None:
        if spent_ns > TURN_NS:
            share.messages = max(1, messages * TURN_NS // spent_ns)
        elif messages >= share.messages:
            share.messages = min(TURN_MESSAGES, 2 * share.messages)

    def took(self, share: Share, spent_ns: int, now_ns: int) -> None:
        """A turn has ended now; a rest follows if it took long."""
        if share.rests and spent_ns >= DEAR_NS:
            share.spent_ns, share.dear_until_ns = spent_ns, now_ns + ACTIVE_NS
            self._line_ns = max(self._line_ns, now_ns + spent_ns)
        elif not share.rests or share.dear_until_ns <= now_ns:
            active = self._active
            if active and active[-1][0] is share:
                active[-1] = share, now_ns
            else:
                self._active = [*active[-1:], (share, now_ns)]

    def _others_active(self, share: Share, now_ns: int) -> bool:
        for other, ns in self._active:  # at most two; a generator would take longer
            if other is not share and now_ns - ns < ACTIVE_NS:
                break
        else:
            return False
        return True
