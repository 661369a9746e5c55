"""A broker process with cached kernels matches without Numba, LLVM and pandas, and so stays small."""

import asyncio
from pathlib import Path

import pytest

from covey.matcher import EventType
from covey.matcher.jit.image import images_supported
from covey.overlay import Client
from covey.sim.experiments.local_overlay import LocalOverlay
from covey.sim.experiments.processes import resident_bytes

QUOTE = EventType("Quote", {"firm": "string", "price": "float64"})
MOST_BYTES = 150_000_000


async def used_and_mapped() -> tuple[int, str]:
    async with LocalOverlay((), event_types=[QUOTE]) as overlay, Client(overlay.addresses["b1"]) as client:
        await client.advertise(QUOTE)
        quotes = await client.subscribe("Quote", 'firm == "IBM" and price > 1.5')
        for price in (1.0, 2.0):
            await client.publish("Quote", firm="IBM", price=price)
        async for event in quotes:
            assert event["price"] == 2.0
            break
        process = overlay.process_ids()["b1"]
        return resident_bytes(process), Path(f"/proc/{process}/maps").read_text()


@pytest.mark.skipif(not images_supported(), reason="images of kernels are for Linux on x86-64")
def test_a_broker_that_matches_has_neither_a_compiler_nor_more_than_150_mb() -> None:
    used, mapped = asyncio.run(used_and_mapped())
    assert [name for name in ("llvmlite", "_dispatcher", "pandas", "scipy/") if name in mapped] == []
    assert used < MOST_BYTES
