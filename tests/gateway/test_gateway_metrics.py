import asyncio
import re
import urllib.request
from pathlib import Path

from gateways import Browser, page_of
from prometheus_client.parser import text_string_to_metric_families
from running import QUOTE, Brokers, free_ports, on_a_loop

from covey.cli.gateway import serve_metrics
from covey.gateway import Limits, application
from covey.gateway.metrics import METRICS
from covey.overlay import Client

ROOT = Path(__file__).resolve().parent.parent.parent


def scrape(address: str) -> dict[str, dict[tuple[str, ...], float]]:
    text = urllib.request.urlopen(f"http://{address}/metrics", timeout=60).read().decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


@on_a_loop
async def test_what_browsers_do_is_counted() -> None:
    limits = Limits(queue_bytes=4_000, window_bytes=2_000, max_connections_per_address=4)
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    async with Brokers() as overlay, Client(overlay.address("b1")) as exchange:
        await exchange.advertise(QUOTE)
        app = application(overlay.address("b1"), limits=limits)
        serve_metrics(app, metrics)
        async with page_of(app, limits) as address:
            await compare(exchange, address, metrics)


async def compare(exchange: Client, address: str, metrics: str) -> None:
    before = {"covey_gateway_overflows_total": {}} | await asyncio.to_thread(scrape, metrics)
    assert METRICS.keys() <= before.keys() | {
        f"covey_gateway_{name}_total" for name in ("missed_events", "overflows", "refused")
    }
    async with Browser(address) as browser, Browser(address) as away:
        away.socket.transport.abort()
        for number in (1, 2):
            await browser.request("subscribe", subscription=number, type="Quote", filter="volume >= 0")
        await browser.request("subscribe", subscription=1, type="Quote")
        rows = [{"firm": "IBM", "price": 1.0, "volume": 1}] * 10
        total, found = 0, before
        while not found["covey_gateway_overflows_total"]:  # it does not acknowledge
            for _ in range(5):
                await exchange.publish_batch("Quote", rows, confirm=True)
                total += 20
            found = {"covey_gateway_overflows_total": {}} | await asyncio.to_thread(scrape, metrics)
        assert sum(found["covey_gateway_sessions"].values()) == 2
        assert found["covey_gateway_connections"][()] in (1, 2)  # that of the other may not be missed yet
        assert found["covey_gateway_subscriptions"] == {(): 2}
        assert found["covey_gateway_refused_total"] == {("INVALID_ARGUMENT",): 1}
        assert found["covey_gateway_received_messages_total"] == {(): 3}
        assert found["covey_gateway_overflows_total"][("drop_oldest",)] >= 1
        assert 0 < found["covey_gateway_missed_events_total"][("overflow",)] <= total
        assert 0 < found["covey_gateway_pending_bytes"][()] < 8_000
        assert found["covey_gateway_unacknowledged_bytes"][()] >= 2_000
        assert found["covey_gateway_sent_events_total"][()] % 10 == 0
        assert found["covey_gateway_sent_bytes_total"][()] >= 2_000


def test_the_documentation_has_every_metric() -> None:
    text = (ROOT / "docs" / "gateway.md").read_text()
    section = text[text.index("## Metrics") : text.index("## How many")]
    table = {f"covey_gateway_{name}" for name in re.findall(r"`([a-z_]+)`", section)}
    assert METRICS.keys() <= table
