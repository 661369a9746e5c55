"""Pending acknowledgements: control messages that have not taken effect everywhere (UPD-ACK), and requests of
views that are not answered.

A control message is *complete* when every neighbour that it waits for has acknowledged the epoch awaited
there; an epoch is acknowledged to its source once it and all before it are complete. A message never waits
for the neighbour it came from, nor an Advertise for the interest that it draws back, so waiting ends.
Invariant: a source's queue is in order of epochs; an awaited epoch was sent and not acknowledged yet.

A *request* of a view is answered by events, then by an Answered in the lane of the type, since an Acknowledge
overtakes events. A request has the epoch at which it was handled and the newest that it stands for
(`for_views`), which is later where a busy link has merged requests. Invariant: Answered(n) leaves when all up
to epoch n has arrived from the source and its requests handled up to n are complete."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from covey.overlay.core.messages import Interface

UNSYNCED = 1 << 62
"""In place of an epoch: wait for the neighbour's first SyncEnd (`synced`)."""

_MAX_SINGLE = 1000
"""Messages of a source that wait in entries of their own. Later ones share runs, each as long as all before
it, so a neighbour that is away for an hour costs a few more entries, not millions."""


@dataclass(slots=True)
class _Pending:
    """A control message, or a run from epoch `first` to `epoch`; `newest` of a run is the newest epoch
    awaited by neighbour."""

    source: Interface
    epoch: int
    missing: int = 0
    void: bool = False
    first: int = 0
    newest: dict[Interface, int] | None = None


