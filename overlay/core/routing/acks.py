"""Which control messages have taken effect here and beyond: the bookkeeping behind UPD-ACK.

A control message of a source is *complete* when every neighbour that it waits for has acknowledged the epoch
that it waits for there. Acknowledgements are cumulative: a source hears of an epoch once it and all before it
are complete. A message never waits for the neighbour it came from; in an overlay without cycles waiting
therefore always goes away from the source and ends (were an AD to wait for the interest it draws back, two
that cross would wait for each other).

Invariant: what is queued for a source is in order of epochs; what is awaited of a neighbour is an epoch that
was sent to it and that it has not acknowledged.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from covey.overlay.core.messages import Interface

HELD = 1 << 62
"""In place of an epoch: wait for a neighbour that a starting broker has not heard yet (`release`)."""


_SINGLY = 1000
"""Up to how many messages of a source wait each by itself. What comes on top waits in runs, each as long as
all before it: a neighbour that is out of reach for an hour costs some more entries, not millions.
"""


@dataclass(slots=True)
class _Pending:
    """One control message of a source; or, where many wait, a run of them from epoch `first` to `epoch`, with
    the newest epoch that each neighbour is yet to acknowledge.
    """

    source: Interface
    epoch: int
    missing: int = 0
    void: bool = False
    first: int = 0
    newest: dict[Interface, int] | None = None


class Acks:
    """Pending control messages, by source, and what they wait for, by neighbour."""

    def __init__(self) -> None:
        self._queues: dict[Interface, deque[_Pending]] = {}
        self._awaited: dict[Interface, list[tuple[int, int, _Pending]]] = {}
        self._sent: dict[Interface, int] = {}
        self._acknowledged: dict[Interface, int] = {}
        self._serial = 0
        self._void = 0
        """How many of what is awaited nobody waits for any more."""
        self.ready: dict[Interface, int] = {}
        """The newest epochs that may be acknowledged and have not been, by source."""

    def sent(self, neighbour: Interface, epoch: int) -> None:
        """The newest epoch sent to a neighbour."""
        self._sent[neighbour] = epoch

    def outstanding(self, neighbour: Interface, epoch: int) -> bool:
        """Whether the neighbour has yet to acknowledge this epoch."""
        return epoch > self._acknowledged.get(neighbour, 0)

    def settled(self, neighbour: Interface) -> bool:
        """Whether the neighbour has acknowledged all that it was sent."""
        return self._sent.get(neighbour, 0) <= self._acknowledged.get(neighbour, 0)

    def open(self, source: Interface, epoch: int, waits: Mapping[Interface, int]) -> None:
        """A message of the source was handled; it is complete when each neighbour has acknowledged its
        epoch.
        """
        queue = self._queues.get(source)
        if queue is not None and len(queue) >= _SINGLY:
            self._prolong(queue, source, epoch, waits)
            return
        pending: _Pending | None = None
        for neighbour, wanted in waits.items():
            if wanted > self._acknowledged.get(neighbour, 0):
                if pending is None:
                    pending = _Pending(source, epoch)
                self._await(neighbour, wanted, pending)
        if pending is None:
            if not queue:
                self.ready[source] = max(epoch, self.ready.get(source, 0))
                return
            pending = _Pending(source, epoch)
        if queue is None:
            queue = self._queues[source] = deque()
        if queue and queue[-1].epoch > epoch:
            pending.epoch = queue[-1].epoch  # an Unadvertise that was overtaken
        queue.append(pending)

    def _prolong(
        self, queue: deque[_Pending], source: Interface, epoch: int, waits: Mapping[Interface, int]
    ) -> None:
        """As `open`, in the last run of the queue, or in a new one where that is as long as all before it."""
        run = queue[-1]
        if run.newest is None or epoch - run.first > run.first - queue[0].epoch:
            run = _Pending(source, max(epoch, run.epoch), first=epoch, newest={})
            queue.append(run)
        assert run.newest is not None
        run.epoch = max(epoch, run.epoch)
        for neighbour, wanted in waits.items():
            if self.outstanding(neighbour, wanted):
                if neighbour not in run.newest:
                    self._await(neighbour, wanted, run)
                run.newest[neighbour] = max(wanted, run.newest.get(neighbour, 0))

    def _await(self, neighbour: Interface, epoch: int, pending: _Pending) -> None:
        self._serial += 1
        pending.missing += 1
        heap = self._awaited.get(neighbour)
        if heap is None:
            heap = self._awaited[neighbour] = []
        heapq.heappush(heap, (epoch, self._serial, pending))

    def acknowledged(self, neighbour: Interface, epoch: int) -> bool:
        """A neighbour has acknowledged everything up to this epoch; false for an epoch it was never sent."""
        if epoch > self._sent.get(neighbour, 0):
            return False
        if epoch > self._acknowledged.get(neighbour, 0):
            self._acknowledged[neighbour] = epoch
            heap = self._awaited.get(neighbour, [])
            while heap and heap[0][0] <= epoch:
                self._reached(neighbour, heapq.heappop(heap)[2])
        return True

    def defer(self, neighbour: Interface, epoch: int) -> None:
        """All that waits for this neighbour waits for this epoch, the end of a resynchronisation, instead."""
        heap = self._awaited.get(neighbour)
        if heap:
            self._awaited[neighbour] = sorted(
                (wanted if wanted == HELD else epoch, serial, pending) for wanted, serial, pending in heap
            )

    def release(self, neighbour: Interface, epoch: int) -> None:
        """What was held for this neighbour waits for this epoch, the newest sent to it, from now on."""
        heap = self._awaited.pop(neighbour, [])
        for wanted, serial, pending in sorted(heap):
            wanted = epoch if wanted == HELD else wanted
            if pending.newest is not None and pending.newest[neighbour] == HELD:
                pending.newest[neighbour] = epoch
            if self.outstanding(neighbour, wanted):
                heapq.heappush(self._awaited.setdefault(neighbour, []), (wanted, serial, pending))
            else:
                self._reached(neighbour, pending)

    def forget_neighbour(self, neighbour: Interface) -> None:
        """A neighbour is gone for good: nothing waits for it any longer."""
        for _, _, pending in sorted(self._awaited.pop(neighbour, [])):
            if pending.newest is not None:
                del pending.newest[neighbour]
            self._arrived(pending)
        self._sent.pop(neighbour, None)
        self._acknowledged.pop(neighbour, None)

    def forget_source(self, source: Interface) -> None:
        """A source has lost its state, or is gone: it does not wait for the epochs it sent before."""
        for pending in self._queues.pop(source, ()):
            pending.void = True
            self._void += pending.missing
        self.ready.pop(source, None)
        if self._void > max(_SINGLY, sum(map(len, self._awaited.values())) // 2):
            self._let_go()

    def _let_go(self) -> None:
        """Most of what is awaited is void: sources came and went while a neighbour was out of reach."""
        for neighbour, heap in self._awaited.items():
            self._awaited[neighbour] = sorted(entry for entry in heap if not entry[2].void)
        self._void = 0

    def _reached(self, neighbour: Interface, pending: _Pending) -> None:
        """A neighbour has acknowledged an epoch that was awaited; of a run perhaps not yet the newest."""
        if pending.newest is not None:
            newest = pending.newest.pop(neighbour)
            if self.outstanding(neighbour, newest):
                pending.missing -= 1
                self._await(neighbour, newest, pending)
                pending.newest[neighbour] = newest
                return
        self._arrived(pending)

    def _arrived(self, pending: _Pending) -> None:
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
        """The epochs that may be acknowledged now, one for each source, in order of completion."""
        ready = list(self.ready.items())
        self.ready.clear()
        return ready

    def pending(self) -> dict[Interface, list[int]]:
        """The epochs, by source, that are not complete."""
        return {source: [p.epoch for p in queue] for source, queue in self._queues.items()}

    def awaited(self) -> dict[Interface, list[int]]:
        """The epochs, by neighbour, that something waits for. Void entries do not count."""
        awaited = {}
        for neighbour, heap in self._awaited.items():
            epochs = [epoch for epoch, _, pending in sorted(heap) if not pending.void and epoch != HELD]
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
                if epoch == HELD:
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
