"""The reference engines' own behaviour, beyond the common suite."""

from itertools import pairwise

import numpy as np
import pytest

from covey.matcher import EventBatch, EventType, create_engine, parse
from covey.matcher.encoding.keys import Keys
from covey.matcher.engine import Engine, engine_names
from covey.matcher.engines.reference import scan_kernels

RIVALS = [name for name in engine_names() if name not in ("naive", "cluster")]
QUOTE = EventType("Quote", {"firm": "string", "price": "float64", "volume": "int64"})


def prices(values: list[float | None], firm: str = "A") -> EventBatch:
    return EventBatch.from_pylist(QUOTE, [{"firm": firm, "price": v, "volume": 1} for v in values])


def counts(engine: Engine, batch: EventBatch) -> list[int]:
    return np.diff(engine.match(batch).ordered()[0]).tolist()


@pytest.mark.parametrize("name", RIVALS)
def test_a_row_of_more_tests_than_a_byte_counts(name: str) -> None:
    many = EventType("Many", {f"a{i}": "int64" for i in range(300)})
    engine = create_engine(name, many)
    engine.add(1, parse(" and ".join(f"a{i} >= {i}" for i in range(300)), many))
    engine.add(2, parse("a0 >= 0", many))
    event = {f"a{i}": i for i in range(300)}
    batch = EventBatch.from_pylist(many, [event, event | {"a299": 0}, event | {"a0": -1}])
    offsets, ids = engine.match(batch).ordered()
    assert [ids[a:b].tolist() for a, b in pairwise(offsets.tolist())] == [[1, 2], [2], []]


@pytest.mark.parametrize("matched", [True, False])
@pytest.mark.parametrize("name", RIVALS)
def test_memory_is_bounded_under_updates(name: str, matched: bool) -> None:
    engine = create_engine(name, QUOTE)
    ids, rng, sizes = np.arange(2500), np.random.default_rng(1), []
    engine.add_many(ids, parse("price < $limit and volume >= 0", QUOTE), {"limit": rng.random(2500)})
    for _ in range(40):
        limits = rng.random(2500)
        engine.update_many(ids, {"limit": limits})
        assert not matched or counts(engine, prices([0.5])) == [int((limits > 0.5).sum())]
        sizes.append(sum(engine.memory_bytes().values()))
    assert max(sizes[15:]) <= (1.5 if matched else 2) * max(sizes[5:15])
    assert counts(engine, prices([0.5])) == [int((limits > 0.5).sum())]


@pytest.mark.parametrize("name", RIVALS)
def test_render_shows_the_structure(name: str) -> None:
    engine = create_engine(name, QUOTE)
    engine.add_many(
        np.arange(600), parse("firm == $f and price < $p", QUOTE), {"f": "A", "p": np.arange(600.0)}
    )
    counts(engine, prices([3.0]))
    text = engine.render()
    assert text.startswith(f"{name}: 600 subscriptions to Quote")
    assert len(text.splitlines()) > 1
    assert all(size >= 0 for size in engine.memory_bytes().values())


class TestSearchTreeOptions:
    """The papers' optimisations change what is visited, never the result."""

    def engines(self) -> list[Engine]:
        return [
            create_engine("search_tree", QUOTE, factoring=f, skip_trivial_tests=s, delayed_branching=d)
            for f in (None, 0, 1, 3)
            for s in (True, False)
            for d in (True, False)
        ]

    def test_they_agree(self) -> None:
        texts = ["firm == $f", "firm == $f and price == $p", "price == $p and volume == $v", "volume == $v"]
        rows = [{"firm": f"F{i % 4}", "price": float(i % 3), "volume": i % 5} for i in range(60)]
        batch = EventBatch.from_pylist(QUOTE, [*rows, {"firm": "F1"}, {"price": 1.0}, {}])
        answers = []
        for engine in self.engines():
            draw = np.random.default_rng(5)
            for i, text in enumerate(texts):
                values = {
                    "f": np.array([f"F{n}" for n in draw.integers(0, 4, 50)], dtype=object),
                    "p": draw.integers(0, 3, 50).astype(float),
                    "v": draw.integers(0, 5, 50),
                }
                chosen = {name: column for name, column in values.items() if f"${name}" in text}
                engine.add_many(np.arange(50) + 100 * i, parse(text, QUOTE), chosen)
            engine.match(batch)
            engine.remove_many(np.arange(0, 350, 100))
            engine.update_many(np.arange(101, 130), {"f": "F0"})
            answers.append([part.tolist() for part in engine.match(batch).ordered()])
        assert all(answer == answers[0] for answer in answers)
        assert len(answers[0][1]) > 0

    def test_skipping_trivial_tests_leaves_them_out(self) -> None:
        texts = []
        for skip in (True, False):
            engine = create_engine("search_tree", QUOTE, factoring=0, skip_trivial_tests=skip)
            engine.add_many(np.arange(10), parse("volume == $v", QUOTE), {"v": np.arange(10)})
            counts(engine, prices([1.0]))
            texts.append(engine.render())
        assert "1 trees, 1 tests, 10 leaves" in texts[0]
        assert "1 trees, 21 tests, 10 leaves" in texts[1]

    def test_factoring_takes_attributes_that_almost_all_test(self) -> None:
        engine = create_engine("search_tree", QUOTE)
        engine.add_many(np.arange(100), parse("firm == $f and price < 3", QUOTE), {"f": "A"})
        engine.add(100, parse("volume == 2", QUOTE))
        counts(engine, prices([1.0]))
        assert "factored: firm" in engine.render()

    def test_a_wrong_number_of_factors(self) -> None:
        with pytest.raises(ValueError, match="factoring 9: expected 0 to 4"):
            create_engine("search_tree", QUOTE, factoring=9)


@pytest.mark.parametrize("name", engine_names())
def test_columns_whose_rows_are_gone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def scan(scan: scan_kernels.Scan, rows: object, keys: Keys, *arguments: object) -> int:
        assert keys.shape[1] >= len(scan.coding)
        return int(scan_events(scan, rows, keys, *arguments))

    scan_events = scan_kernels.scan_events
    monkeypatch.setattr(scan_kernels, "scan_events", scan)
    event_type = EventType("Line", {"text": "string", "k": "int64"})
    engine, event = (
        create_engine(name, event_type),
        EventBatch.from_pylist(event_type, [{"text": "abc", "k": 1}]),
    )
    filters = [parse(f"text contains '{letter}' and k > 0", event_type) for letter in "abcd"]
    engine.add_all(np.arange(4_000), filters, numbers=np.arange(4_000) % 4)
    assert engine.match(event).counts.tolist() == [3_000]
    engine.remove_many(np.arange(1, 4_000))
    engine.render()
    assert engine.match(event).ordered()[1].tolist() == [0]
    engine.remove(0)
    engine.render()
    assert engine.match(event).counts.tolist() == [0]


@pytest.mark.parametrize("name", engine_names())
def test_values_far_from_the_constants_of_a_column(name: str) -> None:
    event_type = EventType("Point", {"k": "int64", "n": "int64"})
    values = [0, 2**63 - 2, 2**63 - 6, -(2**63) + 1, 255, 256]
    event = EventBatch.from_pylist(event_type, [{"k": value, "n": value} for value in values])
    engine = create_engine(name, event_type)
    engine.add_many(np.arange(200), parse("not exists k", event_type))
    engine.add_many(np.arange(200, 400), parse("n == -5", event_type))
    assert engine.match(event).counts.tolist() == [0] * len(values)
