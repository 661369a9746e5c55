"""Boxes around vehicles, after the highway traffic management (HTM) of Jayaram et al. 2010, section 5.4.

The load `highway` (`sim/scenario/highway.py`) is HTM with its roads, operators and brokers; here one engine
holds all boxes, and nothing but ranges is tested. A box of 10 x 10 around the vehicle in a city of 1000 x
1000, and a density at or above a threshold. The box depends on the vehicle's position alone, so that one
update of two variables moves it.

BOX: ranges only. 16 attributes, 3 to 5 ranges on random ones, each 10 to 30 % of its domain wide.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pyarrow as pa

from covey.matcher import EventBatch, EventType, parse
from covey.sim.workload.workload import Column, SubscriptionGroup, Workload, grouped


class Vehicles(Workload):
    """`side` is the edge of the box and `extent` that of the city; densities are 0..100."""

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
    """BOX: `least` to `most` ranges on random ones of `attributes`, each `narrow` to `wide` of the domain [0,
    1) wide."""

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
