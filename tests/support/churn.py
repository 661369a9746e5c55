"""Random churn of hundreds of thousands of subscriptions, against an oracle of NumPy columns.

Rounds add, remove (half of a structure, or of all, between two events) and update subscriptions, in bulk and
one by one; filters that most events match come late. After each round a batch of events is matched, and ids,
counts and interfaces are compared. The first 50 seeds with 400,000 subscriptions and the bounds of kernels
checked, which takes minutes:

    COVEY_DEBUG_BOUNDS=1 python tests/support/churn.py 0 50 400000
"""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.matcher import EventBatch, EventType, Filter, create_engine, parse

Columns = dict[str, npt.NDArray[Any]]
Event = Mapping[str, Any]
Mask = npt.NDArray[np.bool_]
Random = np.random.Generator

TICK = EventType(
    "Tick",
    {"key": "int64", "symbol": "string", "price": "float64", "size": "int64", "address": "int64"}
    | {"x": "float64", "y": "float64", "z": "float64"},
)
ROWS, ROUNDS = 400_000, 15
SYMBOLS = np.array([f"{first}{second}" for first in "ABCDEFGHIJ" for second in range(20)])
SENTINELS = np.array([2**62, -(2**62), 2**31, -(2**31) - 1, 2**63 - 100, -(2**63) + 100])


@dataclass(frozen=True)
class Structure:
    """A filter, its random values for some subscriptions, and which of them an event matches."""

    text: str
    draw: Callable[[Random, int], Columns]
    matches: Callable[[Columns, Event], Mask]
    share: int = 1
    wide: bool = False


