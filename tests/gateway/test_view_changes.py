"""Conflated changes of a view, against changes one by one."""

import random

import numpy as np
import pyarrow as pa
import pytest

from covey.gateway import view_feed
from covey.gateway.view_feed import PendingChanges
from covey.overlay.core.client.view_reader import CHANGE, ENTER, LEAVE

Inside = dict[int, int]


def play(inside: Inside, ids: list[int], versions: list[int], kinds: list[int]) -> None:
    """Apply changes as a browser does; each must follow from those before."""
    for key, version, kind in zip(ids, versions, kinds, strict=True):
        assert (key in inside) is (kind != ENTER), (key, kind)
        if kind == LEAVE:
            del inside[key]
        else:
            assert version > inside.get(key, -1)
            inside[key] = version


def drawn(random: random.Random, inside: Inside, version: int, count: int) -> list[tuple[int, int, int]]:
    changes = []
    for at in range(count):
        key = random.randrange(20)
        kind = random.choice((CHANGE, LEAVE)) if key in inside else ENTER
        play(inside, [key], [version + at], [kind])
        changes.append((key, version + at, kind))
    return changes


@pytest.mark.parametrize("seed", range(20))
def test_a_browser_that_is_behind_gets_to_the_same_state(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_feed, "_FEW_ROWS", 8)
    choices = random.Random(seed)
    pending, truth, browser = PendingChanges("id"), Inside(), Inside()
    version = told = 0
    for _ in range(60):
        changes = drawn(choices, truth, version, choices.randrange(1, 12))
        version += len(changes)
        ids, versions, kinds = map(list, zip(*changes, strict=True))
        pending.put(pa.RecordBatch.from_pydict({"id": ids, "version": versions}), np.array(kinds, np.int8))
        assert len(pending) <= 2 * 40 + 8 + len(changes)  # of 20 keys two each, twice before it conflates
        if choices.random() < 0.4:
            came, expected, before = pending.came, dict(truth), len(pending)
            while not pending.has_left(came):
                taken = pending.take(choices.randrange(1, 6))
                assert taken is not None
                events, codes = taken
                told += len(codes)
                columns = events.to_pydict()
                play(browser, columns["id"], columns["version"], codes.tolist())
            assert browser == expected
            assert before >= len(pending) == 0
    assert told + pending.lost + len(pending) == version
    assert pending.lost > 0


def test_what_waited_leaves_before_what_has_come_since(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_feed, "_FEW_ROWS", 0)
    pending = PendingChanges("id")
    rows = pa.RecordBatch.from_pydict({"id": [1, 2, 3, 4], "version": [0, 0, 0, 0]})
    pending.put(rows, np.full(4, ENTER, np.int8))
    came = pending.came
    rows = pa.RecordBatch.from_pydict({"id": [1, 5, 6, 7, 8], "version": [1, 1, 1, 1, 1]})
    pending.put(rows, np.array([CHANGE, *[ENTER] * 4], np.int8))  # more than twice as many as before
    assert (len(pending), pending.lost) == (8, 1)
    assert not pending.has_left(came)
    first = pending.take(4)
    assert first[0].to_pydict() == {"id": [1, 2, 3, 4], "version": [1, 0, 0, 0]}
    assert pending.has_left(came)
    assert len(pending) == 4
