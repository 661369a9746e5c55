"""The messages of a frame until it is acknowledged.

Invariant: they are those that were sent, `held` is what they take in memory, and where they are many they are
packed (`packing.py`): a client that does not acknowledge costs their bytes, and no objects.
"""

from __future__ import annotations

from collections.abc import Sequence

from covey.overlay.core.link.packing import MOST_WHOLE, Waiting, packed
from covey.overlay.core.messages import Message


class Retained:
    """The frame of a sequence number: messages, the first of which are `control`, then what was taken of the
    queue of events. `received` and `settled` are what it acknowledged.
    """

    __slots__ = ("_head", "control", "entries", "events", "held", "received", "sequence", "settled")

    def __init__(
        self,
        sequence: int,
        head: Sequence[Message],
        entries: Sequence[Waiting],
        received: int,
        settled: int,
        control: int,
    ) -> None:
        self.sequence, self.received, self.settled = sequence, received, settled
        self.control = control
        self._head = head
        if len(entries) > MOST_WHOLE:
            entries = [packed(each.message) for each in entries]
        self.entries = entries
        self.held = self.events = 0
        for each in entries:
            self.held += each.held
            self.events += each.events

    @property
    def messages(self) -> Sequence[Message]:
        """As they were sent."""
        return (*self._head, *(each.message for each in self.entries))

    def stored(self) -> dict[str, int]:
        """By event type the offset of the last record whose events it has."""
        return {each.type_name: each.offset for each in self.entries if each.offset >= 0}
