"""The oracle of moving boxes while they move: it has every event, and every rectangle with its times.

Publishers number their events and publish a *mark* after some of them, which reaches every recipient behind
these events. So an event that has not arrived before its mark never does, except by the replay of a gapless
update, which precedes the update's return. Until then an event can meet all rectangles of a box from the
newest that was in force when it was published to the newest issued: those are *possible* (as in
`checkers/oracle.py`). A rectangle is in force from the return of its change, that of a gapless update from
its call. When a call returns, its events may still wait for their reader: a box is judged by the first mark
published after the return, and all rectangles until that was read are possible.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from math import inf

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Rectangle = tuple[float, float, float, float]
"""x0, x1, y0, y1, all included."""

_NUMBERS = 1 << 40
"""The events of publisher p are numbered from p * _NUMBERS on."""
_SHOWN_FAULTS = 200
_REPLAYED_S = 0.05
"""Five times the period before its call for which a gapless update replays events (docs/moving.md)."""
_MOST_MARKS = 400
"""Of a publisher, not received by a recipient: beyond, the oldest are counted and not judged."""


@dataclass(slots=True)
class Counts:
    """Counts of events.

    - expected: in all possible rectangles; missed: expected and not delivered
    - duplicate: delivered again; late: delivered after it was judged
    - stray: delivered, and in no possible rectangle
    - undecided: in some possible rectangles and not in others, so either outcome is right
    - unjudged: not judged in time
    """

    expected: int = 0
    delivered: int = 0
    missed: int = 0
    duplicate: int = 0
    stray: int = 0
    late: int = 0
    undecided: int = 0
    unjudged: int = 0

    def add(self, other: Counts) -> None:
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def faults(self) -> int:
        return self.missed + self.duplicate + self.stray + self.late


@dataclass(slots=True)
class Change:
    """A rectangle that a box was given; times in s of the oracle's clock."""

    rectangle: Rectangle
    issued: float
    gapless: bool
    settled: float = inf

    @property
    def in_force(self) -> float:
        return self.issued if self.gapless else self.settled


@dataclass(slots=True)
class Chunk:
    """The events of one publisher between two marks, numbered `first`, `first` + 1, ..."""

    publisher: int
    mark: int
    era: str
    closed: float
    first: int
    at: Floats
    x: Floats
    y: Floats


@dataclass(slots=True)
class _Open:
    next_number: int
    mark: int = 0
    first: int = 0
    parts: list[tuple[float, Floats, Floats]] = field(default_factory=list)


