"""One view of a browser: reads it, and passes its changes on as fast as the browser takes them.

Invariant: the view is read at once, whatever the browser does, so one that does not read delays no other
browser of the same client; what waits is bounded by the keys of the view (`PendingChanges`). The exception is
`block`, whose browser has a client of its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from covey.gateway.browser_queue import BrowserQueue
from covey.gateway.encoding import changes_frame
from covey.gateway.view_changes import PendingChanges
from covey.matcher.errors import CoveyError
from covey.overlay import Gap, View
from covey.overlay.core.client.view_state import KINDS

log = logging.getLogger("covey.gateway")

_MOST_AT_ONCE = 500
"""Changes of a frame."""
_QUEUED_BYTES = 65_536
"""Of one view in the browser's queue; the rest waits here, where it can be conflated."""


class ViewFeed:
    """`on_end` is called with the error that ends the view, if one does."""

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
        """All that has arrived is read; else the reader is on its way."""
        self._left = asyncio.Event()
        self._error: Exception | None = None
        self._reader = asyncio.create_task(self._read(), name="covey gateway view")

    async def close(self) -> None:
        """No more changes are read or passed on."""
        self._reader.cancel()
        await asyncio.wait({self._reader})
        self._drop()

    def _drop(self) -> None:
        self._pending.clear()
        self._count()
        self._left.set()

    async def passed_on(self) -> None:
        """Until all changes that have arrived so far, or newer ones of their keys, are in the queue; or raise
        what has ended the view.
        """
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
