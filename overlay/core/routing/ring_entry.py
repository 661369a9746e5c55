"""What a ring stores of one batch, or of several small ones that were folded into one.

    batch     the events
    origins   of a folded entry by event: publisher, number, ingress time and source
    pairs     rows, serials, ids: who got which event on its arrival, for which subscription
    links     by serial the events sent to a link, None for all

Invariant: `bytes` is what the entry takes in memory, without results and masks, which the ring counts.
Single events take 100 to 200 bytes each once they are folded; as objects, one entry each, they took 2 KiB.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.matcher.events.batch import EventBatch
from covey.matcher.events.packed_columns import MOST_PACKED, PackedColumns
from covey.overlay.core.link.size import held_by
from covey.overlay.core.matching.event_points import EventMasks, EventPoints
from covey.overlay.core.matching.interest_matching import opened

if TYPE_CHECKING:
    from covey.matcher.events.event_type import EventType
    from covey.matcher.events.results import Results
    from covey.overlay.core.matching.interest_matching import InterestMatching

Bools = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Pairs = tuple[Int32s, Int64s, Int64s]

_ARRAY_BYTES = 112
_ENTRY_BYTES = 512 + 3 * _ARRAY_BYTES
"""Of an array besides its contents, and of an entry with its three arrays."""
LINK_BYTES = 160
"""Of a link among those of an entry, besides its mask."""


@dataclass(slots=True)
class Origins:
    """Where the events of several batches came from."""

    publishers: list[str]
    who: Int32s
    sequences: Int64s
    ingress_ns: Int64s
    sources: Int64s

    @property
    def nbytes(self) -> int:
        arrays = self.who.nbytes + self.sequences.nbytes + self.ingress_ns.nbytes + self.sources.nbytes
        return arrays + 4 * _ARRAY_BYTES + sum(map(sys.getsizeof, self.publishers))


@dataclass(slots=True)
class Entry:
    """Interfaces are keyed by `Peer.serial`."""

    batch: EventBatch
    source: int
    high_ns: int
    """The latest ingress time of this entry and all before it."""
    links: dict[int, Bools | None]
    pairs: Pairs
    received: Results | None = None
    """The results with which the batch came."""
    origins: Origins | None = None
    replays: dict[int, list[tuple[Int64s, Int64s]]] = field(default_factory=dict)
    """The (event, subscription) pairs replayed to a session since."""
    bytes: int = 0
    result_bytes: int = 0
    """Size of the results, as counted in the ring."""
    is_opened: bool = False
    masks: EventMasks | None = None
    """The events as replays test them, once one has, without results: those are dropped before the entry."""
    mask_bytes: int = 0
    """Size of the masks, as counted in the ring."""

    @property
    def earliest_ns(self) -> int:
        return self.batch.ingress_ns if self.origins is None else int(self.origins.ingress_ns.min())

    @property
    def latest_ns(self) -> int:
        return self.batch.ingress_ns if self.origins is None else int(self.origins.ingress_ns.max())

    def answers(self, row: int) -> dict[int, tuple[bool, bool]]:
        """By call the truth for an event, and whether the answer came with it."""
        here, before = _truths(self.batch.results, row), _truths(self.received, row)
        return {key: (truth, key in before) for key, truth in here.items()}

    def events(self, matching: InterestMatching) -> EventPoints:
        """The batch, to be matched again: what operators answer stays in it."""
        if matching.calls and not self.is_opened:
            self.batch, self.is_opened = opened(self.batch), True
        return EventPoints(self.batch)

    def masks_over(self, event_type: EventType) -> EventMasks:
        """The events, to be tested against filters over this schema of their type."""
        known = self.batch.event_type if self.masks is None else self.masks.event_type
        if self.masks is None or not known.includes(event_type):
            schema = event_type if event_type.includes(known) else known.union(event_type)
            self.masks = EventMasks(EventPoints(self.batch.with_results(None)).over(schema))
        return self.masks

    def since(self, since_ns: int, serial: int) -> Bools:
        """The events that have entered since, and came from another interface."""
        if self.origins is None:
            return np.full(self.batch.count, self.source != serial)
        recent: Bools = self.origins.ingress_ns >= since_ns
        recent &= self.origins.sources != serial
        return recent

    def sent_to_session(self, serial: int) -> list[tuple[npt.NDArray[np.integer], Int64s]]:
        """All (event, subscription) pairs sent to a session."""
        rows, serials, ids = self.pairs
        own = serials == serial
        return [(rows[own], ids[own]), *self.replays.get(serial, [])]

    def sessions(self) -> list[int]:
        """The serials of those that were sent some of the events."""
        return sorted({*self.pairs[1].tolist(), *self.replays})

    def place_of(self, publisher: str, sequence: int) -> int | None:
        """The row of an event."""
        if self.origins is None:
            if self.batch.publisher != publisher:
                return None
            found: Bools = self.batch.sequences() == sequence
        elif publisher in self.origins.publishers:
            found = self.origins.sequences == sequence
            found &= self.origins.who == self.origins.publishers.index(publisher)
        else:
            return None
        rows = np.flatnonzero(found)
        return int(rows[0]) if len(rows) else None

    def source_of(self, row: int) -> int:
        return self.source if self.origins is None else int(self.origins.sources[row])

    def take(self, rows: Int64s, batch: EventBatch | None = None) -> Iterator[EventBatch]:
        """Some events, by publisher and ingress time; of `batch`, which has those of the entry."""
        batch, origins = self.batch if batch is None else batch, self.origins
        if origins is None:
            yield batch.take(rows)
            return
        sequences, ingress_ns = origins.sequences[rows], origins.ingress_ns[rows]
        differ = [np.diff(each) != 0 for each in (origins.who[rows], ingress_ns, sequences >> 31)]
        for own in np.split(rows, np.flatnonzero(np.logical_or.reduce(differ)) + 1):
            yield _of_origin(batch.take(own), origins, own)

    def count(self) -> int:
        """`bytes`, counted anew."""
        rows, serials, ids = self.pairs
        size = _ENTRY_BYTES + held_by(self.batch) + rows.nbytes + serials.nbytes + ids.nbytes
        if self.links:
            size += sys.getsizeof(self.links)
            for mask in self.links.values():
                if mask is not None:
                    size += LINK_BYTES + mask.nbytes
        if self.replays:
            size += sum(bytes_of_replay(rows) for each in self.replays.values() for rows, _ in each)
        if self.origins is not None:
            size += self.origins.nbytes
        results = self.batch.results
        self.bytes = size if results is None else size - results.nbytes
        return self.bytes

    def forget_results(self) -> None:
        """Keep nothing of what operators have answered."""
        self.batch, self.received, self.is_opened = self.batch.with_results(None), None, False


NO_SESSIONS: Pairs = np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64)
"""The pairs where no session has interest."""


def bytes_of_replay(rows: Int64s) -> int:
    """What the record of a replay to a session takes."""
    return 4 * _ARRAY_BYTES + 2 * rows.nbytes


def folded(entries: Sequence[Entry]) -> list[Entry]:
    """Entries that may be folded, those of one schema in one. O(events)."""
    groups: list[tuple[EventType, list[tuple[Entry, EventBatch]]]] = []
    for entry in entries:
        batch = entry.batch
        if not groups or groups[-1][0] != batch.event_type:
            groups.append((batch.event_type, []))
        groups[-1][1].append((entry, batch))
    return [_folded(*zip(*group, strict=True)) for _, group in groups]


def _folded(entries: Sequence[Entry], batches: Sequence[EventBatch]) -> Entry:
    if len(entries) == 1:
        return entries[0]
    counts = [batch.count for batch in batches]
    starts = [0, *np.cumsum(counts).tolist()]
    publishers = list(dict.fromkeys(batch.publisher for batch in batches))
    codes = {name: code for code, name in enumerate(publishers)}
    origins = Origins(
        publishers,
        np.repeat(np.array([codes[batch.publisher] for batch in batches], np.int32), counts),
        _sequences(batches),
        np.repeat(np.array([batch.ingress_ns for batch in batches], np.int64), counts),
        np.repeat(np.array([entry.source for entry in entries], np.int64), counts),
    )
    links: dict[int, Bools | None] = {}
    replays: dict[int, list[tuple[Int64s, Int64s]]] = {}
    for entry, start, stop in zip(entries, starts, starts[1:], strict=False):
        for serial, mask in entry.links.items():
            sent = links.get(serial)
            if sent is None:
                sent = links[serial] = np.zeros(starts[-1], np.bool_)
            sent[start:stop] = True if mask is None else mask
        for serial, replayed in entry.replays.items():
            replays.setdefault(serial, []).extend((rows + start, ids) for rows, ids in replayed)
    rows, serials, ids = (np.concatenate([entry.pairs[part] for entry in entries]) for part in range(3))
    rows += np.repeat(np.array(starts[:-1], np.int32), [len(entry.pairs[0]) for entry in entries])
    events = EventBatch.stacked(batches)
    return Entry(
        events, -1, entries[-1].high_ns, links, (rows, serials, ids), origins=origins, replays=replays
    )


def _sequences(batches: Sequence[EventBatch]) -> Int64s:
    if all(batch.count == 1 and batch.sequence_offsets is None for batch in batches):
        return np.array([batch.first_sequence for batch in batches], np.int64)
    return np.concatenate([batch.sequences() for batch in batches])


def _of_origin(taken: EventBatch, origins: Origins, rows: Int64s) -> EventBatch:
    """Events of one publisher and ingress time, as it has numbered them."""
    sequences = origins.sequences[rows]
    offsets: npt.NDArray[np.uint32] | None = (sequences - sequences.min()).astype(np.uint32)
    if np.array_equal(sequences, np.arange(sequences[0], sequences[0] + len(rows))):
        offsets = None
    events = taken.events
    if taken.columns is None and taken.count <= MOST_PACKED and not taken.event_type.has_lists:
        events = PackedColumns.of_records(taken.event_type, taken.record_batch)
    return EventBatch(
        taken.event_type,
        events,
        publisher=origins.publishers[origins.who[rows[0]]],
        first_sequence=int(sequences.min()),
        sequence_offsets=offsets,
        ingress_ns=int(origins.ingress_ns[rows[0]]),
        results=taken.results,
    )


def _truths(results: Results | None, row: int) -> dict[int, bool]:
    """By call the truth for an event."""
    own = None if results is None else results.take(np.array([row]))
    return {} if own is None else {key: bool(answers.truths[0]) for key, answers in own.items()}
