"""Which event types are held, because of whom, and which sources were told.

Invariant: a source is told to hold a type exactly while some other interface that wants the type is full,
from the first event of the type that it sends on. It is not held for its own sake: a client may publish what
it computes from what it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from covey.overlay.core.messages import Hold, Interface


class Holds:
    """`tell` sends a Hold to a source. Operations cost what they change."""

    def __init__(self, tell: Callable[[Interface, Hold], None]) -> None:
        self._tell = tell
        self._full: dict[str, dict[Interface, None]] = {}
        """By type, who is full."""
        self._types: dict[Interface, dict[str, None]] = {}
        """By interface, the types for which it is full."""
        self._sources: dict[str, dict[Interface, int | None]] = {}
        """By type, who has sent events of it: how many bytes since it was told to hold it; None if it was
        not."""
        self._sent: dict[Interface, dict[str, None]] = {}
        """By source, the types that it has sent."""
        self.types = 0
        """Of how many event types sources are known."""

    def set_full(self, interface: Interface, types: Iterable[str]) -> None:
        """The interface is full for these types and no others."""
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
        """The source has sent so many bytes of a type; how many since it was told to hold it."""
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
        """Forget who has sent events of types that are not known any more, unless they were told to hold
        them.
        """
        for name in [name for name in self._sources if name not in known and name not in self._full]:
            for source in self._sources.pop(name):
                del self._sent[source][name]
        self.types = len(self._sources)

    def forget_source(self, source: Interface) -> None:
        """The source has ended, or has lost what it was told."""
        for name in self._sent.pop(source, ()):
            del self._sources[name][source]
            if not self._sources[name]:
                del self._sources[name]
        self.types = len(self._sources)

    def as_dict(self) -> dict[str, list[Interface]]:
        """Who is full, by held type."""
        return {name: list(full) for name, full in self._full.items()}

    def _balance(self, type_name: str) -> None:
        full = self._full.get(type_name, {})
        sources = self._sources.get(type_name, {})
        for source, since in sources.items():
            hold = len(full) > (source in full)
            if hold is (since is None):
                sources[source] = 0 if hold else None
                self._tell(source, Hold(type_name, hold))
