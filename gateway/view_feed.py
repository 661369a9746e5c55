"""One view of a browser: reads it, and passes its changes on as fast as the browser takes them.

The view is read at once, so a slow browser delays no other browser of its client; with `block`, its browser
has a client of its own. The view's keys bound what waits: changes are never dropped, but those of a key are
conflated. A browser without the key gets an enter or nothing, one with it a change or a leave, with the
newest event. Keys leave in the order of their first change, so each is sent however many come meanwhile. The
whole content is never sent again, since a browser that is always a little behind would get nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.gateway.browser_queue import BrowserQueue
from covey.gateway.encoding import changes_frame
from covey.matcher.errors import CoveyError
from covey.overlay import Gap, View
from covey.overlay.core.client.view_reader import CHANGE, ENTER, KINDS, LEAVE
from covey.overlay.core.link.event_queue import codes_of

_FEW_ROWS = 1_024
"""Changes that may wait before those of a key are conflated."""


class _Part(NamedTuple):
    events: pa.RecordBatch
    kinds: npt.NDArray[np.int8]
    numbers: npt.NDArray[np.int64]
    """The position of each key's first change."""

    def rows(self, start: int, stop: int) -> _Part:
        cut = slice(start, stop)
        return _Part(self.events.slice(start, stop - start), self.kinds[cut], self.numbers[cut])


class PendingChanges:
    """`key` is the event type's key attribute. `lost` counts superseded changes, for the caller to reset;
    `came` counts all changes."""

    def __init__(self, key: str) -> None:
        self.lost = 0
        self._key = key
        self._parts: deque[_Part] = deque()
        self._came = 0
        self._together_at = _FEW_ROWS

    def __len__(self) -> int:
        return sum(len(part.kinds) for part in self._parts)

    @property
    def nbytes(self) -> int:
        """Of the events that wait."""
        return sum(part.events.nbytes for part in self._parts)

    def put(self, events: pa.RecordBatch, kinds: npt.NDArray[np.int8]) -> None:
        """O(log n) per change: conflates when twice as many wait as after the last time."""
        numbers = np.arange(self._came, self._came + len(kinds))
        self._came += len(kinds)
        self._parts.append(_Part(events, kinds, numbers))
        if len(self) > self._together_at:
            self._conflate()
            self._together_at = 2 * len(self) + _FEW_ROWS

    def take(self, most: int) -> tuple[pa.RecordBatch, npt.NDArray[np.int8]] | None:
        """The next changes, at most `most`; None if none wait."""
        if not self._parts:
            return None
        part = self._parts.popleft()
        if len(part.kinds) > most:
            self._parts.appendleft(part.rows(most, len(part.kinds)))
            part = part.rows(0, most)
        return part.events, part.kinds

    def clear(self) -> None:
        self._parts.clear()

    @property
    def came(self) -> int:
        return self._came

    def has_left(self, came: int) -> bool:
        """Whether all keys that waited when `came` changes had come have left."""
        return not self._parts or int(self._parts[0].numbers[0]) >= came

    def _conflate(self) -> None:
        parts = [*self._parts]
        codes = codes_of([part.events.column(self._key) for part in parts])
        kinds = np.concatenate([part.kinds for part in parts])
        numbers = np.concatenate([part.numbers for part in parts])
        _, first = np.unique(codes, return_index=True)
        _, from_end = np.unique(codes[::-1], return_index=True)
        last = len(codes) - 1 - from_end
        known, inside = kinds[first] != ENTER, kinds[last] != LEAVE
        stays = known | inside
        order = np.argsort(first[stays])
        first, last = first[stays][order], last[stays][order]
        told = np.where(inside, np.where(known, CHANGE, ENTER), LEAVE)[stays][order].astype(np.int8)
        self.lost += len(codes) - len(last)
        self._parts.clear()
        if not len(last):
            return
        table = pa.Table.from_batches([part.events for part in parts])
        (events,) = table.take(pa.array(last)).combine_chunks().to_batches()
        self._parts.append(_Part(events, told, numbers[first]))


log = logging.getLogger("covey.gateway")

_MOST_AT_ONCE = 500
_QUEUED_BYTES = 65_536
"""Of one view in the browser's queue; the rest waits here, where it can be conflated."""


class ViewFeed:
    """`on_end` is called with the error that ends the view."""

    def __init__(
        self,
        view: View,
        number: int,
        form: str,
        queue: BrowserQueue,
        on_end: Callable[[int, Exception], None],
        *,
        blocks: bool,
    ) -> None:
        key = view.event_type.key
        assert key is not None
        self.view = view
        self._number = number
        self._form = form
        self._queue = queue
        self._on_end = on_end
        self._blocks = blocks
        self._pending = PendingChanges(key)
        self._queued_bytes = 0
        self._pending_bytes = 0
        self._caught_up = asyncio.Event()
        """Set when the reader has read all that has arrived."""
        self._left = asyncio.Event()
        self._error: Exception | None = None
        self._reader = asyncio.create_task(self._read(), name="covey gateway view")

    async def close(self) -> None:
        self._reader.cancel()
        await asyncio.wait({self._reader})
        self._drop()

    def _drop(self) -> None:
        self._pending.clear()
        self._count()
        self._left.set()

    async def passed_on(self) -> None:
        """Wait until all changes that have arrived, or newer ones of their keys, are in the queue; raises the
        error that ended the view."""
        await asyncio.sleep(0)  # a reader that was woken has its turn
        while not self._caught_up.is_set():
            await self._caught_up.wait()
        came = self._pending.came
        while not self._pending.has_left(came):
            self._left.clear()
            await self._left.wait()
        if self._error is not None:
            raise self._error

    async def _read(self) -> None:
        try:
            self._caught_up.set()
            async for records in self.view.batches():
                self._caught_up.clear()
                events = records.select([*range(records.num_columns - 1)])
                events = events.select(self.view.event_type.names)  # other browsers may have asked for more
                self._pending.put(events, records.column(records.num_columns - 1).indices.to_numpy())
                self._pass_on()
                while self._blocks and len(self._pending):
                    self._left.clear()
                    await self._left.wait()
                await asyncio.sleep(0)  # others have their turn
                self._caught_up.set()
        except Exception as error:
            if not isinstance(error, CoveyError):
                log.exception("passing on a view failed")
            self._error = error
            self._drop()  # the number is free from now on: another view may have it
            self._on_end(self._number, error)
        finally:
            self._caught_up.set()

    def _pass_on(self) -> None:
        while self._queued_bytes < _QUEUED_BYTES and (taken := self._pending.take(_MOST_AT_ONCE)):
            events, codes = taken
            kinds = [KINDS[code] for code in codes.tolist()]
            frame = changes_frame(self.view.event_type, events, kinds, self._number, self._form)
            self._queued_bytes += frame.size
            self._queue.put_changes(frame._replace(on_sent=partial(self._sent, frame.size)))
            self._left.set()
        self._count()
        lost, self._pending.lost = self._pending.lost, 0
        if lost:
            now_ns = time.time_ns()
            gap = Gap(self.view.event_type.name, now_ns, now_ns, lost, conflated=True)
            self._queue.lose("conflated", gap)

    def _count(self) -> None:
        before, self._pending_bytes = self._pending_bytes, self._pending.nbytes
        self._queue.hold(self._pending_bytes - before)

    def _sent(self, size: int) -> None:
        self._queued_bytes -= size
        self._pass_on()
