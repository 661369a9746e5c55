"""List attributes through an overlay: events one by one and in batches, beside filters on their contents."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from covey.matcher import EventBatch, EventType
from covey.overlay import Client
from covey.sim.experiments.local_overlay import LocalOverlay, chain

PHOTO = EventType("Photo", {"number": "int64", "tags": "list<string>"})
ROWS: list[dict[str, Any]] = [
    {"number": 0, "tags": ["sea", "sun"]},
    {"number": 1, "tags": []},
    {"number": 2, "tags": None},
    {"number": 3, "tags": ["straße"]},
    {"number": 4, "tags": ["sea"]},
]


async def received(filters: list[str], **values: str) -> list[list[dict[str, Any]]]:
    async with (
        LocalOverlay(chain(3)) as overlay,
        Client(overlay.addresses["b1"], name="camera") as camera,
        Client(overlay.addresses["b3"], name="album") as album,
    ):
        await camera.advertise(PHOTO)
        streams = [await album.subscribe(PHOTO, text, **(values if "$" in text else {})) for text in filters]
        end = await album.subscribe(PHOTO, "number == 99")
        for row in ROWS:
            await camera.publish("Photo", row)
        await camera.publish_batch("Photo", EventBatch.from_pylist(PHOTO, ROWS * 5).record_batch)
        await camera.publish("Photo", number=99)
        assert (await anext(end))["tags"] is None
        found = []
        for stream in streams:
            found.append([])
            while len(found[-1]) < 6 * len(ROWS):
                try:
                    found[-1].append(await asyncio.wait_for(anext(stream), 0.2))
                except TimeoutError:
                    break
        return found


@pytest.mark.usefixtures("local_brokers")
def test_lists_arrive_as_they_were_published_and_filters_select_them() -> None:
    filters = ["exists(tags) and number < 9", 'has_any(tags, $tag, "sun")', "not exists(tags) and number < 9"]
    present, sea, absent = asyncio.run(received(filters, tag="sea"))
    assert present == [row for row in ROWS if row["tags"] is not None] * 6
    assert sea == [ROWS[0], ROWS[4]] * 6
    assert absent == [ROWS[2]] * 6
