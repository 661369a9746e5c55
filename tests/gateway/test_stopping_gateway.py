import asyncio
from contextlib import AsyncExitStack

from gateways import Browser, gateway_to
from running import QUOTE, Brokers, on_a_loop

from covey.gateway import Limits


@on_a_loop
async def test_a_gateway_without_its_broker_waits_for_no_answer() -> None:
    """Each of its subscriptions would wait for an answer, one after the other."""
    limits = Limits(timeout_s=20)
    async with Brokers(event_types=(QUOTE,)) as overlay, AsyncExitStack() as stack:
        address = await stack.enter_async_context(gateway_to(overlay.address("b1"), limits=limits))
        async with Browser(address) as browser:
            for number in (1, 2):
                answer = await browser.request("subscribe", subscription=number, type="Quote")
                assert answer["kind"] == "answer"
            await overlay.crash("b1")
            await browser.until("connection", connected=False)
            async with asyncio.timeout(limits.timeout_s):
                await stack.aclose()