class Recipient:
    """One client and its boxes. It has to get all deliveries and marks in the order of arrival."""

    def __init__(self, publishers: int, clock: Callable[[], float], on_fault: Callable[..., None]) -> None:
        self._clock = clock
        self._on_fault = on_fault
        self._changes: dict[int, list[Change]] = {}
        self._chunks: list[deque[Chunk]] = [deque() for _ in range(publishers)]
        self._marks: list[dict[int, float]] = [{} for _ in range(publishers)]
        self._pending: list[list[tuple[Ints, Ints]]] = [[] for _ in range(publishers)]
        self._newest_mark = [0] * publishers
        self._read: deque[tuple[float, float]] = deque(maxlen=_MOST_MARKS)
        """(when published, when read) of the newest marks."""
        self._counts: dict[str, Counts] = {}

    # --- what happens -----------------------------------------------------------------------------

    def issue(self, box: int, rectangle: Rectangle, *, gapless: bool = False) -> Change:
        """Call before the call that changes a box, or gives a new one its first rectangle."""
        change = Change(rectangle, self._clock(), gapless)
        self._changes.setdefault(box, []).append(change)
        return change

    def settle(self, change: Change) -> None:
        """Call after that call has returned."""
        change.settled = self._clock()

    def remove(self, box: int) -> None:
        """Events that have not been judged for the box are not judged."""
        self._changes.pop(box, None)

    def deliver(self, boxes: Ints, numbers: Ints) -> None:
        owners = numbers // _NUMBERS
        for publisher in np.unique(owners).tolist():
            mine = owners == publisher
            self._pending[publisher].append((boxes[mine], numbers[mine]))

    def mark(self, publisher: int, number: int) -> None:
        now = self._clock()
        self._marks[publisher][number] = now
        chunk = next((chunk for chunk in self._chunks[publisher] if chunk.mark == number), None)
        if chunk is not None:
            self._read.append((chunk.closed, now))
        self._newest_mark[publisher] = number

    def has(self, publisher: int, mark: int) -> bool:
        return self._newest_mark[publisher] >= mark

    def published(self, chunk: Chunk) -> None:
        chunks = self._chunks[chunk.publisher]
        chunks.append(chunk)
        if len(chunks) > _MOST_MARKS:
            self._skip(chunks.popleft())

    def forgive(self) -> None:
        """The connection was lost: earlier events are not judged."""
        for chunks in self._chunks:
            while chunks:
                self._skip(chunks.popleft())
        for box in list(self._changes):
            del self._changes[box][:-1]

    def _skip(self, chunk: Chunk) -> None:
        self._of(chunk).unjudged += len(chunk.at)
        self._take(chunk)

    def _of(self, chunk: Chunk) -> Counts:
        return self._counts.setdefault(chunk.era, Counts())

    # --- the verdict ------------------------------------------------------------------------------

    def judge(self, oldest: float) -> dict[str, Counts]:
        """Judge what can be judged, and return its counts by era. `oldest` is the time of the first event
        that no mark has followed yet."""
        for publisher, chunks in enumerate(self._chunks):
            arrived = self._marks[publisher]
            while chunks and any(number >= chunks[0].mark for number in arrived):
                newest = min(number for number in arrived if number >= chunks[0].mark)
                if not self._judge_chunk(chunks[0], arrived[newest]):
                    break
                done = chunks.popleft().mark
                self._marks[publisher] = arrived = {n: at for n, at in arrived.items() if n > done}
        self._prune(oldest)
        counts, self._counts = self._counts, {}
        return counts

    def _judge_chunk(self, chunk: Chunk, marked: float) -> bool:
        """Returns whether it could be judged."""
        marked += _REPLAYED_S
        ends: dict[int, float] = {}
        for box, changes in self._changes.items():
            returned = marked
            for change in changes:
                if change.issued <= marked:
                    if change.settled == inf:
                        return False
                    returned = max(returned, change.settled)
            read = next((read for published, read in self._read if published > returned), None)
            if read is None:
                return False
            ends[box] = read
        delivered = self._take(chunk)
        bounds = (chunk.x.min(), chunk.x.max(), chunk.y.min(), chunk.y.max())
        for box, changes in self._changes.items():
            got = delivered.get(box)
            possible = [change for change in changes if change.issued <= ends[box]]
            if got is None and not _near(possible, bounds):
                continue
            self._judge_box(chunk, possible, np.zeros(0, np.int64) if got is None else got)
        return True

    def _take(self, chunk: Chunk) -> dict[int, Ints]:
        """By box, the positions in the chunk of the delivered events; others stay pending."""
        publisher, low, high = chunk.publisher, chunk.first, chunk.first + len(chunk.at)
        pending = self._pending[publisher]
        if not pending:
            return {}
        boxes, numbers = (np.concatenate(column) for column in zip(*pending, strict=True))
        counts = self._of(chunk)
        counts.late += int((numbers < low).sum())
        later = numbers >= high
        self._pending[publisher] = [(boxes[later], numbers[later])] if later.any() else []
        mine = (numbers >= low) & ~later
        counts.delivered += int(mine.sum())
        if not mine.any():
            return {}
        order = np.argsort(boxes[mine], kind="stable")
        boxes, numbers = boxes[mine][order], numbers[mine][order] - low
        found, starts = np.unique(boxes, return_index=True)
        return dict(zip(found.tolist(), np.split(numbers, starts[1:]), strict=True))

    def _judge_box(self, chunk: Chunk, possible: list[Change], got: Ints) -> None:
        times = np.bincount(got, minlength=len(chunk.at))
        in_force = np.array([change.in_force for change in possible])
        # A change that another has overtaken is in force no later than that.
        in_force = np.minimum.accumulate(in_force[::-1])[::-1]
        rectangles = np.array([change.rectangle for change in possible]).reshape(-1, 4)
        x0, x1, y0, y1 = rectangles.T[:, :, None]
        inside = (chunk.x >= x0) & (chunk.x <= x1) & (chunk.y >= y0) & (chunk.y <= y1)
        oldest = np.searchsorted(in_force, chunk.at, "right") - 1
        # From each change on to the newest: in how many of them the event is.
        later = np.vstack((inside[::-1].cumsum(axis=0)[::-1], np.zeros(len(chunk.at), np.int64)))
        first = np.maximum(oldest, 0)
        matching = later[first, np.arange(len(chunk.at))]
        always = (oldest >= 0) & (matching == len(possible) - first)
        missed, repeated = always & (times == 0), times > 1
        counts = self._of(chunk)
        counts.expected += int(always.sum())
        counts.missed += int(missed.sum())
        counts.duplicate += int((times[repeated] - 1).sum())
        counts.stray += int(((matching == 0) & (times > 0)).sum())
        counts.undecided += int(((matching > 0) & ~always).sum())
        for kind, rows in (("missed", missed), ("duplicate", repeated)):
            for row in np.flatnonzero(rows).tolist():
                self._on_fault(kind, float(chunk.x[row]), float(chunk.y[row]))

    def _prune(self, oldest: float) -> None:
        """Drop changes that no pending event can meet."""
        oldest = min(oldest, *(float(chunks[0].at[0]) for chunks in self._chunks if chunks), oldest)
        for changes in self._changes.values():
            while len(changes) > 1 and changes[1].in_force < oldest and changes[1].settled < oldest:
                del changes[0]


