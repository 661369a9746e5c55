"""Workloads of values that move, after Jayaram et al. 2010: thresholds on prices (AT, section 5.5), and boxes
around vehicles (HTM, section 5.4). Unlike the loads of `sim/scenario/loads.py`, one engine has all symbols in
one event type, with skewed popularity and realistic prices, and all boxes without roads and operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher import EventBatch, EventType, parse
from covey.matcher.errors import InputError
from covey.sim.workload.workload import (
    Column,
    Indices,
    SubscriptionGroup,
    Workload,
    grouped,
    zipf_probabilities,
)

_OPERATORS = ("<=", ">=", "==")
_SHARES = (0.35, 0.33, 0.32)
_VOLUME_SHARE = 0.30
_VOLUME_MEAN = 1_000
_DEVIATION = 0.10


class Symbols(Workload):
    """200 symbols, with Zipf popularity for subscribers and publishers.

    35 % of the subscriptions test for a price `<=` a threshold, 33 % `>=`, 32 % `==`; 30 % also test the
    volume. Prices are in cents, normally distributed around the symbol's level with a standard deviation of
    10 % of it. Thresholds are drawn by their quantile: anywhere, or in the outer `tail` of the prices (a
    fraction), where with SYMBOLS-tail about 1 % of a symbol's subscriptions match.
    """

    def __init__(
        self, name: str = "SYMBOLS", *, symbols: int = 200, exponent: float = 1.0, tail: float | None = None
    ) -> None:
        self.name = name
        self.description = f"{symbols} symbols (Zipf), price thresholds " + (
            "anywhere" if tail is None else f"in the outer {tail:.0%} of the prices"
        )
        self.event_type = EventType("Trade", {"symbol": "string", "price": "float64", "volume": "int64"})
        self.symbols: npt.NDArray[np.object_] = np.array([f"S{i:03d}" for i in range(symbols)], dtype=object)
        self._popularity = np.cumsum(zipf_probabilities(symbols, exponent))
        self._levels = np.random.default_rng(symbols).lognormal(4.0, 0.8, symbols)
        self._tail = tail
        grid = np.linspace(0.0005, 0.9995, 4001)
        self._grid = grid
        self._quantiles = np.array([NormalDist().inv_cdf(q) for q in grid])

    def _symbols(self, count: int, rng: np.random.Generator) -> Indices:
        drawn: Indices = np.searchsorted(
            self._popularity, rng.random(count) * self._popularity[-1], side="right"
        )
        return drawn

    def _prices(self, symbols: Indices, quantiles: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        levels = self._levels[symbols]
        prices = levels * (1.0 + _DEVIATION * np.interp(quantiles, self._grid, self._quantiles))
        cents: npt.NDArray[np.float64] = np.round(prices, 2)
        return cents

    def _thresholds(
        self, symbols: Indices, operators: Indices, rng: np.random.Generator
    ) -> npt.NDArray[np.float64]:
        drawn = rng.random(len(symbols))
        if self._tail is not None:  # low for <=, high for >=, either for ==
            drawn *= self._tail
            upper = np.where(operators == 2, rng.random(len(symbols)) < 0.5, operators == 1)
            drawn = np.where(upper, 1.0 - drawn, drawn)
        return self._prices(symbols, drawn)

    def _groups(self, count: int, rng: np.random.Generator) -> Iterator[SubscriptionGroup]:
        symbols = self._symbols(count, rng)
        operators = np.searchsorted(np.cumsum(_SHARES), rng.random(count), side="right").clip(max=2)
        with_volume = rng.random(count) < _VOLUME_SHARE
        values: dict[str, Column] = {
            "symbol": self.symbols[symbols],
            "limit": self._thresholds(symbols, operators, rng),
            "least": rng.exponential(_VOLUME_MEAN, count).astype(np.int64),
        }
        without = {name: values[name] for name in ("symbol", "limit")}
        texts = {}
        for code, operator in enumerate(_OPERATORS):
            texts[2 * code] = f"symbol == $symbol and price {operator} $limit"
            texts[2 * code + 1] = texts[2 * code] + " and volume >= $least"
        chosen = {code: values if code % 2 else without for code in texts}
        yield from grouped(self.event_type, 2 * operators + with_volume, texts, chosen)

    def _events(self, count: int, rng: np.random.Generator) -> EventBatch:
        symbols = self._symbols(count, rng)
        columns = [
            pa.array(self.symbols[symbols], pa.string()),
            pa.array(self._prices(symbols, rng.random(count)), pa.float64()),
            pa.array(rng.exponential(_VOLUME_MEAN, count).astype(np.int64), pa.int64()),
        ]
        records = pa.RecordBatch.from_arrays(columns, schema=self.event_type.arrow_schema)
        return EventBatch.from_arrow(self.event_type, records)

    def _moves(self, group: SubscriptionGroup, rng: np.random.Generator) -> dict[str, Column]:
        symbols = np.array([int(s[1:]) for s in group.values["symbol"]], np.int64)
        operator = next(i for i, o in enumerate(_OPERATORS) if f"price {o} " in str(group.filter))
        return {"limit": self._thresholds(symbols, np.full(len(symbols), operator), rng)}


SYMBOLS = Symbols("SYMBOLS")
SYMBOLS_TAIL = Symbols("SYMBOLS-tail", tail=0.03)


_LETTERS, _LENGTH = 26, 6
_LISTS = ("in", "not in")
OPERATORS = ("prefix", "suffix", "contains", "!=", "<", *_LISTS)


@dataclass(frozen=True)
class TextTests(Workload):
    """SYMBOLS-tail with `tests` subscriptions replaced by tests of the attribute `note`, with `operator` and
    one of `words`, or a list of `constants` of them.

    Notes of events are drawn evenly from the same words. Compared with SYMBOLS-tail over as many
    subscriptions, this shows what such tests cost all others.
    """

    name: str = "PREFIXES"
    operator: str = "prefix"
    tests: int = 10_000
    constants: int = 1
    words: int = 200_000

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise InputError(f"operator {self.operator!r}: expected one of {', '.join(OPERATORS)}")
        if not 1 <= self.constants <= self.words:
            raise InputError(f"constants {self.constants}: expected 1 to the number of words, {self.words}")

    @property
    def description(self) -> str:  # type: ignore[override]
        operand = f"lists of {self.constants:,}" if self.operator in _LISTS else "words"
        return f"SYMBOLS-tail, {self.tests:,} of them replaced by `note {self.operator}` with {operand}"

    @property
    def event_type(self) -> EventType:  # type: ignore[override]
        return EventType("Trade", {**SYMBOLS_TAIL.event_type.attributes, "note": "string"})

    def _words(self, numbers: Indices) -> Column:
        """Distinct words by number, of six letters in no order."""
        scattered = numbers * 7_368_787 % _LETTERS**_LENGTH  # the factor has no divisor in common with 26
        letters = scattered[:, None] // _LETTERS ** np.arange(_LENGTH) % _LETTERS + ord("a")
        words: Column = letters.astype(np.uint32).view(f"U{_LENGTH}")[:, 0]
        return words

    def _groups(self, count: int, rng: np.random.Generator) -> Iterator[SubscriptionGroup]:
        tests = min(self.tests, count)
        event_type, ids = self.event_type, rng.permutation(count).astype(np.int64)
        for group in SYMBOLS_TAIL._groups(count - tests, rng):
            mine = np.sort(ids[tests:])[group.ids]
            yield SubscriptionGroup(parse(str(group.filter), event_type), mine, group.values)
        rest = np.sort(ids[:tests])
        if self.operator not in _LISTS:
            words = self._words(np.arange(tests) % self.words)
            yield SubscriptionGroup(parse(f"note {self.operator} $w", event_type), rest, {"w": words})
            return
        for number in range(tests):
            drawn = self._words(rng.choice(self.words, self.constants, replace=False))
            listed = ", ".join([f"'{word}'" for word in drawn.tolist()])
            yield SubscriptionGroup(
                parse(f"note {self.operator} ({listed})", event_type), rest[number : number + 1], {}
            )

    def _events(self, count: int, rng: np.random.Generator) -> EventBatch:
        trades = SYMBOLS_TAIL._events(count, rng).record_batch.columns
        notes = pa.array(self._words(rng.integers(0, self.words, count)), pa.string())
        schema = self.event_type.arrow_schema
        return EventBatch.from_arrow(
            self.event_type, pa.RecordBatch.from_arrays([*trades, notes], schema=schema)
        )

    def _moves(self, group: SubscriptionGroup, rng: np.random.Generator) -> dict[str, Column]:
        if "symbol" in group.values:
            return SYMBOLS_TAIL._moves(group, rng)
        if not group.values:
            return {}
        return {"w": self._words(rng.integers(0, self.words, len(group)))}


PREFIXES = TextTests()
MEMBERS = TextTests("MEMBERS", "in", tests=100, constants=1_000)


class Vehicles(Workload):
    """Boxes with edges of `side` in a city with edges of `extent`, and densities 0..100 at or above a
    threshold. A box depends on the vehicle's position alone, so one update of two variables moves it."""

    def __init__(self, name: str = "VEHICLES", *, extent: float = 1000.0, side: float = 10.0) -> None:
        self.name = name
        self.description = (
            f"a {side:g} x {side:g} box in {extent:g} x {extent:g} and density >= d; no equality"
        )
        self.event_type = EventType("Traffic", {"x": "float64", "y": "float64", "density": "float64"})
        self._extent = extent
        half = repr(side / 2)
        box = " and ".join(f"{a} >= ${a} - {half} and {a} <= ${a} + {half}" for a in "xy")
        self._filter = parse(f"{box} and density >= $d", self.event_type)

    def _groups(self, count: int, rng: np.random.Generator) -> Iterator[SubscriptionGroup]:
        values = {
            "x": rng.random(count) * self._extent,
            "y": rng.random(count) * self._extent,
            "d": rng.random(count) * 100.0,
        }
        if count:
            yield SubscriptionGroup(self._filter, np.arange(count, dtype=np.int64), values)

    def _events(self, count: int, rng: np.random.Generator) -> EventBatch:
        columns = [pa.array(rng.random(count) * scale) for scale in (self._extent, self._extent, 100.0)]
        records = pa.RecordBatch.from_arrays(columns, schema=self.event_type.arrow_schema)
        return EventBatch.from_arrow(self.event_type, records)

    def _moves(self, group: SubscriptionGroup, rng: np.random.Generator) -> dict[str, Column]:
        """A step of up to half a box; vehicles stay in the city."""
        steps = {name: group.values[name] + rng.uniform(-5.0, 5.0, len(group)) for name in ("x", "y")}
        return {name: column.clip(0.0, self._extent) for name, column in steps.items()}


