"""The calibrations of the evaluation: the checked-in costs, and those derived for assumptions.
`jayaram_costs.json` is the result of `measure_costs` at its full size, checked in so that runs are the same
on every machine, byte for byte. *filters-3000* has the costs at 3,000 filters, charged to brokers with as
many as a case has subscribers, since that many take too long to simulate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from covey.sim.experiments.papers.jayaram_cases import Case, Pilot
from covey.sim.experiments.papers.jayaram_costs import SHAPES
from covey.sim.experiments.papers.jayaram_prediction import ChangeCosts, change_costs
from covey.sim.simulator.costs import CostTable, save_costs

FILE = "jayaram_costs.json"
"""In this package; its note states when and where it was measured."""
_FILTERS = {"boxes": 120, "thresholds": 150, "types": 150}
"""The number of subscribers of the cases of a shape."""


def checked_in() -> CostTable:
    costs: CostTable = _document()["costs"]
    return costs


def costs_note() -> str:
    return str(_document()["note"])


def _document() -> dict[str, Any]:
    text = (files("covey.sim.experiments.papers") / FILE).read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def most_filters(table: CostTable) -> int:
    return int(max(points[-1][0] for shape in table["siena-static"].values() for points in shape.values()))


def shape_of(case: Case) -> str:
    return next(shape for shape, load in SHAPES.items() if load == case.scenario.load)


def costs_of(case: Case, table: CostTable) -> ChangeCosts:
    """The costs of changes and events at a broker that has all filters of a case."""
    return change_costs(
        table,
        f"{case.matcher}-static",
        f"{case.matcher}-parametric-local",
        shape_of(case),
        case.scenario.subscribers,
    )


@dataclass(frozen=True, slots=True)
class Calibrations:
    tables: Mapping[str, CostTable]
    files: Mapping[str, str]

    @classmethod
    def write(cls, folder: Path, table: CostTable) -> Calibrations:
        tables = {
            "measured": table,
            "filters-3000": _as_with(table, 3_000),
        }
        folder.mkdir(parents=True, exist_ok=True)
        written = {}
        for name, each in tables.items():
            # Runs of other costs are other runs, which their scenarios must show.
            digest = sha256(json.dumps(each, sort_keys=True).encode()).hexdigest()[:8]
            path = folder / f"{name}-{digest}.json"
            save_costs(path, each, f"{name}: see sim/experiments/papers/jayaram_calibrations.py")
            written[name] = str(path.resolve())
        return cls(tables, written)

    def message_ns(self, pilot: Pilot) -> float:
        costs = costs_of(pilot.case, self.tables[pilot.costs])
        return costs.event if pilot.events else costs.resubscription


def _as_with(table: CostTable, filters: int) -> CostTable:
    return {
        system: {
            shape: {
                operation: [[count * _FILTERS[shape] / filters, ns] for count, ns in points]
                for operation, points in operations.items()
            }
            for shape, operations in shapes.items()
        }
        for system, shapes in table.items()
    }
