"""A broker's spans, exported to an OTLP collector in the background: that of the overlay file, or of
OpenTelemetry's environment variables. Brokers begin no traces; they continue those of clients."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from dataclasses import replace

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind

from covey.overlay.core.endpoint.observing import MOST_PENDING
from covey.overlay.core.messages import Interface, Message, Publish, Update
from covey.overlay.spans import Spans, end_all, traceparent_of

log = logging.getLogger("covey.broker")

_TRACES_PATH = "/v1/traces"


class NodeTracing:
    """`core/endpoint/observing.py` says when its methods are called."""

    def __init__(self, broker: str, overlay: str, processor: SpanProcessor) -> None:
        named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "covey"}
        resource = Resource.create({**named, "service.instance.id": broker, "covey.overlay": overlay})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._spans = Spans(self._provider, {"covey.broker": broker})
        self._events: list[Span] = []
        self._updates: dict[Interface, deque[tuple[int, Span]]] = {}
        """Pending updates by interface, with epochs."""

    def arrived(self, interface: Interface, messages: list[Message]) -> list[Message]:
        return [self._begin(interface, message) for message in messages]

    def _begin(self, interface: Interface, message: Message) -> Message:
        if isinstance(message, Publish) and message.batch.contexts:
            attributes = {"messaging.operation.type": "process", "covey.source": interface}
            batch, spans = self._spans.begin_batch(message.batch, "route", SpanKind.CONSUMER, attributes)
            self._events += spans
            return replace(message, batch=batch)
        if isinstance(message, Update) and message.traceparent:
            return self._begin_update(interface, message)
        return message

    def _begin_update(self, interface: Interface, message: Update) -> Update:
        attributes = {"covey.source": interface}
        span = self._spans.begin("update", "", SpanKind.SERVER, attributes, message.traceparent)
        if not span.is_recording():
            return message
        pending = self._updates.setdefault(interface, deque())
        pending.append((message.epoch, span))
        if len(pending) > MOST_PENDING:
            pending.popleft()[1].end()
        return replace(message, traceparent=traceparent_of(span))

    def handled(self) -> None:
        end_all(self._events)
        self._events.clear()

    def settled(self, interface: Interface, epoch: int) -> None:
        pending = self._updates.get(interface)
        if pending is None:
            return
        while pending and pending[0][0] <= epoch:
            pending.popleft()[1].end()
        if not pending:
            del self._updates[interface]

    def forget(self, interface: Interface) -> None:
        end_all(span for _, span in self._updates.pop(interface, ()))

    def shut_down(self, patience_s: float) -> None:
        thread = threading.Thread(target=self._provider.shutdown, name="covey traces", daemon=True)
        thread.start()
        thread.join(patience_s)


def otlp_processor(endpoint: str) -> SpanProcessor:
    """Exports to `endpoint`, or to the environment's collector if it is empty."""
    return BatchSpanProcessor(_exporter(endpoint))


def _exporter(endpoint: str) -> SpanExporter:
    variables = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((os.environ[name] for name in variables if os.environ.get(name)), "http/protobuf")
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

        return GrpcExporter(endpoint=endpoint or None)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint=endpoint.rstrip("/") + _TRACES_PATH if endpoint else None)
