"""A broker's log lines: plain text or JSON, with UTC times and a bounded rate.

Invariants: a peer adds at most `LONGEST` characters per argument, and in plain text only printable ones, so
it cannot forge a line. In `WINDOW_S` seconds at most `LINES_OF_A_SUBJECT` lines of a kind about a subject
pass, and `LINES_OF_A_KIND` in all. The kind is a warning's (`core/warnings.py`), else the message without
arguments; the subject is the first argument.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

FORMATS = ("plain", "json")
LONGEST = 2_000
"""Characters of a message or an argument."""
LONGEST_TRACEBACK = 10_000

LINES: dict[str, tuple[str, ...]] = {
    "serving at %s, overlay %s, %s routing": ("serving", "listen", "overlay", "routing"),
    "stopping": ("stopping",),
    "stopped": ("stopped",),
    "stopping with %d events that %d peers have not acknowledged; only durable ones are kept": (
        "stopping_with_events",
        "events",
        "peers",
    ),
    "the process that started this broker is gone": ("parent_gone",),
    "broker %s stops: %r": ("failed", "name", "error"),
    "broker %s stops, since it cannot store events: %s": ("storage_failed", "name", "reason"),
    "%s connected%s": ("connected", "interface", "resumed"),
    "%s disconnected: %s": ("disconnected", "interface", "reason"),
    "%s disconnected, its session stays: %s": ("left", "interface", "reason"),
    "session of %s ended: %s": ("session_ended", "interface", "reason"),
    "%s: %s": ("interface_warning", "interface", "reason"),  # the event is the kind (core/warnings.py)
    "%s broke the protocol: %s": ("protocol_broken", "interface", "reason"),
    "broker/%s at %s: %s; retrying": ("dial_failed", "neighbour", "address", "reason"),
    "%s has another overlay file: %s": ("types_differ", "interface", "reason"),
    "refused a connection from %s: %s": ("connection_refused", "peer", "reason"),
    "refused a connection of %s: %s": ("connection_over_limit", "host", "reason"),
    "closed the connection of %s: %s": ("connection_closed", "peer", "reason"),
    "the handler of %s failed": ("handler_failed", "path"),
    "insecure: connections are neither encrypted nor authenticated": ("insecure",),
    "read the changed files of TLS, %s": ("tls_reloaded", "files"),
    "%s: the files read before stay in use": ("tls_not_reloaded", "reason"),
    "read the changed key of tokens, %s": ("token_key_reloaded", "file"),
    "%s: the keys read before stay in use": ("token_key_not_reloaded", "reason"),
    "%s: the link has been released": ("link_released", "interface"),
    "%s: %s keys restored from the log, in %.1f s": ("keys_restored", "type", "keys", "seconds"),
    "%s: changes at its end that are torn and left out: %d; none was confirmed, unless a bit flipped": (
        "state_cut",
        "file",
        "changes",
    ),
    "%s: records from %d on that are %s: %d": ("records_not_served", "log", "first", "what", "records"),
    "operator %s %s": ("operator_fault", "operator", "reason"),
    "the overlay file was not reloaded and nothing has changed: %s": ("reload_failed", "reason"),
    "the overlay file has options that need a restart: %s": ("reload_kept", "options"),
    "the overlay file was reloaded; changed: %s": ("reloaded", "options"),
    "the broker leaves the overlay, since its file does not name it any more": ("leaving",),
    "%s; the keys read before stay in use": ("ticket_keys_not_reloaded", "reason"),
    "disconnected %d clients, whose permissions have changed": ("clients_changed", "clients"),
    "metrics at %s": ("metrics_serving", "address"),
    "spans to %s": ("tracing", "collector"),
    "no spans: OpenTelemetry is not installed; pip install 'covey[otel]'": ("tracing_not_installed",),
    "the metrics were not read: %r": ("metrics_failed", "error"),
    "%s: %d more lines within %g s, not written: %s": (
        "lines_suppressed",
        "subject",
        "count",
        "window_s",
        "line",
    ),
    "no matching kernels, filters are evaluated without them: %s": ("kernels_failed", "reason"),
    "loading the kernels failed": ("kernels_failed",),
    "the matching kernels are compiled and loaded, after %.0f s": ("kernels_ready", "seconds"),
    "compiling the matching kernels %s; this takes about a minute, and filters are evaluated without "
    "them until then": ("kernels_compiling", "where"),
}
"""By text: the event, which stays when the text changes ("other" if not listed), and the arguments' names."""
WINDOW_S = 10.0
LINES_OF_A_SUBJECT = 10
LINES_OF_A_KIND = 100


class _Formatter(logging.Formatter):
    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        when = datetime.fromtimestamp(record.created, UTC)
        return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return _cut(super().formatException(ei), LONGEST_TRACEBACK)


class PlainFormatter(_Formatter):
    def __init__(self, broker: str) -> None:
        super().__init__("%(asctime)s %(broker)s %(levelname)s %(message)s", defaults={"broker": broker})

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = _printable(_cut(record.message))
        return super().formatMessage(record)


class JsonFormatter(_Formatter):
    """Keys: `time`, `level`, `broker`, `event`, `message`, the arguments' names, and `exception` if any."""

    def __init__(self, broker: str) -> None:
        super().__init__()
        self._broker = broker

    def format(self, record: logging.LogRecord) -> str:
        event, *names = LINES.get(str(record.msg), ("other",))
        arguments = record.args if isinstance(record.args, tuple) else ()
        line = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "broker": self._broker,
            "event": getattr(record, "event", event),
            "message": _cut(record.getMessage()),
            **{name: _plain(value) for name, value in zip(names, arguments, strict=False)},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _cut(text: str, longest: int = LONGEST) -> str:
    if len(text) <= longest:
        return text
    return f"{text[:longest]}... ({len(text):,} characters)"


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _plain(value: object) -> object:
    return value if isinstance(value, int | float) else _cut(str(value))


def configure_log(broker: str, level: str, format: str) -> None:
    """Log to standard error. `format` is one of `FORMATS`."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(broker) if format == "json" else PlainFormatter(broker))
    logging.basicConfig(level=level, handlers=[handler])


class LogLimit(logging.Filter):
    """`defer` calls a function after some seconds; by default on the running loop."""

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
        if self._passed_of_kind[kind] < LINES_OF_A_KIND and self._passed[about] < LINES_OF_A_SUBJECT:
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
