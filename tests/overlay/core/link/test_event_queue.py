"""Conflation of what waits on a link, against a loop over single events."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from covey.matcher import EventBatch, EventType
from covey.overlay.core.link.event_queue import EventQueue
from covey.overlay.core.messages import Deliver

SHIP = EventType("Ship", {"id": "string", "x": "int64"}, key="id")
OTHER = EventType("Other", {"id": "string"}, key="id")
KEYS = {"Ship": "id"}
numbers = st.lists(st.integers(1, 3), min_size=1, max_size=3, unique=True)
event = st.tuples(st.sampled_from(["a", "b", "c", "zebra", None]), numbers)
message = st.tuples(
    st.lists(event, min_size=1, max_size=6),
    st.sampled_from(["plain", "plain", "plain", "arrow", "stored", "replayed", "other"]),
)


def deliver(events: list[tuple[str | None, list[int]]], kind: str, first: int) -> Deliver:
    rows = [{"id": key, "x": first + i} for i, (key, _) in enumerate(events)]
    event_type = OTHER if kind == "other" else SHIP
    if event_type is OTHER:
        rows = [{"id": row["id"]} for row in rows]
    batch = EventBatch.from_pylist(event_type, rows, publisher="p", first_sequence=first)
    if kind == "arrow":
        batch = EventBatch.from_arrow(SHIP, batch.record_batch, publisher="p", first_sequence=first)
    offsets = np.cumsum([0, *(len(ids) for _, ids in events)])
    ids = np.array([each for _, ids in events for each in ids])
    return Deliver(batch, offsets, ids, 1, kind == "replayed", 7 if kind == "stored" else -1)


def content(queue: EventQueue) -> list[tuple[int, tuple[int, ...]]]:
    """Sequence numbers and subscriptions of the waiting events."""
    found = []
    for each in queue.messages():
        assert isinstance(each, Deliver)
        for i, sequence in enumerate(each.batch.sequences().tolist()):
            found.append((sequence, tuple(each.ids[each.offsets[i] : each.offsets[i + 1]].tolist())))
    return found


@given(st.lists(message, max_size=8), st.booleans())
def test_the_last_event_of_each_key_stays(messages: list[tuple[list, str]], held: bool) -> None:
    queue, first = EventQueue(), 1
    expected: list[tuple[int, tuple[int, ...]]] = []
    last: dict[tuple[str, int], int] = {}
    for events, kind in messages:
        for i, (key, ids) in enumerate(events):
            if kind in ("plain", "arrow") and key is not None:
                last.update({(key, each): first + i for each in ids})
        first += len(events)
    queue.set_held("Ship", held)
    first, total, lost = 1, 0, 0
    for events, kind in messages:
        queue.append(deliver(events, kind, first))
        for i, (key, ids) in enumerate(events):
            total += 1
            fixed = kind not in ("plain", "arrow") or key is None
            if fixed or any(last[key, each] == first + i for each in ids):
                expected.append((first + i, tuple(ids)))
        first += len(events)
    lost = sum(count for _, _, count in queue.conflate(KEYS.get))
    assert sorted(content(queue)) == expected
    assert queue.count == total - lost == len(expected)
    aside = sum(entry.held for each in queue.aside.values() for entry in each)
    assert queue.bytes == sum(entry.held for entry in queue.ready) + aside
    assert queue.held_bytes() == aside
    assert queue.conflate(KEYS.get) == []


def test_keys_of_another_kind_are_other_keys() -> None:
    """The type is dropped and declared again while its events wait."""
    queue = EventQueue()
    for first, kind, keys in ((0, "int64", [7, 7]), (2, "string", ["7", "x"]), (4, "int64", [8, 7])):
        ship = EventType("Ship", {"id": kind}, key="id")
        rows = [{"id": key} for key in keys]
        batch = EventBatch.from_pylist(ship, rows, publisher="p", first_sequence=first)
        queue.append(Deliver(batch, np.array([0, 1, 2]), np.array([1, 1]), 1))
    assert queue.conflate(KEYS.get) == [("Ship", 0, 2)]
    assert content(queue) == [(sequence, (1,)) for sequence in (2, 3, 4, 5)]
