"""Spans: one trace from a publisher over brokers to a subscriber, also past brokers without one."""

import asyncio
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from plain_client import PlainClient
from running import QUOTE, Brokers, on_a_loop, until

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from covey.overlay import Client
from covey.overlay.documents import ConfigError
from covey.overlay.node.broker_storage import Retention
from covey.overlay.node.config import check_tracing, load_overlay
from covey.overlay.node.node_tracing import NodeTracing
from covey.proto import broker_pb2 as pb
from covey.sim.experiments.local_overlay import LocalOverlay, chain

CHAIN = [("b1", "b2"), ("b2", "b3")]
EVENT = {"firm": "IBM", "price": 5.0, "volume": 1}


class Collected:
    """The ended spans of this process's brokers and clients."""

    def __init__(self, **sampling: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False, **sampling)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("application")

    def brokers(self, *names: str) -> dict[str, NodeTracing]:
        return {name: NodeTracing(name, "test", SimpleSpanProcessor(self.exporter)) for name in names}

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def chains(self, name: str) -> list[list[str]]:
        """For each span of a name, the names of it and its ancestors; brokers' spans with their broker."""
        by_id = {span.context.span_id: span for span in self.exporter.get_finished_spans()}
        chains = []
        for span in self.spans(name):
            found = [_label(span)]
            while span.parent is not None:
                parent = by_id[span.parent.span_id]
                assert parent.context.trace_id == span.context.trace_id
                span = parent
                found.append(_label(span))
            chains.append(found)
        return chains


def _label(span: ReadableSpan) -> str:
    broker = span.attributes.get("covey.broker")
    return f"{broker} {span.name.split()[0]}" if broker else span.name


ROUTED = ["receive Quote", "b3 route", "b2 route", "b1 route", "send Quote"]


async def take(subscription: Any, count: int) -> list[Any]:
    return [await asyncio.wait_for(anext(subscription), 60) for _ in range(count)]


@on_a_loop
async def test_a_trace_leads_from_the_publisher_to_the_subscriber() -> None:
    collected = Collected()
    async with (
        Brokers(CHAIN, tracing=collected.brokers("b1", "b2", "b3")) as brokers,
        Client(brokers.address("b1"), "feed", tracer_provider=collected.provider) as feed,
        Client(brokers.address("b3"), "reader", tracer_provider=collected.provider) as reader,
    ):
        await feed.advertise(QUOTE)
        subscription = await reader.subscribe(QUOTE)
        await feed.publish_batch("Quote", [EVENT] * 5)
        events = await take(subscription, 5)
        await until(lambda: len(collected.spans("receive Quote")) == 1)
        assert collected.chains("receive Quote") == [ROUTED]
        assert {event.traceparent[3:35] for event in events} == {
            format(collected.spans("send Quote")[0].context.trace_id, "032x")
        }
        for span in collected.exporter.get_finished_spans():
            attributes = dict(span.attributes or {})
            if span.name.endswith("Quote"):
                assert attributes["messaging.system"] == "covey"
                assert attributes["messaging.destination.name"] == "Quote"
                assert attributes["messaging.batch.message_count"] == 5
                assert attributes["messaging.operation.name"] == span.name.split()[0]

        collected.exporter.clear()
        with collected.tracer.start_as_current_span("request"):
            await feed.publish("Quote", **EVENT, confirm=True)
        await take(subscription, 1)
        await until(lambda: len(collected.spans("receive Quote")) == 1)
        assert collected.chains("receive Quote") == [[*ROUTED, "request"]]
        (received,) = collected.spans("receive Quote")
        assert received.attributes["messaging.message.id"] == f"{feed.publisher}:6"


@on_a_loop
async def test_a_durable_type_keeps_its_traces(tmp_path: Path) -> None:
    collected = Collected()
    stored = {"durable": {"Quote": Retention()}, "storage": str(tmp_path)}
    async with (
        Brokers(CHAIN, tracing=collected.brokers("b1", "b2", "b3"), **stored) as brokers,
        Client(brokers.address("b1"), "feed", tracer_provider=collected.provider) as feed,
    ):
        await feed.advertise(QUOTE)
        options = {"durable": True, "tracer_provider": collected.provider}
        async with Client(brokers.address("b3"), "reader", **options) as reader:
            await reader.subscribe(QUOTE)
        await feed.publish_batch("Quote", [EVENT] * 3, confirm=True)
        async with Client(brokers.address("b3"), "reader", **options) as reader:
            await take(await reader.subscribe(QUOTE), 3)
            await until(lambda: len(collected.spans("receive Quote")) == 1)
        assert collected.chains("receive Quote") == [ROUTED]


