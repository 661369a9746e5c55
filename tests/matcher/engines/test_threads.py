"""Calls of several threads are serialised, on every engine."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import numpy as np
import pytest

from covey.matcher import EventBatch, EventType, create_engine, parse
from covey.matcher.engine import engine_names
from covey.matcher.engines.rows.engine import RowEngine

QUOTE = EventType("Quote", {"key": "int64", "price": "float64"})
PRICES = np.arange(40) * 2.5
BATCH = EventBatch.from_pylist(QUOTE, [{"key": n % 7, "price": float(p)} for n, p in enumerate(PRICES)])
ROUNDS = 60


def test_a_second_call_waits_until_the_first_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = create_engine("cluster", QUOTE)
    assert isinstance(engine, RowEngine)
    engine.add(1, parse("price < 5", QUOTE))
    inside, second = [], Event()
    original = engine.columns.encode

    def encode(batch: EventBatch) -> object:
        inside.append(1)
        second.set() if len(inside) > 1 else second.wait(0.2)
        keys = original(batch)
        inside.pop()
        return keys

    monkeypatch.setattr(engine.columns, "encode", encode)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(engine.match, BATCH), pool.submit(engine.match, BATCH)]
        assert calls[0].result().ids()[1].tolist() == [1, 1]
        assert calls[1].result().interfaces().sum() == 2
    assert not second.is_set()


@pytest.mark.parametrize("name", [name for name in engine_names() if name != "naive"])
def test_threads_match_and_change_one_engine(name: str) -> None:
    engine = create_engine(name, QUOTE)
    count = 2_000
    ids = np.arange(count)
    engine.add_many(ids, parse("key == $k and price > $p", QUOTE), {"k": ids % 7, "p": ids % 101 * 1.0})
    expected = [ids[(ids % 7 == n % 7) & (ids % 101 < p)] for n, p in enumerate(PRICES)]
    start = Barrier(4)

    def match() -> None:
        start.wait()
        for _ in range(ROUNDS):
            with engine.guard:
                offsets, found = engine.match(BATCH).ordered()
            for n, mine in enumerate(expected):
                answer = found[offsets[n] : offsets[n + 1]]
                assert np.array_equal(answer[answer < count], mine)
            with engine.guard:
                bits = engine.match(BATCH).interfaces()
            assert bits[:, 0].tolist() == [int(len(mine) > 0) for mine in expected]

    def change() -> None:
        start.wait()
        for n in range(ROUNDS):
            others = count + np.arange(n * 50, n * 50 + 50)
            values = {"k": others % 7, "p": others % 101 * 1.0}
            engine.add_many(others, parse("key == $k and price > 50 + $p", QUOTE), values)
            engine.update_many(others, {"p": np.full(50, 60.0)})
            assert int(others[0]) in engine
            if n % 2:
                engine.remove_many(others)

    with ThreadPoolExecutor(4) as pool:
        for call in [pool.submit(match), pool.submit(match), pool.submit(match), pool.submit(change)]:
            call.result()
    assert len(engine) == count + ROUNDS // 2 * 50
