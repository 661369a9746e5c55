"""Events that wait on a link, and what must stay behind them: those of a held type wait aside.

Invariant: messages of one event type leave in the order in which they came, and a held type delays no other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from covey.overlay.core.link.conflating import chosen, may_be_superseded, newest
from covey.overlay.core.link.size import events_in, size_of
from covey.overlay.core.messages import Answered, Deliver, Expired, Message, Publish, Unadvertise

_Entry = tuple[Message, int]


class EventQueue:
    """`bytes` and `count` are of all waiting events, those of held types included; `stored_count` of those
    that are stored, and `stored_bytes` of those whose type is not held. `ready` may be sent."""

    __slots__ = ("_held", "_held_bytes", "bytes", "count", "ready", "stored_bytes", "stored_count")

    def __init__(self) -> None:
        self.ready: deque[_Entry] = deque()
        self._held: dict[str, deque[_Entry]] = {}
        self._held_bytes: dict[str, int] = {}
        self.bytes = self.count = 0
        self.stored_bytes = self.stored_count = 0

    @property
    def waiting(self) -> bool:
        return bool(self.ready) or any(self._held.values())

    def append(self, message: Message) -> None:
        """Queue a message with its size in bytes; one without events has none."""
        events = events_in(message)
        size = size_of(message) if events else 0
        self.bytes += size
        self.count += events
        stored = _is_stored(message)
        if stored:
            self.stored_count += events
        if self._held:
            name = _type_of(message)
            aside = self._held.get(name)
            if aside is not None:
                aside.append((message, size))
                self._held_bytes[name] += size
                return
        self.ready.append((message, size))
        if stored:
            self.stored_bytes += size

    def messages(self) -> Iterator[Message]:
        """All that waits; those of held types last."""
        for queue in (self.ready, *self._held.values()):
            yield from (message for message, _ in queue)

    def head(self) -> _Entry | None:
        """The next message that may be sent, and its size."""
        return self.ready[0] if self.ready else None

    def pop(self) -> None:
        """Remove the head."""
        message, size = self.ready.popleft()
        events = events_in(message)
        self.bytes -= size
        self.count -= events
        if _is_stored(message):
            self.stored_bytes -= size
            self.stored_count -= events

    def restart(self, unacknowledged: Iterable[Message]) -> None:
        """Hold nothing any more, and queue events that were sent before again, in front."""
        for name in list(self._held):
            self.set_held(name, False)
        waiting, self.ready = self.ready, deque()
        self.bytes = self.count = self.stored_bytes = self.stored_count = 0
        for message in unacknowledged:
            self.append(message)
        for message, _ in waiting:
            if events_in(message):
                self.append(message)

    # --- holding --------------------------------------------------------------------------------------------

    def holds(self, type_name: str) -> bool:
        return type_name in self._held

    def held_bytes(self, type_name: str | None = None) -> int:
        """Bytes that wait for a held type, or for all."""
        if type_name is None:
            return sum(self._held_bytes.values()) if self._held_bytes else 0
        return self._held_bytes.get(type_name, 0)

    def set_held(self, type_name: str, held: bool) -> None:
        """Put the messages of a type aside, or let them go, behind the others. O(messages)."""
        if held == (type_name in self._held):
            return
        if not held:
            aside = self._held.pop(type_name)
            self.ready.extend(aside)
            self.stored_bytes += _stored_bytes(aside)
            del self._held_bytes[type_name]
            return
        aside = deque(entry for entry in self.ready if _type_of(entry[0]) == type_name)
        self.ready = deque(entry for entry in self.ready if _type_of(entry[0]) != type_name)
        self.stored_bytes -= _stored_bytes(aside)
        self._held[type_name] = aside
        self._held_bytes[type_name] = sum(size for _, size in aside)

    # --- dropping -------------------------------------------------------------------------------------------

    def drop_oldest(self, type_name: str | None = None) -> Message | None:
        """Remove the oldest events of one type, or of any that may be sent; never those of a stored record.
        O(1) for a held type and for any, beside what is older and stays.
        """
        aside = None if type_name is None else self._held.get(type_name)
        queue = self.ready if aside is None else aside
        for index, (message, size) in enumerate(queue):
            if _may_go(message) and type_name in (None, _type_of(message)):
                del queue[index]
                self.bytes -= size
                self.count -= events_in(message)
                if aside is not None:
                    self._held_bytes[_type_of(message)] -= size
                return message
        return None

    def conflate(self, key_of: Callable[[str], str | None]) -> list[tuple[str, int, int]]:
        """Remove events that later ones of their key supersede (`conflating.py`); `key_of` a type is None if
        it has no key. Returns, for each message that lost some, its type, its ingress time and their number.
        O(n log n), whatever the number of types.
        """
        lost: list[tuple[str, int, int]] = []
        for queue in (self.ready, *self._held.values()):
            entries = list(queue)
            queue.clear()
            masks = _newest_by_position(entries, key_of)
            for position, (message, size) in enumerate(entries):
                mask = masks.get(position)
                if mask is None or mask.all():
                    queue.append((message, size))
                    continue
                assert isinstance(message, Deliver)
                name, stays = _type_of(message), int(mask.sum())
                lost.append((name, message.batch.ingress_ns, len(mask) - stays))
                shorter_size = 0
                if stays:
                    shorter = chosen(message, mask)
                    shorter_size = size_of(shorter)
                    queue.append((shorter, shorter_size))
                self.bytes -= size - shorter_size
                self.count -= len(mask) - stays
                if queue is not self.ready:
                    self._held_bytes[name] -= size - shorter_size
        return lost


def _newest_by_position(
    entries: Sequence[_Entry], key_of: Callable[[str], str | None]
) -> dict[int, npt.NDArray[np.bool_]]:
    """Of the messages whose events may be superseded, by their place: which of the events stay."""
    by_type: dict[str, list[int]] = {}
    for position, (message, _) in enumerate(entries):
        if _may_go(message):
            by_type.setdefault(_type_of(message), []).append(position)
    masks: dict[int, npt.NDArray[np.bool_]] = {}
    for name, positions in by_type.items():
        key = key_of(name)
        if key is not None:
            own = [position for position in positions if may_be_superseded(entries[position][0], key)]
            if own:
                messages = cast("list[Deliver]", [entries[position][0] for position in own])
                masks.update(zip(own, newest(messages, key), strict=True))
    return masks


def _may_go(message: Message) -> bool:
    return isinstance(message, Publish | Deliver) and bool(message.batch.count) and not message.stored


def _is_stored(message: Message) -> bool:
    return isinstance(message, Publish | Deliver) and message.stored


def _stored_bytes(entries: Iterable[_Entry]) -> int:
    return sum(size for message, size in entries if _is_stored(message))


def _type_of(message: Message) -> str:
    if isinstance(message, Publish | Deliver):
        return message.batch.event_type.name
    assert isinstance(message, Unadvertise | Expired | Answered)
    return message.type_name