@on_a_loop
async def test_single_events_share_the_trace_of_their_batch() -> None:
    collected = Collected()
    async with (
        Brokers(tracing=collected.brokers("b1")) as brokers,
        Client(brokers.address("b1"), "feed", tracer_provider=collected.provider) as feed,
    ):
        await feed.advertise(QUOTE)
        for _ in range(1_000):
            await feed.publish("Quote", **EVENT)
        await feed.flush()
        sent = collected.spans("send Quote")
        assert sum(int(s.attributes.get("messaging.batch.message_count", 1)) for s in sent) == 1_000
        assert len(sent) < 500
        await until(lambda: len(collected.spans("route Quote")) >= len(sent))


@on_a_loop
async def test_each_traced_call_in_a_batch_keeps_its_trace() -> None:
    collected = Collected()
    async with (
        Brokers(CHAIN, tracing=collected.brokers("b1", "b2", "b3")) as brokers,
        Client(brokers.address("b1"), "feed", tracer_provider=collected.provider) as feed,
        Client(brokers.address("b3"), "reader", tracer_provider=collected.provider) as reader,
    ):
        await feed.advertise(QUOTE)
        subscription = await reader.subscribe(QUOTE, "price > $least", least=0.0)
        expected = {}
        for number in range(100):
            if number % 7:
                await feed.publish("Quote", firm="IBM", price=float(number % 3), volume=number)
            else:
                with collected.tracer.start_as_current_span("request") as request:
                    await feed.publish("Quote", firm="IBM", price=1.0, volume=number)
                    expected[number] = request.get_span_context().trace_id
        events = await take(subscription, sum(number % 3 > 0 or number % 7 == 0 for number in range(100)))
        got = {
            event["volume"]: int(event.traceparent[3:35], 16)
            for event in events
            if event.traceparent is not None and event["volume"] in expected
        }
        assert got == expected
        chains = [chain for chain in collected.chains("receive Quote") if chain[-1] == "request"]
        assert chains == [[*ROUTED, "request"]] * len(expected)


@on_a_loop
async def test_an_update_is_traced_until_it_has_taken_effect() -> None:
    collected = Collected()
    async with (
        Brokers(CHAIN, tracing=collected.brokers("b1", "b2", "b3")) as brokers,
        Client(brokers.address("b1"), "feed") as feed,
        Client(brokers.address("b3"), "reader", tracer_provider=collected.provider) as reader,
    ):
        await feed.advertise(QUOTE)
        subscription = await reader.subscribe(QUOTE, "price > $least", least=0.0)
        await subscription.update(least=1.0)
        assert len(collected.exporter.get_finished_spans()) == 4
        chains = collected.chains("update")
        assert max(chains, key=len) == ["b1 update", "b2 update", "b3 update", "update Quote"]
        spans = {_label(span): span for span in collected.exporter.get_finished_spans()}
        ends = [spans[label].end_time for label in ("b1 update", "b2 update", "b3 update", "update Quote")]
        assert ends == sorted(ends)
        subscription.update_nowait(least=2.0)
        await reader.settled()
        assert len(collected.spans("update Quote")) == 2


@pytest.mark.parametrize("traced", [(), ("b2",), ("b1", "b3")])
@on_a_loop
async def test_brokers_and_clients_without_spans_pass_traces_on(traced: Sequence[str]) -> None:
    collected = Collected()
    async with (
        Brokers(CHAIN, tracing=collected.brokers(*traced)) as brokers,
        Client(brokers.address("b1"), "feed", tracer_provider=collected.provider) as feed,
        Client(brokers.address("b3"), "reader") as reader,
    ):
        await feed.advertise(QUOTE)
        subscription = await reader.subscribe(QUOTE)
        await feed.publish_batch("Quote", [EVENT] * 3)
        events = await take(subscription, 3)
        await until(lambda: len(collected.spans("route Quote")) == len(traced))
        (sent,) = collected.spans("send Quote")
        last = collected.spans("route Quote")[-1] if traced else sent
        for event in events:
            expected = f"00-{sent.context.trace_id:032x}-{last.context.span_id:016x}"
            assert event.traceparent.rpartition("-")[0] == expected


