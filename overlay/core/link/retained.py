"""A frame of a link until it is acknowledged.

Invariant: its messages are those that were sent, `held` is what they take in memory, and where they are many
they are packed (`packing.py`): a client that does not acknowledge costs their bytes, and no objects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from covey.overlay.core.link.packing import MOST_WHOLE, Whole, packed
from covey.overlay.core.messages import Message

if TYPE_CHECKING:
    from covey.overlay.core.link.link import Frame


class Retained:
    """A frame with so many messages of control, and so many events."""

    __slots__ = ("_frame", "_waiting", "control", "events", "held", "sequence")

    def __init__(self, frame: Frame[Message], control: int, events: int) -> None:
        self.sequence, self.control, self.events = frame.sequence, control, events
        many = len(frame.messages) - control > MOST_WHOLE
        self._waiting = tuple(map(packed if many else Whole, frame.messages)) if events else ()
        self._frame = replace(frame, messages=()) if many else frame
        self.held = sum(each.held for each in self._waiting)

    @property
    def frame(self) -> Frame[Message]:
        """The frame as it was sent."""
        if self._frame.messages:
            return self._frame
        return replace(self._frame, messages=tuple(each.message for each in self._waiting))

    def stored(self) -> dict[str, int]:
        """By event type the offset of the last record whose events it has."""
        return {each.type_name: each.offset for each in self._waiting if each.offset >= 0}
