"""Spans by OpenTelemetry's messaging conventions: one per trace and batch, at most `MOST_CONTEXTS`. Only
modules that make spans import this one, since opentelemetry-api is optional."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, TracerProvider, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from covey.matcher.events.batch import EventBatch
from covey.matcher.events.trace_contexts import TraceContext, present

Attributes = Mapping[str, str | int]

_W3C = TraceContextTextMapPropagator()
_FIELD = "traceparent"


def traceparent_of(span: Span) -> str:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, context=set_span_in_context(span))
    return carrier.get(_FIELD, "")


def end_all(spans: Iterable[Span]) -> None:
    for span in spans:
        span.end()


class Spans:
    def __init__(self, provider: TracerProvider, attributes: Attributes) -> None:
        self._tracer = provider.get_tracer("covey")
        self._attributes = {"messaging.system": "covey", **attributes}

    def begin(
        self,
        operation: str,
        destination: str,
        kind: SpanKind,
        attributes: Attributes,
        traceparent: str | None = None,
    ) -> Span:
        """The parent is `traceparent` ("": none), or else the current span. `destination` is the event type,
        "" if unknown."""
        parent = None if traceparent is None else _W3C.extract({_FIELD: traceparent}, context=Context())
        named = {"messaging.operation.name": operation}
        if destination:
            named["messaging.destination.name"] = destination
        name = f"{operation} {destination}".rstrip()
        return self._tracer.start_span(name, parent, kind, {**self._attributes, **named, **attributes})

    def begin_batch(
        self, batch: EventBatch, operation: str, kind: SpanKind, attributes: Attributes
    ) -> tuple[EventBatch, list[Span]]:
        """One span per trace of the batch, and the batch with these spans as parents."""
        spans: list[Span] = []
        contexts: list[TraceContext] = []
        name = batch.event_type.name
        all_attributes = {**attributes, **batch_attributes(batch)}
        for context in present(batch.contexts, batch.sequences()):
            span = self.begin(operation, name, kind, all_attributes, context.traceparent)
            if span.is_recording():
                spans.append(span)
                context = context._replace(traceparent=traceparent_of(span))
            contexts.append(context)
        return batch.with_contexts(tuple(contexts)), spans


def batch_attributes(batch: EventBatch) -> Attributes:
    if batch.count == 1:
        sequence = int(batch.sequences()[0])
        return {"messaging.message.id": f"{batch.publisher}:{sequence}"}
    return {"messaging.batch.message_count": batch.count}
