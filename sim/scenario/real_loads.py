"""Loads from real inputs: daily quotes, and loop detectors of highways.

`QuotesLoad` replays the quotes of five firms (`sim/scenario/quotes.py`); traders move their thresholds about
the price that was published last. `DetectorLoad` replays what detectors on highways measured, from two CSV
files: wide speeds, a column for each detector and a row for each moment, and the detectors' places. Its
overlay is the shortest tree over the detectors, with a broker at each, and vehicles drive along its edges,
the roads.
"""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from covey.matcher import EventBatch, EventType, parse
from covey.sim.scenario.load import Load, LoadError, Wish
from covey.sim.scenario.quotes import FIRMS, QUOTE, load_quotes
from covey.sim.topology import Topology, read_graph, spanning_tree
from covey.sim.topology.graphs import planar


class QuotesLoad(Load):
    """Publishers share the firms; each replays its firms' days in order, and begins again after the last."""

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
        self._mine = [
            quotes.filter(pc.is_in(quotes.column("firm"), value_set=pa.array(FIRMS[number::publishers])))
            for number in range(publishers)
        ]
        self._next = [0] * publishers
        self._last: dict[str, float] = {}
        for firm, price in zip(*(quotes.column(c).to_pylist() for c in ("firm", "price")), strict=True):
            self._last.setdefault(firm, price)

    def publisher(self, number: int) -> tuple[str, list[EventType]]:
        return self._exchanges[number % len(self._exchanges)], [QUOTE]

    def events(self, number: int, count: int) -> EventBatch:
        quotes = self._mine[number]
        if self._next[number] >= quotes.num_rows:
            self._next[number] = 0
        part = quotes.slice(self._next[number], count)
        self._next[number] += part.num_rows
        for firm, price in zip(*(part.column(c).to_pylist() for c in ("firm", "price")), strict=True):
            self._last[firm] = price
        return EventBatch.from_arrow(QUOTE, part)

    def _limit(self, firm: str) -> float:
        return round(self._last[firm] * self._random.uniform(0.9, 1.1), 2)

    def wish(self, number: int) -> Wish:
        firm = self._random.choice(FIRMS)
        values = {"firm": firm, "limit": self._limit(firm)}
        return Wish(self._random.choice(self.FILTERS), values, self._random.choice(self._firms))

    def move(self, number: int, wish: Wish) -> tuple[dict[str, Any], str]:
        return {"limit": self._limit(wish.values["firm"])}, wish.broker


_AROUND_M = 1500.0
_STEP_M = 400.0
_SLOW_MPH = (25.0, 45.0, 65.0)


def detector_topology(sensors: str | Path, *, delay_ms: float) -> Topology:
    """The overlay of a file of detectors: a broker at each, joined by the shortest tree."""
    return spanning_tree(read_graph(sensors), "detectors", delay_ms=delay_ms)


class DetectorLoad(Load):
    """A vehicle asks for slow traffic around it. Places are in metres; speeds are as in the file."""

    SPEED = EventType("Speed", {"detector": "string", "x": "float64", "y": "float64", "speed": "float64"})
    SLOW = parse(
        f"x >= $x - {_AROUND_M} and x <= $x + {_AROUND_M} "
        f"and y >= $y - {_AROUND_M} and y <= $y + {_AROUND_M} and speed < $slow",
        SPEED,
    )

    def __init__(self, topology: Topology, publishers: int, rng: random.Random, speeds: str | Path) -> None:
        if set(topology.positions) != set(topology.brokers):
            raise LoadError(
                f"detectors: topology {topology.name} has no places; expected that of the detectors"
            )
        if publishers > len(topology.brokers):
            raise LoadError(f"detectors: {publishers} publishers; expected at most {len(topology.brokers)}")
        self._random = rng
        self._detectors = topology.brokers
        self._places = planar(topology.positions)
        self._roads: dict[str, list[str]] = {broker: [] for broker in topology.brokers}
        for link in topology.links:
            self._roads[link.a].append(link.b)
            self._roads[link.b].append(link.a)
        self._speeds = _read_speeds(speeds, topology.brokers)
        self._next = [0] * publishers
        self._ways: dict[int, tuple[str, str, float]] = {}
        """By vehicle: the ends of the road that it is on, and how far along it is, from 0 to 1."""

    def publisher(self, number: int) -> tuple[str, list[EventType]]:
        return self._detectors[number], [self.SPEED]

    def events(self, number: int, count: int) -> EventBatch:
        detector = self._detectors[number]
        x, y = self._places[detector]
        column = self._speeds[detector]
        start = self._next[number] % len(column)
        speeds = list(islice(column, start, start + count))
        self._next[number] = start + len(speeds)
        rows = [{"detector": detector, "x": x, "y": y, "speed": speed} for speed in speeds]
        return EventBatch.from_pylist(self.SPEED, rows)

    def _at(self, number: int) -> tuple[float, float, str]:
        """Where a vehicle is, and the nearer end of its road."""
        here, there, share = self._ways[number]
        (x, y), (u, v) = self._places[here], self._places[there]
        return x + share * (u - x), y + share * (v - y), here if share < 0.5 else there

    def wish(self, number: int) -> Wish:
        here = self._random.choice(self._detectors)
        self._ways[number] = (here, self._random.choice(self._roads[here] or [here]), 0.0)
        x, y, broker = self._at(number)
        return Wish(self.SLOW, {"x": x, "y": y, "slow": self._random.choice(_SLOW_MPH)}, broker)

    def move(self, number: int, wish: Wish) -> tuple[dict[str, Any], str]:
        """Drive on; at the end of a road take another, back only where there is none."""
        here, there, share = self._ways[number]
        (x, y), (u, v) = self._places[here], self._places[there]
        length = ((u - x) ** 2 + (v - y) ** 2) ** 0.5
        share += self._random.uniform(0.0, _STEP_M) / length if length else 1.0
        if share >= 1.0:
            ways = [end for end in self._roads[there] if end != here] or [here]
            here, there, share = there, self._random.choice(ways), 0.0
        self._ways[number] = (here, there, share)
        at_x, at_y, broker = self._at(number)
        return {"x": at_x, "y": at_y}, broker


def _read_speeds(path: str | Path, detectors: tuple[str, ...]) -> dict[str, list[float | None]]:
    """The speeds of each detector in order; a gap is None."""
    try:
        table = pcsv.read_csv(str(path))
    except (OSError, pa.ArrowInvalid) as error:
        raise LoadError(f"{path}: no CSV of speeds: {' '.join(str(error).split())}") from None
    missing = [detector for detector in detectors if detector not in table.column_names]
    if missing:
        raise LoadError(f"{path}: no column for detector {missing[0]}; {len(missing)} lack one")
    found = {}
    for detector in detectors:
        try:
            found[detector] = table.column(detector).cast(pa.float64()).to_pylist()
        except pa.ArrowInvalid as error:
            raise LoadError(f"{path}: column {detector}: {error}") from None
        if not found[detector]:
            raise LoadError(f"{path}: no rows; expected one for each moment")
    return found
