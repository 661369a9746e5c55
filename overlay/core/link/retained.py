"""The messages of a frame until it is acknowledged.

Invariant: they are those that were sent, `held` is what they take in memory, and where they are many they are
packed (`packing.py`): a client that does not acknowledge costs their bytes, and no objects.
"""

from __future__ import annotations

from collections.abc import Sequence

from covey.overlay.core.link.packing import MOST_WHOLE, Whole, packed
from covey.overlay.core.messages import Message


class Retained:
    """The frame of a sequence number, with so many messages of control and so many events; `received` and
    `settled` are what it acknowledged.
    """

    __slots__ = ("_messages", "_waiting", "control", "events", "held", "received", "sequence", "settled")

    def __init__(
        self,
        sequence: int,
        messages: Sequence[Message],
        received: int,
        settled: int,
        control: int,
        events: int,
    ) -> None:
        self.sequence, self.received, self.settled = sequence, received, settled
        self.control, self.events = control, events
        many = len(messages) - control > MOST_WHOLE
        self._waiting = tuple(map(packed if many else Whole, messages)) if events else ()
        self._messages = () if many and events else messages
        self.held = sum(each.held for each in self._waiting)

    @property
    def messages(self) -> Sequence[Message]:
        """As they were sent."""
        return self._messages or tuple(each.message for each in self._waiting)

    def stored(self) -> dict[str, int]:
        """By event type the offset of the last record whose events it has."""
        return {each.type_name: each.offset for each in self._waiting if each.offset >= 0}