def _near(possible: list[Change], bounds: tuple[float, float, float, float]) -> bool:
    x0, x1, y0, y1 = bounds
    return any(
        change.rectangle[0] <= x1
        and change.rectangle[1] >= x0
        and change.rectangle[2] <= y1
        and change.rectangle[3] >= y0
        for change in possible
    )


class LiveOracle:
    """The publishers' side: numbers their events, and passes them to all recipients. `clock` is in s.

    Events belong to an era, such as the way in which boxes are changed; `counts` is by era.
    """

    def __init__(self, publishers: int, clock: Callable[[], float], era: str = "") -> None:
        self._clock = clock
        self._open = [_Open(p * _NUMBERS, first=p * _NUMBERS) for p in range(publishers)]
        self._recipients: list[Recipient] = []
        self.era = era
        self.counts: dict[str, Counts] = {}
        self.faults: deque[tuple[str, float, float]] = deque(maxlen=_SHOWN_FAULTS)
        """The newest missed and duplicate events: kind, x, y."""

    def recipient(self) -> Recipient:
        recipient = Recipient(len(self._open), self._clock, lambda *fault: self.faults.append(fault))
        self._recipients.append(recipient)
        return recipient

    def leave(self, recipient: Recipient) -> None:
        self._recipients.remove(recipient)

    def publish(self, publisher: int, x: Floats, y: Floats) -> Ints:
        """The numbers of events that are published now."""
        of = self._open[publisher]
        numbers = np.arange(of.next_number, of.next_number + len(x))
        of.next_number += len(x)
        of.parts.append((self._clock(), x, y))
        return numbers

    def close_chunk(self, publisher: int) -> int | None:
        """The number of a mark to publish behind the events so far; None if there are none."""
        of = self._open[publisher]
        if not of.parts:
            return None
        of.mark += 1
        at = np.concatenate([np.full(len(x), time) for time, x, _ in of.parts])
        x, y = (np.concatenate([part[axis] for part in of.parts]) for axis in (1, 2))
        chunk = Chunk(publisher, of.mark, self.era, self._clock(), of.first, at, x, y)
        of.first, of.parts = of.next_number, []
        for recipient in self._recipients:
            recipient.published(chunk)
        return of.mark

    def arrived(self, publisher: int, mark: int) -> bool:
        return all(recipient.has(publisher, mark) for recipient in self._recipients)

    def judge(self) -> None:
        oldest = min((of.parts[0][0] for of in self._open if of.parts), default=self._clock())
        for recipient in self._recipients:
            for era, counts in recipient.judge(oldest).items():
                self.counts.setdefault(era, Counts()).add(counts)

    def total(self) -> Counts:
        total = Counts()
        for counts in self.counts.values():
            total.add(counts)
        return total
