"""How much the clients of a broker may have on its way: the more of them publish, the less each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from covey.overlay.core.endpoint.interface_queue import InterfaceQueue


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
        self.publishers = 0
        """How many clients have published."""

    def opened(self, queue: InterfaceQueue) -> None:
        """The queue of a new session."""
        queue.link.window_bytes = min(queue.widest_window, self._sizes.first)

    def published(self, queue: InterfaceQueue) -> None:
        """A client has published, and `queue.publishers` is not how many have: the windows of the others
        follow when they publish. O(1).
        """
        if queue.publishers is None:
            self.publishers += 1
        queue.publishers = self.publishers
        share = max(self._sizes.least, self._sizes.publishers // self.publishers)
        queue.link.window_bytes = min(queue.widest_window, share)

    def forget(self, queue: InterfaceQueue) -> None:
        """A session has ended."""
        if queue.publishers is not None:
            self.publishers -= 1