VEHICLES = Vehicles()


class Ranges(Workload):
    """`least` to `most` ranges on random attributes; each covers `narrow` to `wide` of the domain [0, 1)."""

    def __init__(
        self,
        name: str = "BOX",
        *,
        attributes: int = 16,
        least: int = 3,
        most: int = 5,
        narrow: float = 0.10,
        wide: float = 0.30,
    ) -> None:
        self.name = name
        self.description = f"{attributes} attributes, {least} to {most} ranges of {narrow:.0%} to {wide:.0%}"
        self.event_type = EventType("Box", {f"a{i}": "float64" for i in range(attributes)})
        self._narrow, self._wide = narrow, wide
        self._sets = {size: list(combinations(range(attributes), size)) for size in range(least, most + 1)}

    def _groups(self, count: int, rng: np.random.Generator) -> Iterator[SubscriptionGroup]:
        sizes = rng.choice(list(self._sets), size=count)
        codes = np.empty(count, np.int64)
        texts: dict[int, str] = {}
        values: dict[int, dict[str, Column]] = {}
        bounds: dict[str, Column] = {}
        for i in range(max(self._sets)):
            lower, upper = self._draw(count, rng)
            bounds |= {f"l{i}": lower, f"u{i}": upper}
        first = 0
        for size, sets in self._sets.items():
            mask = sizes == size
            codes[mask] = first + rng.integers(0, len(sets), size=int(mask.sum()))
            chosen = {name: column for name, column in bounds.items() if int(name[1:]) < size}
            for code, attributes in enumerate(sets, first):
                texts[code] = " and ".join(f"a{a} between $l{i} and $u{i}" for i, a in enumerate(attributes))
                values[code] = chosen
            first += len(sets)
        yield from grouped(self.event_type, codes, texts, values)

    def _draw(self, count: int, rng: np.random.Generator) -> tuple[Column, Column]:
        width = rng.uniform(self._narrow, self._wide, count)
        lower = rng.random(count) * (1.0 - width)
        return lower, lower + width

    def _events(self, count: int, rng: np.random.Generator) -> EventBatch:
        columns = [pa.array(rng.random(count)) for _ in self.event_type.names]
        records = pa.RecordBatch.from_arrays(columns, schema=self.event_type.arrow_schema)
        return EventBatch.from_arrow(self.event_type, records)

    def _moves(self, group: SubscriptionGroup, rng: np.random.Generator) -> dict[str, Column]:
        lower, upper = self._draw(len(group), rng)
        return {"l0": lower, "u0": upper}


BOX = Ranges()
