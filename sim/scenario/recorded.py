"""Loads of recorded data: loop detectors of highways, and daily quotes of five firms."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from covey.matcher import EventBatch, EventType, parse
from covey.sim.extras import need
from covey.sim.scenario.loads import Load, LoadError, SubscriberState

if TYPE_CHECKING:
    from covey.sim.topology import Topology

_AROUND_M = 1500.0
_STEP_M = 400.0
_SLOW_MPH = (25.0, 45.0, 65.0)


def detector_topology(sensors: str | Path, *, delay_ms: float) -> Topology:
    """The shortest tree over the detectors of a file, with a broker at each."""
    from covey.sim.topology import read_graph, spanning_tree  # with networkx, which quotes do without

    return spanning_tree(read_graph(sensors), "detectors", delay_ms=delay_ms)


class DetectorLoad(Load):
    """Vehicles want slow traffic around them, and drive along the links of the overlay.

    `speeds` is a CSV file with a column per detector and a row per moment. Places are in metres, speeds in
    the file's unit.
    """

    SPEED = EventType("Speed", {"detector": "string", "x": "float64", "y": "float64", "speed": "float64"})
    SLOW = parse(
        f"x >= $x - {_AROUND_M} and x <= $x + {_AROUND_M} "
        f"and y >= $y - {_AROUND_M} and y <= $y + {_AROUND_M} and speed < $slow",
        SPEED,
    )

    def __init__(self, topology: Topology, publishers: int, rng: random.Random, speeds: str | Path) -> None:
        if set(topology.positions) != set(topology.brokers):
            raise LoadError(
                f"detectors: topology {topology.name} has no positions; expected that of the detectors"
            )
        if publishers > len(topology.brokers):
            raise LoadError(f"detectors: {publishers} publishers; expected at most {len(topology.brokers)}")
        self._random = rng
        self._detectors = topology.brokers
        from covey.sim.topology.graphs import planar

        self._places = planar(topology.positions)
        self._roads: dict[str, list[str]] = {broker: [] for broker in topology.brokers}
        for link in topology.links:
            self._roads[link.a].append(link.b)
            self._roads[link.b].append(link.a)
        self._speeds = _read_speeds(speeds, topology.brokers)
        self._next = [0] * publishers
        self._positions: dict[int, tuple[str, str, float]] = {}
        """By vehicle, the ends of its road and the share of it already driven, 0 to 1."""

    def publisher(self, number: int) -> tuple[str, list[EventType]]:
        return self._detectors[number], [self.SPEED]

    def events(self, number: int, count: int, draw: random.Random | None = None) -> EventBatch:
        detector = self._detectors[number]
        x, y = self._places[detector]
        column = self._speeds[detector]
        start = self._next[number] % len(column)
        speeds = list(islice(column, start, start + count))
        self._next[number] = start + len(speeds)
        rows = [{"detector": detector, "x": x, "y": y, "speed": speed} for speed in speeds]
        return EventBatch.from_pylist(self.SPEED, rows)

    def _at(self, number: int) -> tuple[float, float, str]:
        here, there, share = self._positions[number]
        (x, y), (u, v) = self._places[here], self._places[there]
        return x + share * (u - x), y + share * (v - y), here if share < 0.5 else there

    def subscriber(self, number: int) -> SubscriberState:
        here = self._random.choice(self._detectors)
        self._positions[number] = (here, self._random.choice(self._roads[here] or [here]), 0.0)
        x, y, broker = self._at(number)
        return SubscriberState(self.SLOW, {"x": x, "y": y, "slow": self._random.choice(_SLOW_MPH)}, broker)

    def next_values(self, number: int, subscriber: SubscriberState) -> tuple[dict[str, Any], str]:
        """Drives along the road; at its end takes another, or the same one back if there is no other."""
        here, there, share = self._positions[number]
        (x, y), (u, v) = self._places[here], self._places[there]
        length = ((u - x) ** 2 + (v - y) ** 2) ** 0.5
        share += self._random.uniform(0.0, _STEP_M) / length if length else 1.0
        if share >= 1.0:
            ends = [end for end in self._roads[there] if end != here] or [here]
            here, there, share = there, self._random.choice(ends), 0.0
        self._positions[number] = (here, there, share)
        at_x, at_y, broker = self._at(number)
        return {"x": at_x, "y": at_y}, broker


def _read_speeds(path: str | Path, detectors: tuple[str, ...]) -> dict[str, list[float | None]]:
    """By detector; None is a gap."""
    try:
        table = pcsv.read_csv(str(path))
    except (OSError, pa.ArrowInvalid) as error:
        raise LoadError(f"{path}: not a CSV file of speeds: {' '.join(str(error).split())}") from None
    missing = [detector for detector in detectors if detector not in table.column_names]
    if missing:
        raise LoadError(f"{path}: no column for detector {missing[0]}; {len(missing)} have none")
    speeds: dict[str, list[float | None]] = {}
    for detector in detectors:
        try:
            speeds[detector] = table.column(detector).cast(pa.float64()).to_pylist()
        except pa.ArrowInvalid as error:
            raise LoadError(f"{path}: column {detector}: {error}") from None
        if not speeds[detector]:
            raise LoadError(f"{path}: no rows; expected one for each moment")
    return speeds


QUOTE = EventType(
    "Quote",
    {
        "firm": "string",
        "date": "timestamp",
        "price": "float64",
        "volume": "int64",
        "open": "float64",
        "high": "float64",
        "low": "float64",
    },
)
"""One firm's trading day; `price` is the closing price."""

