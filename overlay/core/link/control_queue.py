"""Control messages that wait for a busy link: the latest values win, and acknowledgements still cover them
all.

An Update that waits takes up the values of later Updates of the same subscription, in its own, earlier
place; the newest epoch then still follows, on an Update without values if need be, so that the peer
acknowledges an epoch only when values at least as new have taken effect. Only a run of Updates is merged:
what creates, replaces or removes a subscription is never passed. Of Acknowledges, which are cumulative, the
newest one stands for all.

So an Update may pass others, and one that gives something up may come before one that takes it over. The peer
must then see nothing in between: what lies between the two places leaves in one frame, whose messages take
effect together. For a frame to have a bound, the queue is cut into stretches of so many bytes (`max_bytes` of
`append`), and an Update takes up later ones of its own stretch only: there is at most one per subscription in
each, however fast the values change. A frame that may not end where it is full (`max_bytes` of `take`) ends
with that stretch at the latest.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from covey.overlay.core.link.size import size_of
from covey.overlay.core.messages import Acknowledge, Message, Refuse, Update


class _Waiting:
    """A message and its size; None once a later message stands for it.

    `place` counts messages as they came; `newest` is the place of the last one it has taken up.
    """

    __slots__ = ("message", "newest", "place", "size")

    def __init__(self, message: Message, place: int) -> None:
        self.message: Message | None = message
        self.size = size_of(message)
        self.place = self.newest = place


class ControlQueue:
    """A queue of control messages that merges what later ones make obsolete."""

    __slots__ = (
        "_acknowledge",
        "_last_epoch",
        "_places",
        "_stretch",
        "_updates",
        "urgent",
        "waiting",
    )

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.waiting: deque[_Waiting] = deque()
        """What waits, messages that a later one stands for included; empty when there is nothing to take."""
        self._places = 0
        self._stretch = 0  # Bytes of the last stretch.
        self._updates: dict[int, _Waiting] = {}  # Of the last stretch, by subscription.
        self._last_epoch: Update | None = None
        self._acknowledge: _Waiting | None = None
        self.urgent = False

    def __len__(self) -> int:
        """How many messages wait, those that a later one stands for included."""
        return len(self.waiting)

    def _queue(self, message: Message, max_bytes: int) -> _Waiting:
        waiting = _Waiting(message, self._places)
        self._stretch += waiting.size
        if self._stretch > max_bytes:
            self._stretch = waiting.size
            self._updates.clear()
        self.waiting.append(waiting)
        return waiting

    def append(self, message: Message, max_bytes: int) -> None:
        """Queue a message, or merge it into one that waits. O(values)."""
        self._places += 1
        if isinstance(message, Acknowledge):
            self._append_acknowledge(message, max_bytes)
            return
        if isinstance(message, Refuse):
            # An acknowledgement of arrival must not come before the refusal: it is not held back.
            self.urgent = True
            self._queue(message, max_bytes)
            return
        if isinstance(message, Update):
            earlier = self._updates.get(message.subscription_id)
            if earlier is not None:
                self._merge(earlier, message)
                return
            self._updates[message.subscription_id] = self._queue(message, max_bytes)
        else:
            self._updates.clear()
            self._queue(message, max_bytes)
        self._last_epoch = None  # This message's epoch is newer, and covers it.

    def _merge(self, earlier: _Waiting, update: Update) -> None:
        old = earlier.message
        assert isinstance(old, Update)
        values = {**old.values, **update.values}
        # Of two updates without gaps the earlier call reaches further back.
        since_ns = min(old.since_ns, update.since_ns) or max(old.since_ns, update.since_ns)
        if self.waiting[-1] is earlier and self._last_epoch is None:
            earlier.message = replace(update, values=values, since_ns=since_ns)
        else:
            earlier.message = replace(old, values=values, since_ns=since_ns)
            self._last_epoch = replace(update, values={}, since_ns=0)
        earlier.newest = self._places
        self._stretch -= earlier.size
        earlier.size = size_of(earlier.message)
        self._stretch += earlier.size

    def _append_acknowledge(self, message: Acknowledge, max_bytes: int) -> None:
        waiting = self._acknowledge
        if waiting is not None:
            if self.waiting[-1] is waiting:
                waiting.message = message
                return
            waiting.message = None  # A refusal between the two must come before the newer one.
        self._acknowledge = self._queue(message, max_bytes)

    def take(self, max_bytes: int) -> tuple[list[Message], int]:
        """The messages for one frame, at least one if any waits, and their size."""
        messages: list[Message] = []
        size = newest = 0
        while self.waiting:
            waiting = self.waiting[0]
            if messages and size + waiting.size > max_bytes and newest < waiting.place:
                break
            newest = max(newest, waiting.newest)
            self.waiting.popleft()
            message = waiting.message
            if waiting is self._acknowledge:
                self._acknowledge = None
            elif isinstance(message, Update) and self._updates.get(message.subscription_id) is waiting:
                del self._updates[message.subscription_id]
            if message is not None:
                messages.append(message)
                size += waiting.size
        if not self.waiting:
            self._places = self._stretch = 0
            self.urgent = False
            if self._last_epoch is not None:
                messages.append(self._last_epoch)
                self._last_epoch = None
        return messages, size
