"""BOX: ranges only. 16 attributes, 3 to 5 ranges on random ones, each 10 to 30 % of its domain wide."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pyarrow as pa

from covey.matcher import EventBatch, EventType
from covey.sim.workload.workload import Column, SubscriptionGroup, Workload, grouped


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