class Acks:
    def __init__(self) -> None:
        self._queues: dict[Interface, deque[_Pending]] = {}
        self._awaited: dict[Interface, list[tuple[int, int, _Pending]]] = {}
        self._sent: dict[Interface, int] = {}
        self._acknowledged: dict[Interface, int] = {}
        self._serial = 0
        self._void = 0
        self.ready: dict[Interface, int] = {}
        """The newest epochs to acknowledge now, by source."""

    def sent(self, neighbour: Interface, epoch: int) -> None:
        self._sent[neighbour] = epoch

    def next_epoch(self, neighbour: Interface) -> int:
        epoch = self._sent[neighbour] = self._sent.get(neighbour, 0) + 1
        return epoch

    def newest_sent(self, neighbour: Interface) -> int:
        return self._sent.get(neighbour, 0)

    def newest_acknowledged(self, neighbour: Interface) -> int:
        return self._acknowledged.get(neighbour, 0)

    def outstanding(self, neighbour: Interface, epoch: int) -> bool:
        return epoch > self._acknowledged.get(neighbour, 0)

    def settled(self, neighbour: Interface) -> bool:
        return self._sent.get(neighbour, 0) <= self._acknowledged.get(neighbour, 0)

    def open(self, source: Interface, epoch: int, waits: Mapping[Interface, int]) -> None:
        """A message of the source was handled; it is complete when each neighbour in `waits` has acknowledged
        the epoch there."""
        queue = self._queues.get(source)
        if queue is not None and len(queue) >= _MAX_SINGLE:
            self._extend_run(queue, source, epoch, waits)
            return
        pending: _Pending | None = None
        for neighbour, awaited in waits.items():
            if awaited > self._acknowledged.get(neighbour, 0):
                if pending is None:
                    pending = _Pending(source, epoch)
                self._await(neighbour, awaited, pending)
        if pending is None:
            if not queue:
                if source not in self.ready or self.ready[source] < epoch:
                    self.ready[source] = epoch
                return
            pending = _Pending(source, epoch)
        if queue is None:
            queue = self._queues[source] = deque()
        if queue and queue[-1].epoch > epoch:
            pending.epoch = queue[-1].epoch  # an Unadvertise that was overtaken
        queue.append(pending)

    def _extend_run(
        self, queue: deque[_Pending], source: Interface, epoch: int, waits: Mapping[Interface, int]
    ) -> None:
        run = queue[-1]
        if run.newest is None or epoch - run.first > run.first - queue[0].epoch:
            run = _Pending(source, max(epoch, run.epoch), first=epoch, newest={})
            queue.append(run)
        assert run.newest is not None
        run.epoch = max(epoch, run.epoch)
        for neighbour, awaited in waits.items():
            if self.outstanding(neighbour, awaited):
                if neighbour not in run.newest:
                    self._await(neighbour, awaited, run)
                run.newest[neighbour] = max(awaited, run.newest.get(neighbour, 0))

    def _await(self, neighbour: Interface, epoch: int, pending: _Pending) -> None:
        self._serial += 1
        pending.missing += 1
        heap = self._awaited.get(neighbour)
        if heap is None:
            heap = self._awaited[neighbour] = []
        heapq.heappush(heap, (epoch, self._serial, pending))

    def acknowledged(self, neighbour: Interface, epoch: int) -> bool:
        """A neighbour has acknowledged all up to `epoch`; False if it was never sent that."""
        if epoch > self._sent.get(neighbour, 0):
            return False
        if epoch > self._acknowledged.get(neighbour, 0):
            self._acknowledged[neighbour] = epoch
            heap = self._awaited.get(neighbour, [])
            while heap and heap[0][0] <= epoch:
                self._on_awaited(neighbour, heapq.heappop(heap)[2])
        return True

    def defer(self, neighbour: Interface, epoch: int) -> None:
        """Make whatever waits for the neighbour wait for this epoch, the end of a resynchronisation."""
        heap = self._awaited.get(neighbour)
        if heap:
            self._awaited[neighbour] = sorted(
                (awaited if awaited == UNSYNCED else epoch, serial, pending)
                for awaited, serial, pending in heap
            )

    def synced(self, neighbour: Interface, epoch: int) -> None:
        """The neighbour's first SyncEnd has arrived: what awaits it awaits `epoch`, the newest sent."""
        heap = self._awaited.pop(neighbour, [])
        for awaited, serial, pending in sorted(heap):
            awaited = epoch if awaited == UNSYNCED else awaited
            if pending.newest is not None and pending.newest[neighbour] == UNSYNCED:
                pending.newest[neighbour] = epoch
            if self.outstanding(neighbour, awaited):
                heapq.heappush(self._awaited.setdefault(neighbour, []), (awaited, serial, pending))
            else:
                self._on_awaited(neighbour, pending)

    def remove_neighbour(self, neighbour: Interface) -> None:
        for _, _, pending in sorted(self._awaited.pop(neighbour, [])):
            if pending.newest is not None:
                del pending.newest[neighbour]
            self._count_down(pending)
        self._sent.pop(neighbour, None)
        self._acknowledged.pop(neighbour, None)

    def remove_source(self, source: Interface) -> None:
        """A source has lost its state or left: its earlier epochs are not acknowledged."""
        for pending in self._queues.pop(source, ()):
            pending.void = True
            self._void += pending.missing
        self.ready.pop(source, None)
        if self._void > max(_MAX_SINGLE, sum(map(len, self._awaited.values())) // 2):
            self._compact()

    def _compact(self) -> None:
        for neighbour, heap in self._awaited.items():
            self._awaited[neighbour] = sorted(entry for entry in heap if not entry[2].void)
        self._void = 0

    def _on_awaited(self, neighbour: Interface, pending: _Pending) -> None:
        if pending.newest is not None:
            newest = pending.newest.pop(neighbour)
            if self.outstanding(neighbour, newest):
                pending.missing -= 1
                self._await(neighbour, newest, pending)
                pending.newest[neighbour] = newest
                return
        self._count_down(pending)

    def _count_down(self, pending: _Pending) -> None:
        pending.missing -= 1
        if pending.void:
            self._void -= 1
        if pending.missing or pending.void:
            return
        queue = self._queues[pending.source]
        while queue and not queue[0].missing:
            self.ready[pending.source] = queue.popleft().epoch
        if not queue:
            del self._queues[pending.source]

    def drain(self) -> list[tuple[Interface, int]]:
        """Remove and return the epochs to acknowledge now, one per source, in order of completion."""
        ready, self.ready = self.ready, {}
        return list(ready.items())

    def first_incomplete(self, source: Interface) -> int | None:
        queue = self._queues.get(source)
        return None if not queue else queue[0].first or queue[0].epoch

    def pending(self) -> dict[Interface, list[int]]:
        return {source: [p.epoch for p in queue] for source, queue in self._queues.items()}

    def pending_of(self, source: Interface, listed: int) -> tuple[int, list[int]]:
        """The number of a source's incomplete entries, and the epochs of the first `listed`."""
        queue = self._queues.get(source, ())
        return len(queue), [pending.epoch for pending in islice(queue, listed)]

    def awaited_of(self, neighbour: Interface) -> tuple[int, int]:
        """The number of entries that await the neighbour, void ones included, and the first epoch, or 0."""
        heap = self._awaited.get(neighbour)
        return (len(heap), heap[0][0] if heap[0][0] != UNSYNCED else 0) if heap else (0, 0)

    def awaited(self) -> dict[Interface, list[int]]:
        """Awaited epochs by neighbour, without void entries."""
        awaited = {}
        for neighbour, heap in self._awaited.items():
            epochs = [epoch for epoch, _, pending in sorted(heap) if not pending.void and epoch != UNSYNCED]
            if epochs:
                awaited[neighbour] = epochs
        return awaited

    def check(self) -> None:
        """`AssertionError` with a clear sentence if an invariant does not hold."""
        waiting: dict[int, int] = {}
        void = 0
        for neighbour, heap in self._awaited.items():
            for epoch, _, pending in heap:
                void += pending.void
                waiting[id(pending)] = waiting.get(id(pending), 0) + 1
                if epoch == UNSYNCED:
                    continue
                assert epoch <= self._sent.get(neighbour, 0), f"epoch {epoch} was never sent to {neighbour}"
                assert self.outstanding(neighbour, epoch), (
                    f"epoch {epoch} of {neighbour} is awaited and acknowledged"
                )
        assert void == self._void, f"{void} awaited epochs are void, {self._void} are counted"
        for source, queue in self._queues.items():
            assert queue, f"an empty queue is kept for {source}"
            assert queue[0].missing, (
                f"epoch {queue[0].epoch} of {source} is complete and was not acknowledged"
            )
            for pending in queue:
                assert pending.missing == waiting.get(id(pending), 0), (
                    f"epoch {pending.epoch} of {source} misses {pending.missing} answers "
                    f"but waits for {waiting.get(id(pending), 0)}"
                )


class Answers(Acks):
    """Requests of one event type; a source's complete ones are in the order in which they were handled."""

    def __init__(self) -> None:
        super().__init__()
        self._due: dict[Interface, list[tuple[int, int]]] = {}
        """By source, unanswered requests: the epoch up to which all has to be here and complete, and the
        newest that they stand for. Successive ones that stand for epochs yet to come share an entry."""
        self._complete: dict[Interface, int] = {}
        self._waiting: dict[Interface, None] = {}
        """Sources all of whose requests are complete, but some of whose epochs have not arrived."""

    def open_request(
        self, source: Interface, epoch: int, newest: int, waits: Mapping[Interface, int]
    ) -> None:
        """A request was answered from here; the neighbours in `waits` were sent requests for more."""
        due, until = self._due.setdefault(source, []), max(epoch, newest)
        if due and min(due[-1][0], until) > epoch:
            due[-1] = max(due[-1][0], until), max(due[-1][1], newest)
        else:
            due.append((until, newest))
        self.open(source, epoch, waits)

    def refused(self, neighbour: Interface, epoch: int) -> None:
        """A neighbour has refused requests of a slot that was sent nothing newer than this epoch."""
        self.acknowledged(neighbour, min(epoch, self.newest_sent(neighbour)))

    def take(
        self, received: Callable[[Interface], int], sender: Interface
    ) -> Iterator[tuple[Interface, int]]:
        """(source, epoch) to answer now. `received` returns a source's newest epoch; since the last call only
        the `sender`'s may have changed. The cost does not grow with the requests of others."""
        self._complete.update(self.drain())
        if sender in self._waiting:
            self._complete[sender] = 0
        for source in list(self._complete):
            first, limit = self.first_incomplete(source), received(source)
            if first is not None:
                limit = min(first - 1, limit)
            due = self._due.pop(source, [])
            rest = [each for each in due if each[0] > limit]
            if len(rest) < len(due):
                yield source, max(newest for until, newest in due if until <= limit)
            if rest:
                self._due[source] = rest
            self._waiting.pop(source, None)
            if rest and first is None:
                self._waiting[source] = None
            del self._complete[source]

    @property
    def waits_for_epochs(self) -> bool:
        """Whether a complete request stands for epochs that its source has not sent yet."""
        return bool(self._waiting)

    # --- interfaces that come and go ------------------------------------------------------------------------

    def remove_source(self, source: Interface) -> None:
        self._due.pop(source, None)
        self._complete.pop(source, None)
        self._waiting.pop(source, None)
        super().remove_source(source)

    def pending(self) -> dict[Interface, list[int]]:
        return {source: [newest for _, newest in due] for source, due in self._due.items()}
