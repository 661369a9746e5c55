"""The papers whose figures can be measured again on this machine. A paper is a module with `run(plan,
progress) -> PaperReport` and a row in `PAPERS`. Invariant: every number and every verdict in a report comes
from the run that produced it; a figure that could not be measured has no rows and a verdict with the reason.
"""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from covey.matcher.errors import InputError
from covey.sim.experiments.papers.report import PaperFinding, PaperPlan, PaperReport
from covey.sim.experiments.papers.verdicts import Verdict
from covey.sim.progress import Progress

__all__ = ["PAPERS", "PaperFinding", "PaperPlan", "PaperReport", "Verdict", "reproduce"]

PAPERS = {
    "aguilera": "covey.sim.experiments.papers.aguilera",
    "bittner": "covey.sim.experiments.papers.bittner",
    "fabret": "covey.sim.experiments.papers.fabret",
    "jayaram": "covey.sim.experiments.papers.jayaram",
    "liu": "covey.sim.experiments.papers.liu",
}
"""Name on the command line, and module, which is imported on demand."""


class _Paper(Protocol):
    def run(self, plan: PaperPlan, progress: Progress) -> PaperReport: ...


def reproduce(paper: str, plan: PaperPlan, progress: Progress) -> PaperReport:
    """Measure what a paper's figures show. Raises `InputError` for an unknown paper."""
    if paper not in PAPERS:
        raise InputError(f"paper {paper!r}: expected one of {', '.join(PAPERS)}, all")
    return cast(_Paper, import_module(PAPERS[paper])).run(plan, progress)
