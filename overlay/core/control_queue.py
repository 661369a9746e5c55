"""Control messages that wait for a busy link: the latest values win, and acknowledgements still cover them
all.

An Update that waits takes up the values of later Updates of the same subscription, in its own, earlier
place; the newest epoch then still follows, on an Update without values if need be, so that the peer
acknowledges an epoch only when values at least as new have taken effect. Only a run of Updates is merged:
what creates, replaces or removes a subscription is never passed. Of Acknowledges, which are cumulative, the
newest one stands for all. Hence the queue holds at most one Update per subscription and run, however fast
the values change. DESIGN section 4 ("latest wins").
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from covey.overlay.core.messages import Acknowledge, Message, Refuse, Update
from covey.overlay.core.size import size_of


class _Waiting:
    """A message and its size; None once a later message stands for it."""

    __slots__ = ("message", "size")

    def __init__(self, message: Message) -> None:
        self.message: Message | None = message
        self.size = size_of(message)


class ControlQueue:
    """A queue of control messages that merges what later ones make obsolete."""

    __slots__ = ("_acknowledge", "_last_epoch", "_updates", "_waiting", "urgent")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        self._updates: dict[int, _Waiting] = {}
        self._last_epoch: Update | None = None
        self._acknowledge: _Waiting | None = None
        self.urgent = False

    def __len__(self) -> int:
        """How many messages wait, those that a later one stands for included."""
        return len(self._waiting)

    def append(self, message: Message) -> None:
        """Queue a message, or merge it into one that waits. O(values)."""
        if isinstance(message, Acknowledge):
            self._append_acknowledge(message)
            return
        if isinstance(message, Refuse):
            # An acknowledgement of arrival must not come before the refusal: it is not held back.
            self.urgent = True
            self._waiting.append(_Waiting(message))
            return
        if isinstance(message, Update):
            earlier = self._updates.get(message.subscription_id)
            if earlier is not None:
                self._merge(earlier, message)
                return
            self._updates[message.subscription_id] = waiting = _Waiting(message)
        else:
            self._updates.clear()
            waiting = _Waiting(message)
        self._last_epoch = None  # This message's epoch is newer, and covers it.
        self._waiting.append(waiting)

    def _merge(self, earlier: _Waiting, update: Update) -> None:
        old = earlier.message
        assert isinstance(old, Update)
        values = {**old.values, **update.values}
        # Of two updates without gaps the earlier call reaches further back.
        since_ns = min(old.since_ns, update.since_ns) or max(old.since_ns, update.since_ns)
        if self._waiting[-1] is earlier and self._last_epoch is None:
            earlier.message = replace(update, values=values, since_ns=since_ns)
        else:
            earlier.message = replace(old, values=values, since_ns=since_ns)
            self._last_epoch = replace(update, values={}, since_ns=0)
        earlier.size = size_of(earlier.message)

    def _append_acknowledge(self, message: Acknowledge) -> None:
        waiting = self._acknowledge
        if waiting is not None:
            if self._waiting[-1] is waiting:
                waiting.message = message
                return
            waiting.message = None  # A refusal between the two must come before the newer one.
        self._acknowledge = _Waiting(message)
        self._waiting.append(self._acknowledge)

    def take(self, max_bytes: int) -> tuple[list[Message], int]:
        """The messages for one frame, at least one if any waits, and their size."""
        messages: list[Message] = []
        size = 0
        while self._waiting:
            waiting = self._waiting[0]
            if messages and size + waiting.size > max_bytes:
                break
            self._waiting.popleft()
            if waiting is self._acknowledge:
                self._acknowledge = None
            if waiting.message is not None:
                messages.append(waiting.message)
                size += waiting.size
        self._updates.clear()
        if not self._waiting:
            self.urgent = False
            if self._last_epoch is not None:
                messages.append(self._last_epoch)
                self._last_epoch = None
        return messages, size
