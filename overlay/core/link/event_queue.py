"""Events that wait on a link, messages that must stay behind them, and conflation.

Messages of held types wait in `aside`, the only record of what the peer holds. Invariants: messages of one
event type leave in the order in which they came; a held type delays no other; `bytes` is what is held in
memory.

Conflation removes an event if a later one of its key waits for every subscription that it would be delivered
to. Events without a key, of stored records and replayed ones stay, and supersede nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher.events.batch import EventBatch
from covey.overlay.core.link.packing import Packed
from covey.overlay.core.link.size import FIXED_BYTES, MESSAGE_BYTES, events_in, header_bytes, held_by
from covey.overlay.core.messages import UNSTORED, Answered, Deliver, Expired, Message, Publish, Unadvertise

MOST_WHOLE = 64
"""Messages that a queue keeps as objects; later ones are packed, as are all of a longer frame."""


class Whole:
    """`size` is in credit, `held` in bytes of memory; `offset` is that of its record, or `UNSTORED`."""

    __slots__ = ("events", "held", "is_stored", "message", "offset", "size", "type_name")

    def __init__(self, message: Message) -> None:
        self.message = message
        if not (message.__class__ is Publish or message.__class__ is Deliver):
            self.type_name = type_of(message)
            self.events = self.size = self.held = 0
            self.offset, self.is_stored = UNSTORED, False
            return
        batch = message.batch
        if batch.columns is None:
            batch.compact()
        nbytes = batch.nbytes
        self.type_name, self.events, self.offset = batch.event_type.name, batch.count, message.offset
        self.is_stored = message.offset != UNSTORED
        self.size, self.held = FIXED_BYTES + nbytes, MESSAGE_BYTES + held_by(batch, nbytes)
        if message.__class__ is Deliver:
            numbers = message.offsets.size + message.ids.size
            self.size += 4 * numbers
            self.held += 8 * numbers
        if not self.events:
            self.size = 0

    @property
    def header(self) -> int:
        if not self.events:
            return 0
        assert isinstance(self.message, Publish | Deliver)
        batch = self.message.batch
        return header_bytes(batch.event_type, batch.publisher, len(batch.contexts))

    @property
    def may_go(self) -> bool:
        """Whether it may be dropped: events that are in no log."""
        return self.events > 0 and not self.is_stored


Waiting: TypeAlias = Whole | Packed


def packed(message: Message) -> Waiting:
    """The message, packed if it has events and neither operator results nor trace contexts."""
    if not events_in(message):
        return Whole(message)
    assert isinstance(message, Publish | Deliver)
    if message.batch.results is not None or message.batch.contexts:
        return Whole(message)
    return Packed(message)


def type_of(message: Message) -> str:
    if isinstance(message, Publish | Deliver):
        return message.batch.event_type.name
    assert isinstance(message, Unadvertise | Expired | Answered)
    return message.type_name


def may_be_superseded(message: Message, key: str) -> bool:
    return (
        isinstance(message, Deliver)
        and not message.stored
        and not message.replayed
        and key in message.batch.event_type.attributes
    )


def newest(messages: Sequence[Deliver], key: str) -> list[npt.NDArray[np.bool_]]:
    """bool[events] per message: which events stay. O(n log n) in pairs of an event and a subscription."""
    codes = key_codes([message.batch for message in messages], key)
    counts = np.concatenate([np.diff(message.offsets) for message in messages])
    ids = np.concatenate([message.ids for message in messages])
    rows = np.repeat(np.arange(len(codes)), counts)
    stays = last_of_each(codes[rows], ids, rows, len(codes)) | (codes < 0)
    return np.split(stays, np.cumsum([len(message.batch) for message in messages])[:-1])


def key_codes(batches: Sequence[EventBatch], key: str) -> npt.NDArray[np.int64]:
    """int64[events]: equal where the key is equal, -1 where it is null."""
    return codes_of([_column(batch, key) for batch in batches])


def codes_of(columns: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """As `key_codes`. Keys of different Arrow types are never equal: an event type may be declared anew."""
    by_kind: dict[pa.DataType, list[int]] = {}
    for position, column in enumerate(columns):
        by_kind.setdefault(column.type, []).append(position)
    parts: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)] * len(columns)
    base = 0
    for positions in by_kind.values():
        own = [columns[position] for position in positions]
        encoded = pa.chunked_array(own).dictionary_encode().unify_dictionaries()
        indices = pa.chunked_array([each.indices for each in encoded.chunks])
        codes = np.asarray(indices.fill_null(-1).to_numpy(), dtype=np.int64)
        codes = np.where(codes < 0, -1, codes + base)
        base = max(base, int(codes.max(initial=-1)) + 1)
        ends = np.cumsum([len(column) for column in own])
        for position, part in zip(positions, np.split(codes, ends[:-1]), strict=True):
            parts[position] = part
    return np.concatenate(parts)


def _column(batch: EventBatch, key: str) -> pa.Array:
    if batch.columns is None:
        return batch.record_batch.column(key)
    index = batch.event_type.index(key)
    return pa.array(batch.columns.values(index), batch.event_type.kinds[index].arrow)


def last_of_each(
    codes: npt.NDArray[np.int64], ids: npt.NDArray[np.integer], rows: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.bool_]:
    """bool[count]: the rows that are the last of a pair of code and id; `rows` ascend."""
    order = np.lexsort((ids, codes))  # stable
    sorted_codes, sorted_ids = codes[order], ids[order]
    ends = np.ones(len(order), np.bool_)
    ends[:-1] = (sorted_codes[1:] != sorted_codes[:-1]) | (sorted_ids[1:] != sorted_ids[:-1])
    stays = np.zeros(count, np.bool_)
    stays[rows[order[ends]]] = True
    return stays


def chosen(message: Deliver, mask: npt.NDArray[np.bool_]) -> Deliver:
    counts = np.diff(message.offsets)
    offsets = np.zeros(int(mask.sum()) + 1, message.offsets.dtype)
    np.cumsum(counts[mask], out=offsets[1:])
    ids = message.ids[np.repeat(mask, counts)]
    return replace(message, batch=message.batch.filter(mask), offsets=offsets, ids=ids)


class EventQueue:
    """`bytes`, `count` and `stored_count` include held types, `stored_bytes` does not. `ready` may be sent;
    `aside` are held types."""

    __slots__ = """
        _held_bytes _held_stored aside bytes count ready stored_bytes stored_count
    """.split()

    def __init__(self) -> None:
        self.ready: deque[Waiting] = deque()
        self.aside: dict[str, deque[Waiting]] = {}
        self._held_bytes: dict[str, int] = {}
        self._held_stored: dict[str, int] = {}
        self.bytes = self.count = 0
        self.stored_bytes = self.stored_count = 0

    @property
    def waiting(self) -> bool:
        return bool(self.ready) or any(self.aside.values())

    def entry(self, message: Message) -> Waiting:
        """The message as `append` would store it."""
        return Whole(message) if len(self._queue_of(message)) < MOST_WHOLE else packed(message)

    def _queue_of(self, message: Message) -> deque[Waiting]:
        return self.aside.get(type_of(message), self.ready) if self.aside else self.ready

    def append(self, message: Message) -> None:
        queue = self._queue_of(message) if self.aside else self.ready
        entry = Whole(message) if len(queue) < MOST_WHOLE else packed(message)
        queue.append(entry)
        self.bytes += entry.held
        self.count += entry.events
        if entry.is_stored:
            self.stored_count += entry.events
        if queue is not self.ready:
            self._held_bytes[entry.type_name] += entry.held
            if entry.is_stored:
                self._held_stored[entry.type_name] += entry.held
        elif entry.is_stored:
            self.stored_bytes += entry.held

    def messages(self) -> Iterator[Message]:
        for queue in (self.ready, *self.aside.values()):
            yield from (entry.message for entry in queue)

    def take(self, credit: int, max_bytes: int, *, alone: bool) -> tuple[list[Waiting], int]:
        """Remove the entries for one frame of `max_bytes`; also returns their credit. If the frame is empty
        (`alone`), at least one entry is taken, unless there is no credit."""
        ready = self.ready
        taken: list[Waiting] = []
        size = headers = 0
        while ready:
            entry = ready[0]
            if entry.events and size >= credit:
                break
            if taken or not alone or len(ready) > 1:
                # A frame of many small messages may be mostly names and schemas.
                headers += entry.header
                if (taken or not alone) and size + entry.size + headers > max_bytes:
                    break
            taken.append(ready.popleft())
            size += entry.size
            self.bytes -= entry.held
            self.count -= entry.events
            if entry.is_stored:
                self.stored_count -= entry.events
                self.stored_bytes -= entry.held
        return taken, size

    def restart(self, unacknowledged: Iterable[Message]) -> None:
        """End all holds, and queue unacknowledged events again, in front; drop what has no events."""
        for name in list(self.aside):
            self.set_held(name, False)
        waiting, self.ready = self.ready, deque()
        self.bytes = self.count = self.stored_bytes = self.stored_count = 0
        for message in unacknowledged:
            self.append(message)
        for entry in waiting:
            if entry.events:
                self.append(entry.message)

    # --- holding --------------------------------------------------------------------------------------------

    def holds(self, type_name: str) -> bool:
        return type_name in self.aside

    def held_bytes(self, type_name: str | None = None) -> int:
        """Bytes that wait for one held type, or for all."""
        if type_name is None:
            return sum(self._held_bytes.values()) if self._held_bytes else 0
        return self._held_bytes.get(type_name, 0)

    def droppable_bytes(self, type_name: str) -> int:
        """Bytes that wait for a held type and are not stored."""
        return self._held_bytes.get(type_name, 0) - self._held_stored.get(type_name, 0)

    def set_held(self, type_name: str, held: bool) -> None:
        """Hold a type, or release its messages, behind the others. O(messages)."""
        if held == (type_name in self.aside):
            return
        if not held:
            aside = self.aside.pop(type_name)
            self.ready.extend(aside)
            self.stored_bytes += self._held_stored.pop(type_name)
            del self._held_bytes[type_name]
            return
        aside = deque(entry for entry in self.ready if entry.type_name == type_name)
        self.ready = deque(entry for entry in self.ready if entry.type_name != type_name)
        stored = sum(entry.held for entry in aside if entry.is_stored)
        self.stored_bytes -= stored
        self.aside[type_name], self._held_stored[type_name] = aside, stored
        self._held_bytes[type_name] = sum(entry.held for entry in aside)

    # --- dropping -------------------------------------------------------------------------------------------

    def drop_oldest(self, type_name: str | None = None) -> Message | None:
        """Remove and return the oldest message with unstored events, of one type or of any not held."""
        aside = None if type_name is None else self.aside.get(type_name)
        queue = self.ready if aside is None else aside
        for index, entry in enumerate(queue):
            if entry.may_go and type_name in (None, entry.type_name):
                del queue[index]
                self.bytes -= entry.held
                self.count -= entry.events
                if aside is not None:
                    self._held_bytes[entry.type_name] -= entry.held
                return entry.message
        return None

    def conflate(self, key_of: Callable[[str], str | None]) -> list[tuple[str, int, int]]:
        """Remove superseded events; `key_of(type)` is None if the type has no key. Returns (type, ingress
        time, removed events) per shortened message. O(n log n), whatever the number of types."""
        lost: list[tuple[str, int, int]] = []
        for queue in (self.ready, *self.aside.values()):
            entries = list(queue)
            queue.clear()
            masks = _newest_by_position(entries, key_of)
            for position, entry in enumerate(entries):
                mask = masks.get(position)
                if mask is None or mask.all():
                    queue.append(entry)
                    continue
                message = entry.message
                assert isinstance(message, Deliver)
                name, stays = entry.type_name, int(mask.sum())
                lost.append((name, message.batch.ingress_ns, len(mask) - stays))
                held = -entry.held
                if stays:
                    shorter = packed(chosen(message, mask))
                    queue.append(shorter)
                    held += shorter.held
                self.bytes += held
                self.count += stays - entry.events
                if queue is not self.ready:
                    self._held_bytes[name] += held
        return lost


def _newest_by_position(
    entries: Sequence[Waiting], key_of: Callable[[str], str | None]
) -> dict[int, npt.NDArray[np.bool_]]:
    """By position, the masks of messages that may be conflated: true for events that stay."""
    by_type: dict[str, list[int]] = {}
    for position, entry in enumerate(entries):
        if entry.may_go:
            by_type.setdefault(entry.type_name, []).append(position)
    masks: dict[int, npt.NDArray[np.bool_]] = {}
    for name, positions in by_type.items():
        key = key_of(name)
        if key is not None:
            waiting = [(position, entries[position].message) for position in positions]
            own = [each for each in waiting if may_be_superseded(each[1], key)]
            if own:
                messages = cast("list[Deliver]", [message for _, message in own])
                masks.update(zip([position for position, _ in own], newest(messages, key), strict=True))
    return masks
