"""The events of one broker that Spark has not committed yet, numbered as they came.

Event n of a session is row n of an endless table; a micro-batch is a range of rows. Invariants: rows from the
last committed one on are held, so any range that Spark has planned can be read again; a reader waits while
more than `bound_bytes` lie beyond the last finished micro-batch, so at most twice as much is held. Calls of
two threads take turns.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from threading import Lock

from covey.matcher import EventBatch
from covey.overlay.core.messages import Gap

_GAP_BYTES = 64


@dataclass(frozen=True, slots=True)
class Held:
    """Events, or one row that stands for a gap."""

    start: int
    stop: int
    content: EventBatch | Gap
    bytes: int


class HeldEvents:
    """`stop` is the number of rows so far; `missed` counts the events that the broker dropped."""

    def __init__(self, bound_bytes: int) -> None:
        self.bound_bytes = bound_bytes
        self.stop = 0
        self.missed = 0
        self._items: deque[Held] = deque()
        self._finished = 0
        self._waiting_bytes = 0
        """Bytes beyond the last finished micro-batch."""
        self._lock = Lock()

    @property
    def full(self) -> bool:
        return self._waiting_bytes >= self.bound_bytes

    def add(self, content: EventBatch | Gap) -> None:
        count, size = (1, _GAP_BYTES) if isinstance(content, Gap) else (len(content), content.nbytes)
        with self._lock:
            self._items.append(Held(self.stop, self.stop + count, content, size))
            self.stop += count
            self._waiting_bytes += size

    def finish(self, stop: int) -> None:
        """The micro-batches up to this row are done, so their bytes hold up no reader."""
        with self._lock:
            if stop <= self._finished:
                return
            self._finished = stop
            self._waiting_bytes = sum(item.bytes for item in self._items if item.stop > self._finished)

    def drop(self, stop: int) -> None:
        """The rows before this one are committed."""
        with self._lock:
            while self._items and self._items[0].stop <= stop:
                self._items.popleft()
        self.finish(stop)

    def rows(self, start: int, stop: int) -> list[EventBatch | Gap]:
        """The rows of a range, which must be held."""
        items = [item for item in self.items() if item.stop > start and item.start < stop]
        found: list[EventBatch | Gap] = []
        for item in items:
            content = item.content
            if isinstance(content, EventBatch):
                first = max(start - item.start, 0)
                content = content.slice(first, min(stop, item.stop) - item.start - first)
            found.append(content)
        return found

    @property
    def bytes(self) -> int:
        """The bytes of what is held."""
        return sum(item.bytes for item in self.items())

    def items(self) -> list[Held]:
        with self._lock:
            return [*self._items]
