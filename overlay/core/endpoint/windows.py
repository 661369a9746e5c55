"""How much the clients of a broker may have on its way: the more of them publish, the less each."""

from __future__ import annotations

from covey.overlay.core.link.link import Link
from covey.overlay.core.messages import Interface

FIRST_WINDOW_BYTES = 256 << 10
"""The window of a client that has published nothing yet ..."""
PUBLISHERS_BYTES = 8 << 20
"""... and of all that have, together: what may be on its way when they are told to hold."""
MIN_WINDOW_BYTES = 64 << 10


class Windows:
    """Sets the windows of sessions' links, none wider than the link has it."""

    def __init__(self) -> None:
        self._widest: dict[Interface, int] = {}
        self._publishers: dict[Interface, None] = {}

    def opened(self, interface: Interface, link: Link) -> None:
        """The link of a new session."""
        self._widest[interface] = link.window_bytes
        link.window_bytes = min(link.window_bytes, FIRST_WINDOW_BYTES)

    def published(self, interface: Interface, link: Link) -> None:
        """A client has published. O(1): the windows of the others follow when they publish."""
        self._publishers[interface] = None
        share = max(MIN_WINDOW_BYTES, PUBLISHERS_BYTES // len(self._publishers))
        link.window_bytes = min(self._widest[interface], share)

    def forget(self, interface: Interface) -> None:
        """A session has ended."""
        self._widest.pop(interface, None)
        self._publishers.pop(interface, None)