FIRMS = ("AAPL", "FB", "GOOG", "IBM", "MSFT")


def load_quotes() -> pa.RecordBatch:
    """12,154 daily quotes, 2000 to 2013, from `bokeh-sampledata`, by (date, firm), unique, with the schema of
    `QUOTE`.

    From 2026.1 on `pip install --no-deps bokeh-sampledata` is enough; earlier releases import pandas. Raises
    `CoveyError` if the package is missing.
    """
    need("a replay of quotes", "bokeh_sampledata.stocks")
    from bokeh_sampledata import stocks

    rows = []
    for firm in FIRMS:
        data = getattr(stocks, firm)
        columns = (data[name] for name in ("date", "close", "volume", "open", "high", "low"))
        rows += [
            (datetime.fromisoformat(date).replace(tzinfo=UTC), firm, *numbers)
            for date, *numbers in zip(*columns, strict=True)
        ]
    rows.sort(key=lambda row: row[:2])
    dates, firms, *numbers = map(list, zip(*rows, strict=True))
    return pa.record_batch([firms, dates, *numbers], schema=QUOTE.arrow_schema)


class QuotesLoad(Load):
    """Publishers share the firms and replay their days in order, again and again. Traders move thresholds
    around the last published price."""

    FILTERS = tuple(parse(f"firm == $firm and price {sign} $limit", QUOTE) for sign in ("<=", ">="))

    def __init__(self, topology: Topology, publishers: int, rng: random.Random) -> None:
        if publishers > len(FIRMS):
            raise LoadError(
                f"quotes: {publishers} publishers; expected at most {len(FIRMS)}, one for each firm"
            )
        self._random = rng
        self._exchanges = topology.with_role("exchange") or topology.brokers
        self._firms = topology.with_role("firm") or topology.brokers
        quotes = load_quotes()
        self._quotes_of = [
            quotes.filter(pc.is_in(quotes.column("firm"), value_set=pa.array(FIRMS[number::publishers])))
            for number in range(publishers)
        ]
        self._next = [0] * publishers
        self._last: dict[str, float] = {}
        for firm, price in zip(*(quotes.column(c).to_pylist() for c in ("firm", "price")), strict=True):
            self._last.setdefault(firm, price)

    def publisher(self, number: int) -> tuple[str, list[EventType]]:
        return self._exchanges[number % len(self._exchanges)], [QUOTE]

    def events(self, number: int, count: int, draw: random.Random | None = None) -> EventBatch:
        quotes = self._quotes_of[number]
        if self._next[number] >= quotes.num_rows:
            self._next[number] = 0
        part = quotes.slice(self._next[number], count)
        self._next[number] += part.num_rows
        for firm, price in zip(*(part.column(c).to_pylist() for c in ("firm", "price")), strict=True):
            self._last[firm] = price
        return EventBatch.from_arrow(QUOTE, part)

    def _limit(self, firm: str) -> float:
        return round(self._last[firm] * self._random.uniform(0.9, 1.1), 2)

    def subscriber(self, number: int) -> SubscriberState:
        firm = self._random.choice(FIRMS)
        values = {"firm": firm, "limit": self._limit(firm)}
        return SubscriberState(self._random.choice(self.FILTERS), values, self._random.choice(self._firms))

    def next_values(self, number: int, subscriber: SubscriberState) -> tuple[dict[str, Any], str]:
        return {"limit": self._limit(subscriber.values["firm"])}, subscriber.broker
