"""Bounds what one peer can have a broker write to its log.

Invariant: in a window of `WINDOW_S` seconds at most `LINES` lines of one kind about one subject pass, and
`LINES_OF_A_KIND` about all. The kind is that of a warning (`core/warnings.py`), else the text of the message
without its arguments; the subject is its first argument: an interface, an address. At the window's end a line
has the number of the suppressed ones, and `suppressed` counts them by level.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

WINDOW_S = 10.0
LINES = 10
LINES_OF_A_KIND = 100


class LogLimit(logging.Filter):
    """A filter of one logger. `defer` calls a function after some seconds; by default on the running loop."""

    def __init__(
        self,
        logger: logging.Logger,
        *,
        clock: Callable[[], float] = time.monotonic,
        defer: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        super().__init__()
        self._logger = logger
        self._clock = clock
        self._defer = defer
        self.suppressed: Counter[str] = Counter()
        self._until_s = 0.0
        self._passed: Counter[tuple[str, str]] = Counter()
        self._passed_of_kind: Counter[str] = Counter()
        self._suppressed: Counter[tuple[int, str, str]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.CRITICAL or hasattr(record, "unlimited"):
            return True
        if self._clock() >= self._until_s:
            self._end_window()
        kind = getattr(record, "event", str(record.msg))
        subject = str(record.args[0]) if isinstance(record.args, tuple) and record.args else ""
        about = (kind, subject)
        if self._passed_of_kind[kind] < LINES_OF_A_KIND and self._passed[about] < LINES:
            self._passed_of_kind[kind] += 1
            self._passed[about] += 1
            return True
        if not self._suppressed:
            self._call_later(max(0.0, self._until_s - self._clock()))
        self.suppressed[record.levelname] += 1
        # A subject over the bound of its kind may be one of very many.
        self._suppressed[record.levelno, kind, subject if about in self._passed else "others"] += 1
        return False

    def _call_later(self, seconds: float) -> None:
        if self._defer is not None:
            self._defer(seconds, self._end_window)
            return
        with suppress(RuntimeError):  # without a loop the next record ends the window
            asyncio.get_running_loop().call_later(seconds, self._end_window)

    def _end_window(self) -> None:
        suppressed, self._suppressed = self._suppressed, Counter()
        self._passed.clear()
        self._passed_of_kind.clear()
        self._until_s = self._clock() + WINDOW_S
        for (level, kind, subject), count in suppressed.items():
            self._logger.log(
                level,
                "%s: %d more lines within %g s, not written: %s",
                subject or "in all",
                count,
                WINDOW_S,
                kind,
                extra={"unlimited": True},
            )
