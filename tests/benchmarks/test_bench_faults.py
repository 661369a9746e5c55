"""`python -m benchmarks faults`: a link that can be cut and fall silent, and short faults of real brokers."""

from __future__ import annotations

import asyncio

import pytest
from running import on_a_loop

from benchmarks.faults import FaultPlan, FaultyLink, measure_faults

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def opened(link: FaultyLink) -> Streams:
    host, _, port = link.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def ends(link: FaultyLink, accepted: asyncio.Queue[Streams]) -> tuple[Streams, Streams]:
    """Both ends of a connection over the link."""
    return await opened(link), await accepted.get()


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        return not await reader.read(10)
    except ConnectionError:
        return True


@on_a_loop
async def test_a_silent_link_loses_bytes_and_ends_and_is_whole_for_others() -> None:
    accepted: asyncio.Queue[Streams] = asyncio.Queue()
    server = await asyncio.start_server(lambda *streams: accepted.put_nowait(streams), "127.0.0.1", 0)
    link = await FaultyLink(f"127.0.0.1:{server.sockets[0].getsockname()[1]}").start()
    (reader, writer), (far_reader, _) = await ends(link, accepted)
    writer.write(b"a")
    assert await far_reader.read(10) == b"a"

    link.silence()
    writer.write(b"b")
    writer.close()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(far_reader.read(10), 0.1)  # neither the byte nor the end
    waiting = asyncio.create_task(ends(link, accepted))
    await link.heal()
    (reader, writer), (far_reader, far_writer) = await waiting
    far_writer.write(b"c")
    assert await reader.read(10) == b"c"

    await link.cut()
    for each in (reader, far_reader, (await opened(link))[0]):
        assert await ended(each)
    await link.heal()
    await ends(link, accepted)
    await link.stop()
    server.close()


@pytest.mark.thorough
def test_faults_lose_repeat_and_reorder_no_durable_event() -> None:
    plan = FaultPlan(rate=1_000, seconds=0.5, faults=("pause", "full"))
    results = asyncio.run(measure_faults(plan))
    brokers = ["b1", "b2", "b3"]
    assert [each.place for each in results] == [*brokers, *brokers]
    for each in results:
        assert (each.lost, each.repeated, each.reordered) == (0, 0, 0), each
        assert each.published
        assert each.fault == "pause" or each.noticed_s is not None, each