def _keys(r: Random, n: int) -> Columns:
    return {"k": r.integers(0, ROWS // 40, n)}


def _symbols(r: Random, n: int) -> npt.NDArray[Any]:
    return SYMBOLS[np.minimum(r.geometric(0.02, n), len(SYMBOLS)) - 1]


def _range(r: Random, n: int, least: float, most: float, width: float) -> tuple[Any, Any]:
    low = r.random(n) * (most - least) + least
    wide = np.where(r.random(n) < 0.002, most - least, width)
    return low, low + r.random(n) * wide


def _box(r: Random, n: int) -> Columns:
    sides: Columns = {}
    for low, high in (("a", "b"), ("c", "d"), ("e", "f")):
        sides[low], sides[high] = _range(r, n, 0, 100, 20)
    return sides


def _addresses(r: Random, n: int) -> Columns:
    low = r.integers(0, 2**32, n)
    return {"l": low, "h": low + np.where(r.random(n) < 0.7, 0, 1 << r.integers(0, 24, n))}


def _sizes(r: Random, n: int) -> npt.NDArray[np.int64]:
    sizes = r.integers(-1000, 1_000_000, n)
    return np.where(r.random(n) < 0.02, r.choice(SENTINELS, n), sizes)


def _prices(r: Random, n: int) -> npt.NDArray[np.float64]:
    prices: npt.NDArray[np.float64] = np.where(r.random(n) < 0.3, r.integers(0, 1000, n), r.random(n) * 1000)
    return prices


def _band(r: Random, n: int) -> Columns:
    low, high = _range(r, n, 0, 1000, 5)
    return {"s": _symbols(r, n), "l": low, "h": high}


def _is(v: Columns, e: Event, name: str, attribute: str) -> Mask:
    same: Mask = v[name] == e[attribute]
    return same


def _within(v: Columns, e: Event, low: str, high: str, attribute: str) -> Mask:
    within: Mask = (v[low] <= e[attribute]) & (e[attribute] <= v[high])
    return within


def _all(v: Columns, holds: bool) -> Mask:
    return np.full(len(v["o"]), holds)


STRUCTURES = (
    Structure("key == $k", _keys, lambda v, e: _is(v, e, "k", "key"), 3),
    Structure(
        "symbol == $s and price <= $p",
        lambda r, n: {"s": _symbols(r, n), "p": _prices(r, n)},
        lambda v, e: _is(v, e, "s", "symbol") & (e["price"] <= v["p"]),
        3,
    ),
    Structure(
        "symbol == $s and price between $l and $h",
        _band,
        lambda v, e: _is(v, e, "s", "symbol") & _within(v, e, "l", "h", "price"),
        2,
    ),
    Structure(
        "address between $l and $h", _addresses, lambda v, e: _within(v, e, "l", "h", "address"), 2
    ),
    Structure(
        "symbol == $s and (price < $p or size > $n)",
        lambda r, n: {"s": _symbols(r, n), "p": _prices(r, n), "n": _sizes(r, n)},
        lambda v, e: _is(v, e, "s", "symbol") & ((e["price"] < v["p"]) | (e["size"] > v["n"])),
    ),
    Structure(
        "key == $k and size >= $n and size < $m",
        lambda r, n: {"k": r.integers(0, 50, n), "n": _sizes(r, n), "m": _sizes(r, n)},
        lambda v, e: _is(v, e, "k", "key") & (v["n"] <= e["size"]) & (e["size"] < v["m"]),
    ),
    Structure(
        "x between $a and $b and y between $c and $d and z between $e and $f",
        _box,
        lambda v, e: (
            _within(v, e, "a", "b", "x") & _within(v, e, "c", "d", "y") & _within(v, e, "e", "f", "z")
        ),
        3,
    ),
    Structure(
        "not exists size and price < $p and price > $p - 1",
        lambda r, n: {"p": _prices(r, n)},
        lambda v, e: (
            np.isnan(e["size"]) & (e["price"] < v["p"]) & (e["price"] > v["p"] - 1)
        ),
    ),
    Structure(
        "symbol < $s and key == $k",
        lambda r, n: {"s": _symbols(r, n), "k": r.integers(0, 2000, n)},
        lambda v, e: _is(v, e, "k", "key") & (e["symbol"] < v["s"]),
    ),
    # that most events match: few, and late
    Structure("exists price", lambda r, n: {}, lambda v, e: _all(v, not np.isnan(e["price"])), wide=True),
    Structure(
        "price between $l and 999",
        lambda r, n: {"l": r.random(n) * 20},
        lambda v, e: (v["l"] <= e["price"]) & (e["price"] <= 999),
        wide=True,
    ),
    Structure(
        "address between 0 and $h",
        lambda r, n: {"h": r.integers(2**31, 2**33, n)},
        lambda v, e: (e["address"] >= 0) & (e["address"] <= v["h"]),
        wide=True,
    ),
    Structure(
        "size >= $n",
        lambda r, n: {"n": r.integers(-(2**40), 100, n)},
        lambda v, e: e["size"] >= v["n"],
        wide=True,
    ),
    Structure("symbol prefix 'A' and x > $a", lambda r, n: {"a": r.random(n) * 50},
              lambda v, e: np.full(len(v["o"]), e["symbol"][:1] == "A") & (e["x"] > v["a"]), wide=True),
)  # fmt: skip


class Subscriptions:
    """The live subscriptions of one structure, in columns; `o` are their interfaces."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self.filter: Filter = parse(structure.text, TICK)
        self.ids = np.zeros(0, dtype=np.int64)
        self.values: Columns = {"o": np.zeros(0, dtype=np.int64)}

    def matching(self, event: Event) -> Mask:
        return self.structure.matches(self.values, event) if len(self.ids) else np.zeros(0, dtype=np.bool_)


class Churn:
    """An engine and its oracle, under the changes that a seed draws; about `rows` subscriptions."""

    def __init__(self, seed: int, rows: int = ROWS) -> None:
        self.random = np.random.default_rng(seed)
        self.engine = create_engine("cluster", TICK)
        self.rows = rows
        self.parts = [Subscriptions(structure) for structure in STRUCTURES]
        self.next_id = 0

    def __len__(self) -> int:
        return sum(len(part.ids) for part in self.parts)

    def add(self, part: Subscriptions, count: int) -> None:
        ids = np.arange(self.next_id, self.next_id + count)
        self.next_id += count
        self.random.shuffle(ids)
        values = part.structure.draw(self.random, count)
        interfaces = self.random.integers(0, 100, count)
        self.engine.add_many(ids, part.filter, values, interface=interfaces)
        part.ids = np.concatenate([part.ids, ids])
        for name, column in {**values, "o": interfaces}.items():
            part.values[name] = np.concatenate([part.values[name], column]) if name in part.values else column

    def remove(self, part: Subscriptions, count: int, *, together: bool) -> None:
        gone = self.random.permutation(len(part.ids))[:count]
        if together:
            self.engine.remove_many(part.ids[gone])
        else:
            for subscription_id in part.ids[gone].tolist():
                self.engine.remove(subscription_id)
        part.ids = np.delete(part.ids, gone)
        part.values = {name: np.delete(column, gone) for name, column in part.values.items()}

    def update(self, part: Subscriptions, count: int, *, together: bool) -> None:
        chosen = self.random.permutation(len(part.ids))[:count]
        values = part.structure.draw(self.random, len(chosen))
        if not values or not len(chosen):
            return
        if together:
            self.engine.update_many(part.ids[chosen], values)
        else:
            for position, subscription_id in enumerate(part.ids[chosen].tolist()):
                self.engine.update(subscription_id, {n: v[position].item() for n, v in values.items()})
        for name, column in values.items():
            part.values[name][chosen] = column

    def load(self) -> None:
        """Add all but the wide ones, in a few calls each."""
        narrow = [part for part in self.parts if not part.structure.wide]
        shares = sum(part.structure.share for part in narrow)
        for part in narrow:
            count = self.rows * part.structure.share // shares
            for piece in np.diff([0, *sorted(self.random.integers(0, count, 2)), count]).tolist():
                self.add(part, piece)
            if self.random.random() < 0.3:
                self.check(4)

    def round(self) -> None:
        r = self.random
        if r.random() < 0.25:  # half of all leave between two events
            for part in self.parts:
                self.remove(part, len(part.ids) // 2, together=True)
        for _ in range(r.integers(1, 5)):
            part = self.parts[r.integers(0, len(self.parts))]
            together, count = r.random() < 0.7, len(part.ids)
            most = count if together else min(count, 500)
            match r.integers(0, 4):
                case 0:
                    self.remove(part, most // 2, together=together)
                case 1:
                    self.update(part, r.integers(0, most + 1), together=together)
                case 2:
                    self.add(part, 20 if part.structure.wide else r.integers(1, self.rows // 10))
                case 3:
                    self.update(part, r.integers(0, most + 1), together=together)
                    self.remove(part, r.integers(0, most // 2 + 1), together=together)
        if len(self) < self.rows // 3:
            self.load()
        self.check(int(r.choice([1, 8, 24])))

    def check(self, count: int) -> None:
        """Match a batch, and compare."""
        events = [self.event() for _ in range(count)]
        batch = EventBatch.from_pylist(TICK, [{n: v for n, v in e.items() if v == v} for e in events])
        matches = self.engine.match(batch)
        offsets, ids = matches.ordered()
        counts, bits = matches.counts, matches.interfaces()
        for number, event in enumerate(events):
            masks = [part.matching(event) for part in self.parts]
            expected = np.concatenate([p.ids[m] for p, m in zip(self.parts, masks, strict=True)])
            answer = ids[offsets[number] : offsets[number + 1]]
            assert np.array_equal(answer, np.sort(expected)), (event, np.setxor1d(answer, expected)[:5])
            assert counts[number] == len(expected), event
            of = np.concatenate([p.values["o"][m] for p, m in zip(self.parts, masks, strict=True)])
            reached = np.unpackbits(bits[number].view(np.uint8), bitorder="little")
            assert np.array_equal(np.flatnonzero(reached), np.unique(of)), event
        assert len(self.engine) == len(self)

    def event(self) -> dict[str, Any]:
        """An event, one of its values missing (NaN) now and then."""
        r = self.random
        some = self.parts[3].values.get("l", np.zeros(0, dtype=np.int64))
        near = int(r.choice(some)) if len(some) and r.random() < 0.5 else int(r.integers(0, 2**32))
        event: dict[str, Any] = {
            "key": int(r.integers(0, ROWS // 40 if r.random() < 0.5 else 60)),
            "symbol": str(_symbols(r, 1)[0]),
            "price": float(_prices(r, 1)[0]),
            "size": int(_sizes(r, 1)[0]),
            "address": near,
            "x": float(r.random() * 100),
            "y": float(r.random() * 100),
            "z": float(r.random() * 100),
        }
        if r.random() < 0.2:
            event[str(r.choice(["price", "size", "x"]))] = float("nan")
        return event


def run(seed: int, rows: int = ROWS, rounds: int = ROUNDS) -> int:
    """All rounds of a seed; returns the number of subscriptions at the end."""
    churn = Churn(seed, rows)
    churn.load()
    churn.check(8)
    for _ in range(rounds):
        churn.round()
    return len(churn)


if __name__ == "__main__":
    # Compiles kernels as they are used, so none of other engines.
    first, end, rows = map(int, sys.argv[1:])
    for number in range(first, end):
        began = time.perf_counter()
        count = run(number, rows)
        print(f"seed {number}: {count:,} subscriptions, {time.perf_counter() - began:.0f} s", flush=True)