@on_a_loop
async def test_what_is_not_sampled_is_not_traced() -> None:
    collected = Collected(sampler=ALWAYS_OFF)
    async with (
        Brokers(tracing=collected.brokers("b1")) as brokers,
        Client(brokers.address("b1"), "feed", tracer_provider=collected.provider) as feed,
    ):
        await feed.advertise(QUOTE)
        subscription = await feed.subscribe("Quote", "price > $least", least=0.0)
        await feed.publish("Quote", **EVENT)
        with collected.tracer.start_as_current_span("request"):
            await feed.publish("Quote", **EVENT)
        await feed.publish_batch("Quote", [EVENT])
        await subscription.update(least=1.0)
        assert [event.traceparent for event in await take(subscription, 3)] == [None] * 3
        assert not collected.exporter.get_finished_spans()


@on_a_loop
async def test_what_is_no_traceparent_is_ignored() -> None:
    collected = Collected()
    valid = f"00-{7:032x}-{9:016x}-01"
    async with (
        Brokers(tracing=collected.brokers("b1")) as brokers,
        PlainClient(brokers.address("b1"), "feed") as feed,
        Client(brokers.address("b1"), "reader") as reader,
    ):
        await feed.advertise("Reading", "number")
        subscription = await reader.subscribe("Reading")
        contexts = [
            pb.TraceContext(traceparent=text, first_sequence=first, last_sequence=last)
            for text, first, last in [
                ("", 0, 9),
                ("00-x", 0, 9),
                (f"00-{0:032x}-{9:016x}-01", 0, 9),
                (valid, 9, 0),
                (valid, 0, 2**64 - 1),
                (valid, 0, 2**62),
                *[(f"00-{number:032x}-{9:016x}-01", 0, 9) for number in range(1, 10_000)],
            ]
        ]
        feed.publish("Reading", [1], contexts=contexts)
        (event,) = await take(subscription, 1)
        assert event.traceparent[3:35] == format(7, "032x")
        assert len(collected.spans("route Reading")) <= 16


def test_a_collector_needs_opentelemetry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "overlay.yaml"
    file.write_text("overlay: o\nbrokers:\n  b1: {address: '127.0.0.1:7001'}\ntracing: 'http://c:4318'\n")
    overlay = load_overlay(file, {})
    assert overlay.tracing == "http://c:4318"
    check_tracing(overlay)
    monkeypatch.setattr("covey.overlay.node.config.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'covey\[otel\]'"):
        check_tracing(overlay)


class Receiver(BaseHTTPRequestHandler):
    """A collector that records the name, trace and broker of each received span."""

    spans: list[tuple[str, bytes, str]]

    def do_POST(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            names = {a.key: a.value.string_value for a in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.spans.append((span.name, span.trace_id, names.get("service.instance.id", "")))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.thorough
@on_a_loop
async def test_broker_processes_export_to_a_collector() -> None:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    spans: list[tuple[str, bytes, str]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Of", (Receiver,), {"spans": spans}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=f"{url}/v1/traces")))
    try:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
            environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
            async with LocalOverlay(chain(3)) as overlay:
                async with (
                    Client(overlay.addresses["b1"], "feed", tracer_provider=provider) as feed,
                    Client(overlay.addresses["b3"], "reader", tracer_provider=provider) as reader,
                ):
                    await feed.advertise(QUOTE)
                    subscription = await reader.subscribe(QUOTE)
                    await feed.publish_batch("Quote", [EVENT] * 3)
                    await take(subscription, 3)
                await until(lambda: len(spans) == 5, "spans of two clients and three brokers")
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()
    assert len({trace_id for _, trace_id, _ in spans}) == 1
    assert sorted((name, broker) for name, _, broker in spans if broker in overlay.brokers) == [
        ("route Quote", "b1"),
        ("route Quote", "b2"),
        ("route Quote", "b3"),
    ]
    assert trace.INVALID_TRACE_ID not in {int.from_bytes(trace_id, "big") for _, trace_id, _ in spans}
