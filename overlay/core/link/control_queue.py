"""Control messages pending on a busy link: the latest values win, and each epoch is still acknowledged.

A pending Update absorbs later values of its subscription, in its own position. The newest epoch follows, on
an Update without values if necessary, so an epoch is acknowledged only when values at least as new have taken
effect. No Update overtakes a message that creates, replaces or removes a subscription. The newest Acknowledge
replaces earlier ones, as does the newest Hold of an event type.

Merged values overtake other Updates, so an Update that narrows a slot may precede the one that widens another
to cover the difference. The peer must not observe the state between: all messages between the two positions
leave in one frame, which takes effect as a whole. To bound frames, an Update absorbs only Updates of its
section, of `max_bytes` of `append`."""

from __future__ import annotations

from dataclasses import dataclass

from covey.overlay.core.link.size import size_of
from covey.overlay.core.messages import Acknowledge, Hold, Message, Refuse, Update


@dataclass(slots=True, eq=False)
class _Waiting:
    """`size` is 0 for an Acknowledge, which leaves with the messages before it. `message` is None once
    replaced. `position` counts queued messages; `newest` is the position of the last absorbed one."""

    message: Message | None
    size: int
    position: int
    newest: int


class ControlQueue:
    """Without `merge_updates`, for measurements, every Update leaves."""

    __slots__ = """
        _acknowledge _holds _last_epoch _merge_updates _positions _section_bytes _updates urgent waiting
    """.split()

    def __init__(self, *, merge_updates: bool = True) -> None:
        self._merge_updates = merge_updates
        self.clear()

    def clear(self) -> None:
        self.waiting: list[_Waiting] = []
        self._positions = 0
        self._section_bytes = 0
        self._updates: dict[int, _Waiting] = {}  # of the last section, by subscription
        self._last_epoch: Update | None = None
        self._acknowledge: _Waiting | None = None
        self._holds: dict[str, _Waiting] = {}
        self.urgent = False

    def __len__(self) -> int:
        return len(self.waiting)

    def append(self, message: Message, max_bytes: int) -> None:
        """Queue a message, or merge it into a pending one. O(values)."""
        self._positions += 1
        last = self._acknowledge
        if message.__class__ is Update and message.subscription_id in self._updates:
            self._merge(self._updates[message.subscription_id], message)
            return
        if message.__class__ is Acknowledge and last is not None:
            if self.waiting[-1] is last:
                last.message = message
                return
            last.message = None  # a refusal between the two must precede the newer one
        size = 0 if message.__class__ is Acknowledge else size_of(message)
        waiting = _Waiting(message, size, self._positions, self._positions)
        self._section_bytes += size
        if self._section_bytes > max_bytes:
            self._section_bytes = size
            self._updates.clear()
        self.waiting.append(waiting)
        if message.__class__ is Acknowledge:
            self._acknowledge = waiting
        elif message.__class__ is Hold:
            earlier_hold = self._holds.get(message.type_name)
            if earlier_hold is not None:
                earlier_hold.message = None
            self._holds[message.type_name] = waiting
        elif message.__class__ is Refuse:
            # A refusal is never delayed: the frame that acknowledges the refused message must not precede it.
            self.urgent = True
        else:
            if message.__class__ is Update and self._merge_updates:
                self._updates[message.subscription_id] = waiting
            else:
                self._updates.clear()
            self._last_epoch = None  # this message has a newer epoch

    def _merge(self, earlier: _Waiting, update: Update) -> None:
        old = earlier.message
        assert isinstance(old, Update)
        epoch, traceparent = old.epoch, old.traceparent
        if self.waiting[-1] is earlier and self._last_epoch is None:
            epoch, traceparent = update.epoch, update.traceparent or traceparent
        else:
            self._last_epoch = Update(update.epoch, update.subscription_id, {}, 0, update.traceparent)
        # `after_epoch` is 0, since the receiver does not have the values between.
        earlier.message = Update(
            epoch,
            old.subscription_id,
            {**old.values, **update.values},
            # Of two gapless updates the earlier call needs the older events.
            min(old.since_ns, update.since_ns) or max(old.since_ns, update.since_ns),
            traceparent,
            update.valid_for_ns or old.valid_for_ns,
            max(old.for_views, update.for_views),
        )
        earlier.newest = self._positions
        self._section_bytes -= earlier.size
        earlier.size = size_of(earlier.message)
        self._section_bytes += earlier.size

    def take(self, max_bytes: int) -> tuple[list[Message], int]:
        """The messages for one frame, at least one if any is pending, and their size."""
        messages: list[Message] = []
        size = newest = taken = 0
        for waiting in self.waiting:
            if messages and waiting.size and size + waiting.size > max_bytes and newest < waiting.position:
                break
            if waiting.newest > newest:
                newest = waiting.newest
            taken += 1
            message = waiting.message
            if waiting is self._acknowledge:
                self._acknowledge = None
            elif message.__class__ is Update and self._updates.get(message.subscription_id) is waiting:
                del self._updates[message.subscription_id]
            elif message.__class__ is Hold:
                del self._holds[message.type_name]
            if message is not None:
                messages.append(message)
                size += waiting.size
        del self.waiting[:taken]
        if not self.waiting:
            self._positions = self._section_bytes = 0
            self.urgent = False
            if self._last_epoch is not None:
                messages.append(self._last_epoch)
                self._last_epoch = None
        return messages, size
