"""What the papers found, measured again on this machine: the registry of papers that can be reproduced.

A paper is a module with `run(plan, say) -> Report` (types in `report.py`): it measures what the paper's
figures show with Covey's own parts, at the plan's size, and says of every figure what the paper claims, what
was measured, and what follows. Another paper is one more module and one more row in `PAPERS`; the command,
the tables, plots and pages then know it. Invariant: every number and every verdict in a report comes from
the run that made it; a figure whose parts are missing says so and has no rows.
"""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from covey.matcher.errors import CoveyError
from covey.sim.experiments.papers.report import Curves, Finding, Plan, Report, Say

__all__ = ["PAPERS", "Curves", "Finding", "Plan", "Report", "Say", "reproduce"]

PAPERS = {
    "aguilera": "covey.sim.experiments.papers.aguilera",
    "bittner": "covey.sim.experiments.papers.bittner",
    "fabret": "covey.sim.experiments.papers.fabret",
    "jayaram": "covey.sim.experiments.papers.jayaram",
}
"""Name on the command line, and the module, which is imported when it is asked for."""


class _Paper(Protocol):
    def run(self, plan: Plan, say: Say) -> Report: ...


def reproduce(paper: str, plan: Plan, say: Say) -> Report:
    """Measure what a paper's figures show. Raises `CoveyError` for a paper that is not known."""
    if paper not in PAPERS:
        raise CoveyError(f"paper {paper!r}: expected one of {', '.join(PAPERS)}")
    return cast(_Paper, import_module(PAPERS[paper])).run(plan, say)
