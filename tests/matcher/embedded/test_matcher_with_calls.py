"""Matchers whose filters call named operators: accounts, faults, upserts and snapshots."""

import logging
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from named_operators import registered

from covey.matcher import EventBatch, EventType, Kind, Matcher, SnapshotError, VariableError, parse
from covey.matcher.operators.named_operator import NamedOperator, Parameter

POINT = EventType("Point", {"n": "int64", "word": "string"})
OTHER = EventType("Other", {"n": "int64"})
with registered():
    NEAR = parse("near(n, $c, $r) and n > 0", POINT)
    JOINT = parse("tally(word, ?n) and ?n > $least", POINT)


@pytest.fixture(autouse=True)
def operators() -> Iterator[None]:
    with registered():
        yield


def batch(*numbers: int) -> EventBatch:
    return EventBatch.from_pylist(POINT, [{"n": n, "word": "a" * n} for n in numbers])


def matching(matcher: Matcher, *numbers: int) -> list[list[int]]:
    return [sorted(ids.tolist()) for ids in matcher.match(batch(*numbers)).per_event()]


def test_subscriptions_change_as_others_do(tmp_path: Path) -> None:
    matcher = Matcher(POINT)
    matcher.add_all(
        [1, 2, 3], [NEAR, JOINT], {"c": [5, None, 9], "r": 1, "least": [None, 7, None]}, numbers=[0, 1, 0]
    )
    assert matching(matcher, 4, 8) == [[1], [2, 3]]
    matcher.upsert(1, JOINT, {"least": 3})
    matcher.update_many([3], {"c": np.array([4])})
    assert matching(matcher, 4, 8) == [[1, 3], [1, 2]]
    with pytest.raises(VariableError):
        matcher.upsert_all([1, 4], [JOINT, NEAR], {"least": 1, "c": "x", "r": 1})
    assert matcher[1].values == {"least": 3}
    assert matching(matcher, 4, 8) == [[1, 3], [1, 2]]
    matcher.save(tmp_path / "snapshot")
    restored = Matcher.load(tmp_path / "snapshot", evaluation="sub_order")
    assert matching(restored, 4, 8) == [[1, 3], [1, 2]]
    assert {each.id: each for each in restored} == {each.id: each for each in matcher}


def test_a_snapshot_with_an_operator_that_is_missing_is_refused(tmp_path: Path) -> None:
    missing = NamedOperator(
        "missing", (Parameter("n", frozenset({Kind.INT64})),), lambda n: np.ones(len(n), bool)
    )
    with registered(missing):
        matcher = Matcher(POINT)
        matcher.add(1, parse("missing(n)", POINT))
        matcher.save(tmp_path / "snapshot")
    with pytest.raises(SnapshotError, match="missing"):
        Matcher.load(tmp_path / "snapshot")


def test_accounts_and_faults_are_over_all_event_types(caplog: pytest.LogCaptureFixture) -> None:
    def faulty(n: pa.Array) -> Any:
        raise ValueError("no disk")

    ticks = count(0, 1_000)
    with registered(NamedOperator("faulty", (Parameter("n", frozenset({Kind.INT64})),), faulty)):
        matcher = Matcher(clock=lambda: next(ticks))
        matcher.add(1, NEAR, {"c": 5, "r": 1})
        matcher.add(2, parse("near(n, 5, 1)", OTHER))
        matcher.add(3, parse("faulty(n)", OTHER))
        with caplog.at_level(logging.WARNING, "covey.matcher"):
            for _ in range(3):
                assert matching(matcher, 5, 50) == [[1], []]
                others = EventBatch.from_pylist(OTHER, [{"n": 5}])
                assert matcher.match(others)[0].tolist() == [2]
        accounts = matcher.operator_accounts()
    near = accounts["near"]
    assert (near.calls, near.events, near.true, near.took_ns) == (6, 9, 6, 6_000)
    assert (accounts["faulty"].failures, accounts["faulty"].undecided) == (3, 3)
    assert str(matcher.operator_faults()["faulty"]) == "operator faulty: raised ValueError: no disk"
    assert len(caplog.records) == 1
    assert matcher.operator_accounts()["near"] is not matcher.operator_accounts()["near"]


@pytest.mark.parametrize("evaluation", ["sub_order", "sequential"])
def test_event_types_may_be_matched_in_several_threads(evaluation: str) -> None:
    types = [EventType(name, {"x": "int64", "y": "int64"}) for name in ("A", "B")]
    matcher = Matcher(*types, evaluation=evaluation)
    draw = random.Random(1)
    expected: dict[str, list[list[int]]] = {}
    rows = [{"x": draw.randrange(50), "y": draw.randrange(50)} for _ in range(50)]
    for count_of_type, event_type in zip((60, 90), types, strict=True):
        filters = [
            parse(" and ".join(f"near(x, {draw.randrange(9) * 6}, 20)" for _ in range(3)) + " and "
                  f"near(y, {draw.randrange(9) * 6}, 15)", event_type)
            for _ in range(count_of_type)
        ]  # fmt: skip
        ids = range(len(matcher), len(matcher) + count_of_type)
        expected[event_type.name] = [
            [uid for uid, filter in zip(ids, filters, strict=True) if filter.matches(row)] for row in rows
        ]
        for uid, filter in zip(ids, filters, strict=True):
            matcher.add(uid, filter)

    def find(event_type: EventType) -> list[list[list[int]]]:
        batches = [EventBatch.from_pylist(event_type, rows) for _ in range(10)]
        return [[sorted(ids.tolist()) for ids in matcher.match(each).per_event()] for each in batches]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(2) as pool:
            for event_type, found in zip(types, pool.map(find, types), strict=True):
                assert all(each == expected[event_type.name] for each in found)
    finally:
        sys.setswitchinterval(interval)
