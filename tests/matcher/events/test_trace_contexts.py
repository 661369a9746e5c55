"""Trace contexts of batches that are cut, joined or copied."""

import numpy as np

from covey.matcher import EventBatch, EventType
from covey.matcher.events.trace_contexts import TraceContext, present, traceparents

TICK = EventType("Tick", {"number": "int64"})


def batch(count: int, *contexts: tuple[int, int, str], first: int = 0) -> EventBatch:
    rows = [{"number": number} for number in range(count)]
    made = EventBatch.from_pylist(TICK, rows, publisher="p", first_sequence=first)
    return made.with_contexts(tuple(TraceContext(*context) for context in contexts))


def traced(events: EventBatch) -> dict[int, str]:
    """The traceparents by sequence number."""
    sequences = events.sequences()
    pairs = zip(sequences.tolist(), traceparents(events.contexts, sequences), strict=True)
    return {sequence: text for sequence, text in pairs if text is not None}


def test_parts_have_the_contexts_of_their_events() -> None:
    rng = np.random.default_rng(3)
    for count in (5, 40):  # packed columns, and Arrow's
        whole = batch(count, (0, 1, "a"), (3, 4, "b"), (2, count - 1, "c"))
        expected = {0: "a", 1: "a", 2: "c", 3: "b", 4: "b"} | dict.fromkeys(range(5, count), "c")
        assert traced(whole) == expected
        for _ in range(50):
            mask = rng.random(count) < 0.4
            part = whole.filter(mask)
            assert traced(part) == {row: expected[row] for row in np.flatnonzero(mask).tolist()}
            left = {c.traceparent for c in present(part.contexts, part.sequences())}
            assert left >= set(traced(part).values())
            names = {"a": mask[:2], "b": mask[3:5], "c": mask[2:]}
            assert left == {name for name, rows in names.items() if rows.any()}
        assert traced(whole.slice(3, 2)) == {3: "b", 4: "b"}
        assert traced(whole.with_schema(EventType("Tick", {"number": "int64", "more": "bool"}))) == expected


def test_a_number_given_later_moves_the_contexts() -> None:
    part = batch(10, (2, 3, "a"), (8, 9, "b")).slice(3)
    assert traced(part.stamped(publisher="q", first_sequence=100)) == {100: "a", 105: "b", 106: "b"}


def test_joined_batches_have_the_contexts_of_both() -> None:
    joined = EventBatch.concat([batch(3, (1, 1, "a")), batch(3, first=3), batch(3, (6, 8, "b"), first=6)])
    assert traced(joined) == {1: "a", 6: "b", 7: "b", 8: "b"}
    parts = EventBatch.concat([joined.slice(0, 2), joined.slice(2)])
    assert parts.contexts == joined.contexts
