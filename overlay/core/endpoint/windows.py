"""How much the clients of a broker may have on its way: the more of them publish, the less each."""

from __future__ import annotations

from dataclasses import dataclass

from covey.overlay.core.link.link import Link
from covey.overlay.core.messages import Interface


@dataclass(frozen=True, slots=True)
class WindowSizes:
    """In bytes: the window of a client that has published nothing yet; of all that have, together, which is
    what may be on its way when they are told to hold; and of each of them at least.
    """

    first: int = 256 << 10
    publishers: int = 8 << 20
    least: int = 64 << 10


class Windows:
    """Sets the windows of sessions' links, none wider than the link has it."""

    def __init__(self, sizes: WindowSizes) -> None:
        self._sizes = sizes
        self._widest: dict[Interface, int] = {}
        self._publishers: dict[Interface, int] = {}
        """How many there were when the window was set."""

    def opened(self, interface: Interface, link: Link) -> None:
        """The link of a new session."""
        self._widest[interface] = link.window_bytes
        link.window_bytes = min(link.window_bytes, self._sizes.first)

    def published(self, interface: Interface, link: Link) -> None:
        """A client has published. O(1): the windows of the others follow when they publish."""
        publishers = self._publishers
        count = len(publishers) + (interface not in publishers)
        if publishers.get(interface) == count:
            return
        publishers[interface] = count
        share = max(self._sizes.least, self._sizes.publishers // count)
        link.window_bytes = min(self._widest[interface], share)

    def forget(self, interface: Interface) -> None:
        """A session has ended."""
        self._widest.pop(interface, None)
        self._publishers.pop(interface, None)
