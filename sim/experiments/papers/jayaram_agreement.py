"""Whether a quick evaluation agrees with the full one, whose factors are checked in (`jayaram_factors.json`).

They are written from the folder of a full evaluation:

    python -m covey.sim.experiments.papers.jayaram_agreement evaluation/
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from covey.sim.experiments.papers.estimates import Estimate
from covey.sim.experiments.papers.jayaram_calibrations import checked_in, most_filters
from covey.sim.experiments.papers.jayaram_cases import BASE, METRICS, Case, grid
from covey.sim.experiments.papers.jayaram_findings import GAINS
from covey.sim.experiments.papers.jayaram_runs import Results, stored_results
from covey.sim.experiments.papers.report import Cell, PaperFinding, PaperPlan, Verdict

FILE = "jayaram_factors.json"
"""In this package."""
_WIDE = 4.0
"""An interval whose ends differ by more than so many times says little."""
Factors = Mapping[str, Estimate]
"""Of a case and a metric at a utilisation, by `_name`."""


def full_factors() -> Factors:
    """The checked-in factors of the full size, under the base assumptions."""
    document = json.loads((files("covey.sim.experiments.papers") / FILE).read_text(encoding="utf-8"))
    return {name: Estimate.of_json(each) for name, each in document.items()}


def factors_of(results: Results) -> Factors:
    """All factors under the base assumptions; those that nothing was counted for are left out."""
    return {
        _name(case, metric, rho): factor
        for case in results.grid.cases
        for metric in METRICS
        for rho in results.grid.rhos
        if (factor := results.factor(case, BASE, rho, metric)) is not None
    }


def _name(case: Case, metric: str, rho: float) -> str:
    return f"{case.key}.{metric}.rho-{rho:g}"


def agreement(results: Results, full: Factors) -> PaperFinding:
    """Every factor beside that of the full size: they agree where their intervals meet, unless the one here
    is so wide that it says little."""
    here = factors_of(results)
    rows: list[dict[str, Cell]] = []
    apart: list[str] = []
    compared = 0
    for case in results.grid.cases:
        for metric in METRICS:
            for rho in results.grid.rhos:
                ours, theirs = (each.get(_name(case, metric, rho)) for each in (here, full))
                both = None
                if ours is not None and theirs is not None and ours.high <= _WIDE * ours.low:
                    both = ours.within(theirs)
                compared += both is not None
                if both is False:
                    apart.append(f"{case.title}, {GAINS[metric]} at {rho:g}")
                rows.append(
                    {
                        "gain": f"{case.title}: {GAINS[metric]}",
                        "utilisation": rho,
                        "here": None if ours is None else str(ours),
                        "full size": None if theirs is None else str(theirs),
                        "agrees": "undecided" if both is None else "yes" if both else "no",
                    }
                )
    return PaperFinding(
        "Full size",
        "the factors of this size beside those of the full one",
        "Nothing: the factors of a full evaluation are checked in.",
        f"The intervals of {compared - len(apart)} of {compared} factors meet those of the full size"
        + (f"; apart are {'; '.join(apart)}" if apart else "")
        + f". {len(rows) - compared} are undecided: the interval here spans more than {_WIDE:g} times, or "
        "nothing was counted.",
        Verdict.of(not apart, 2 * len(apart) < compared) if compared else Verdict.UNDECIDED,
        rows,
    )


def main() -> None:
    """Write the factors of the full evaluation in a folder into this package."""
    planned = grid(PaperPlan("full"), most_filters(checked_in()))
    factors = factors_of(stored_results(planned, Path(sys.argv[1])))
    lines = [f' "{name}": {json.dumps(each.as_json())}' for name, each in factors.items()]
    Path(__file__).with_name(FILE).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
