"""The results of operators stay with their events when batches are cut or joined."""

import numpy as np
import pyarrow as pa
import pytest

from covey.matcher import EventBatch, EventType
from covey.matcher.events.results import Answers, Results

COUNT = EventType("Count", {"n": "int64"})
KEY, OTHER = 1, 2


def batch(count: int, *known: int, packed: bool = True) -> EventBatch:
    """Events n = 0, 1, ...; those at `known` have answers: whether n is even, and all below n."""
    events = EventBatch.from_pylist(COUNT, [{"n": n} for n in range(count)])
    if not packed:
        events = EventBatch.from_arrow(COUNT, events.record_batch)
    if known:
        rows = np.array(known, np.int64)
        solutions = pa.array([list(range(n)) for n in known], pa.list_(pa.int64()))
        events.shared_results().add(KEY, Answers(rows, rows % 2 == 0))
        events.shared_results().add(OTHER, Answers(rows, rows > 0, solutions))
    return events


def known(events: EventBatch) -> list[tuple[int, int, bool, list[int]]]:
    """(row, n, whether it is even, all below) of the rows with answers."""
    if events.results is None:
        return []
    even, below = events.results.get(KEY), events.results.get(OTHER)
    assert even is not None
    assert below.solutions is not None
    assert even.rows.tolist() == below.rows.tolist()
    n = events.values("n")
    return [
        (row, n[row], truth, solutions)
        for row, truth, solutions in zip(
            even.rows.tolist(), even.truths.tolist(), below.solutions.to_pylist(), strict=True
        )
    ]


@pytest.mark.parametrize("packed", [True, False])
def test_parts_have_the_results_of_their_events(packed: bool) -> None:
    whole = batch(8, 1, 2, 5, packed=packed)
    assert known(whole.slice(2, 4)) == [(0, 2, True, [0, 1]), (3, 5, False, [0, 1, 2, 3, 4])]
    assert known(whole.take([5, 0, 2, 5])) == [
        (0, 5, False, [0, 1, 2, 3, 4]),
        (2, 2, True, [0, 1]),
        (3, 5, False, [0, 1, 2, 3, 4]),
    ]
    assert known(whole.filter(np.arange(8) == 1)) == [(0, 1, False, [0])]
    assert whole.slice(6).results is None
    assert known(EventBatch.concat([whole.slice(2), batch(2), whole])) == [
        (0, 2, True, [0, 1]),
        (3, 5, False, [0, 1, 2, 3, 4]),
        (9, 1, False, [0]),
        (10, 2, True, [0, 1]),
        (13, 5, False, [0, 1, 2, 3, 4]),
    ]


def test_views_of_the_same_events_share_what_is_learned() -> None:
    whole = batch(3)
    assert whole.results is None
    assert EventBatch.concat([whole, batch(2)]).results is None
    results = whole.shared_results()
    wider = COUNT.union(EventType("Count", {"m": "string"}))
    gaps = EventBatch(COUNT, whole.events, sequence_offsets=np.array([0, 4, 5], np.uint32), results=results)
    views = [
        whole.with_schema(wider),
        whole.stamped(publisher="p"),
        gaps.consecutive(),
        whole.take([0, 1, 2]),
    ]
    assert all(view.results is results for view in views)


def test_answers_with_solutions_of_another_type_are_left_out() -> None:
    """A neighbour may send such; dropped answers are evaluated again."""
    of_numbers, without = batch(2, 0, 1), batch(2, 1)
    words = Answers(np.array([0]), np.array([True]), pa.array([["a"]], pa.list_(pa.string())))
    of_words = batch(2).with_results(Results({OTHER: words}))
    without.shared_results().add(OTHER, Answers(np.array([0]), np.array([True])))
    joined = EventBatch.concat([of_numbers, of_words, without, of_numbers]).results
    answers = joined.get(OTHER)
    assert answers.rows.tolist() == [0, 1, 5, 6, 7]
    assert answers.solutions.to_pylist() == [[], [0], [0], [], [0]]
    assert not joined.add(OTHER, words)
    assert joined.get(OTHER) is answers


def test_a_part_takes_the_results_that_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = batch(8, 1, 2, 5)
    assert whole.results is not None
    taken = []
    at = Answers.at
    monkeypatch.setattr(Answers, "at", lambda *arguments: taken.append(KEY) or at(*arguments))
    rows = np.array([5, 0, 2])
    part = whole.results.part(rows)
    assert not taken
    assert part.get(3) is None
    parts_of_part = part.copy().take(np.array([2, 0]))
    assert parts_of_part is not None
    assert not taken
    assert [answers.rows.tolist() for _, answers in parts_of_part.items()] == [[0, 1], [0, 1]]
    copy = part.copy()
    assert known(EventBatch.from_pylist(COUNT, [{"n": 5}, {"n": 0}, {"n": 2}]).with_results(part)) == known(
        whole.take(rows)
    )
    assert part.add(KEY, Answers(np.array([1]), np.array([True])))
    assert [answers.rows.tolist() for _, answers in copy.items()] == [[0, 2], [0, 2]]
    assert (len(copy), copy.nbytes) == (2, whole.take(rows).shared_results().nbytes)
    assert sorted(dict(part.items())[KEY].rows.tolist()) == [0, 1, 2]
    assert len(whole.results) == 2
    empty = whole.results.part(np.array([0]))
    assert (len(empty), empty.nbytes, empty.take(np.array([0]))) == (0, 0, None)
