"""Processor time of a broker's turns of the event loop while its metrics are scraped:
`python tests/support/scrape_cost.py [SESSIONS [SUBSCRIPTIONS]]`."""

import asyncio
import sys
import time
from urllib.request import urlopen

from core_endpoints import connected

from covey.matcher import EventType, parse
from covey.overlay.core.endpoint.limits import Limits, SessionLimits
from covey.overlay.core.messages import Subscribe
from covey.overlay.node.metrics_server import MetricsServer
from covey.overlay.node.node import Node
from covey.overlay.node.overlay import BrokerAddress, Overlay
from covey.sim.experiments.local_overlay import free_addresses

SCRAPES = 30
QUOTE = EventType("Quote", {"firm": "string", "price": "float64"})


def filled(sessions: int, subscriptions: int, address: str) -> Node:
    """A broker with so many sessions, which share so many subscriptions."""
    broker = BrokerAddress("b1", "127.0.0.1:7001", "127.0.0.1:7001")
    overlay = Overlay(
        "cost", "parametric", (QUOTE,), {"b1": broker}, (), Limits(), SessionLimits(), metrics={"b1": address}
    )
    node = Node(overlay, "b1")
    filter = parse("firm == $firm and price < $limit", QUOTE)
    for session in range(sessions):
        name = f"client/c{session}"
        connected(node.endpoint, name)
        for number in range(1, subscriptions // sessions + 1):
            values = {"firm": f"F{number}", "limit": float(session)}
            node.core.handle(Subscribe(number, number, filter, values), name, 0)
    return node


async def turns(node: Node, address: str) -> list[float]:
    """The longest turn of the loop, in ms of its thread, during each scrape; the first is without one."""
    server = MetricsServer(node, address)
    server.start()
    longest = []
    for scrape in range(SCRAPES + 1):
        done = asyncio.Event()
        gaps: list[float] = []

        async def tick(done: asyncio.Event = done, gaps: list[float] = gaps) -> None:
            while not done.is_set():
                start = time.thread_time()
                await asyncio.sleep(0)
                gaps.append(1e3 * (time.thread_time() - start))

        ticking = asyncio.create_task(tick())
        if scrape:
            await asyncio.to_thread(lambda: urlopen(f"http://{address}/metrics").read())
        else:
            await asyncio.sleep(0.1)
        done.set()
        await ticking
        longest.append(max(gaps))
    await server.stop()
    return longest


if __name__ == "__main__":
    sessions, subscriptions = (int(word) for word in (*sys.argv[1:], "100", "100000")[:2])
    (address,) = free_addresses(1)
    node = filled(sessions, subscriptions, address)
    idle, *scraped = asyncio.run(turns(node, address))
    scraped.sort()
    print(f"{sessions:,} sessions, {subscriptions:,} subscriptions; longest turn of the loop")
    print(f"without a scrape {idle:.1f} ms; during one: median {scraped[len(scraped) // 2]:.1f} ms, ", end="")
    print(f"worst of {SCRAPES} {scraped[-1]:.1f} ms")
