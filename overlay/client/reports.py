"""What a client reports, by callback, log or span.

Invariants: the log is bounded in time; an exception of a callback is logged and stops nothing. Without a
tracer provider there are no spans. Importing this module does not import opentelemetry.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, ParamSpec

from covey.matcher import EventBatch
from covey.overlay.core.endpoint.outbox import GATHERED, UNTRACED
from covey.overlay.core.messages import Gap, Notice

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

log = logging.getLogger("covey.client")

P = ParamSpec("P")

_LOG_EVERY_S = 10.0


class Reports:
    def __init__(
        self,
        name: str,
        on_state: Callable[[bool, str], None] | None,
        on_gap: Callable[[Gap], None] | None,
        on_notice: Callable[[Notice], None] | None,
    ) -> None:
        self.name = name
        self.on_state, self.on_gap, self.on_notice = on_state, on_gap, on_notice
        self._due: dict[str, float] = {}
        """The time of the next log line, by subject."""
        self._missed = 0
        """Dropped events not logged yet."""

    def is_due(self, subject: str) -> bool:
        """Whether `subject` may be logged now; then not again for 10 s."""
        now = time.monotonic()
        due = now >= self._due.get(subject, 0.0)
        if due:
            self._due[subject] = now + _LOG_EVERY_S
        return due

    def state(self, connected: bool, reason: str) -> None:
        if self.on_state is not None:
            self._call("on_state", self.on_state, connected, reason)

    def gap(self, gap: Gap) -> None:
        if self.on_gap is not None:
            self._call("on_gap", self.on_gap, gap)
        else:
            self._missed += gap.count
            if self.is_due("gaps"):
                count, self._missed = self._missed, 0
                log.warning("client %s did not get %d events, last of %s", self.name, count, gap.type_name)

    def notice(self, notice: Notice) -> None:
        if self.on_notice is not None:
            self._call("on_notice", self.on_notice, notice)
        elif self.is_due(f"operator {notice.operator}"):
            log.warning("client %s: %s", self.name, notice)

    def _call(self, name: str, callback: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            callback(*args, **kwargs)
        except Exception:
            log.exception("client %s: %s failed", self.name, name)


class ClientTracing:
    def __init__(self, provider: TracerProvider, name: str, address: str) -> None:
        from opentelemetry import trace

        from covey.overlay import spans

        self._trace, self._lib = trace, spans
        self._spans = spans.Spans(provider, {"messaging.client.id": name, "server.address": address})

    def of_event(self) -> str | None:
        """None: the call has a span of its own, within a recorded one. `GATHERED`: its batch may begin a
        trace. `UNTRACED`: within a span that is not recorded. 0.7 µs."""
        current = self._trace.get_current_span()
        if current is self._trace.INVALID_SPAN:
            return GATHERED
        return None if current.is_recording() else UNTRACED

    def begin_trace(self, type_name: str, count: int) -> str:
        """The traceparent of a batch of singly published events: a new trace."""
        span = self._spans.begin("send", type_name, self._trace.SpanKind.PRODUCER, _sent(count), "")
        traceparent = self._lib.traceparent_of(span) if span.is_recording() else UNTRACED
        span.end()
        return traceparent

    def sending(self, type_name: str, count: int) -> AbstractContextManager[str]:
        """The traceparent of a publishing call's span, `UNTRACED` if not sampled."""
        return self._spanning(
            self._spans.begin("send", type_name, self._trace.SpanKind.PRODUCER, _sent(count))
        )

    def updating(self, type_name: str, subscription_id: int) -> AbstractContextManager[str]:
        """The traceparent of an update's span, `UNTRACED` if not sampled."""
        attributes = {"covey.subscription.id": subscription_id}
        return self._spanning(self._spans.begin("update", type_name, self._trace.SpanKind.CLIENT, attributes))

    def _spanning(self, span: Span) -> AbstractContextManager[str]:
        return self._within(span) if span.is_recording() else nullcontext(UNTRACED)

    @contextmanager
    def _within(self, span: Span) -> Iterator[str]:
        with self._trace.use_span(span, end_on_exit=True):
            yield self._lib.traceparent_of(span)

    def received(
        self, batch: EventBatch, release: Callable[[], None]
    ) -> tuple[EventBatch, Callable[[], None]]:
        """The batch with its spans as parents, and a function that ends them and calls `release`."""
        attributes = {"messaging.operation.type": "receive"}
        batch, spans = self._spans.begin_batch(batch, "receive", self._trace.SpanKind.CONSUMER, attributes)

        def end() -> None:
            self._lib.end_all(spans)
            release()

        return batch, end


def _sent(count: int) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {"messaging.operation.type": "send"}
    if count > 1:
        attributes["messaging.batch.message_count"] = count
    return attributes


def client_tracing(provider: TracerProvider | None, name: str, address: str) -> ClientTracing | None:
    """None if there is no tracer provider."""
    if provider is None:
        trace = sys.modules.get("opentelemetry.trace")
        if trace is None:
            return None
        provider = trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
            return None
    return ClientTracing(provider, name, address)
