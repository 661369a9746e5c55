"""A first start: brokers and clients serve before the kernels are loaded, match the same without them, and
load them on no event loop. Runs in its own process, since this one has loaded its kernels."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import asyncio, threading
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from covey.matcher import EventBatch, EventType
from covey.matcher.jit import kernel
from covey.matcher.jit import kernel_loader
from covey.overlay import Client
from covey.overlay.client import inspect_broker
from running import Brokers, until

QUOTE = EventType("Quote", {"firm": "string", "price": "float64"})
released = threading.Event()
use = kernel.Kernel.use


def use_off_the_loop(self, entry_point):
    assert threading.current_thread() is not threading.main_thread()
    released.wait()
    use(self, entry_point)


kernel.Kernel.use = use_off_the_loop


async def kernel_health(address):
    async with grpc.aio.insecure_channel(address) as channel:
        request = health_pb2.HealthCheckRequest(service="covey.kernels")
        reply = await health_pb2_grpc.HealthStub(channel).Check(request)
    return health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)


async def round_trip(exchange, trader, subscriptions, batch):
    await exchange.publish_batch("Quote", batch)
    counts = {subscription.id: 0 for subscription in subscriptions}
    # The limits move while the events are on their way: the client evaluates them again.
    for number, subscription in enumerate(subscriptions):
        subscription.update_nowait(limit=number + 0.5)
    await trader.settled()
    async with asyncio.timeout(120):
        for number, subscription in enumerate(subscriptions):
            async for received in subscription.batches():
                counts[subscription.id] += len(received)
                if counts[subscription.id] >= number + 1:
                    break
    for number, subscription in enumerate(subscriptions):
        subscription.update_nowait(limit=float(len(subscriptions)))
    await trader.settled()
    return list(counts.values())


async def main():
    async with Brokers([("b1", "b2")]) as brokers:
        address = brokers.address("b1")
        async with Client(brokers.address("b2")) as exchange, Client(address) as trader:
            await exchange.advertise(QUOTE)
            subscriptions = [
                await trader.subscribe("Quote", 'firm == "IBM" and price < $limit', limit=40.0)
                for _ in range(40)
            ]
            rows = [{"firm": firm, "price": float(price)} for price in range(60) for firm in ("IBM", "GM")]
            batch = EventBatch.from_pylist(QUOTE, rows)
            without = await round_trip(exchange, trader, subscriptions, batch)
            print(await kernel_health(address), (await inspect_broker(address))[1]["kernels"], without)
            released.set()
            await until(lambda: kernel_loader.loader.state == "ready")

            async def serving():
                return await kernel_health(address) == "SERVING"

            await until(serving)
            with_kernels = await round_trip(exchange, trader, subscriptions, batch)
            print(await kernel_health(address), (await inspect_broker(address))[1]["kernels"], with_kernels)
            assert "covey.matcher.engines.cluster.engine" in __import__("sys").modules


asyncio.run(main())
"""


def test_a_first_start_serves_without_kernels_and_takes_them_up_later() -> None:
    support = Path(__file__).parents[2] / "support"
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | {"PYTHONPATH": str(support)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    without, with_kernels = result.stdout.splitlines()
    counts = str([number + 1 for number in range(40)])
    assert without == f"NOT_SERVING loading {counts}"
    assert with_kernels == f"SERVING ready {counts}"
