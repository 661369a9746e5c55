"""`covey bench drift` for people: which drifts, a progress bar on stderr, a table for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from covey.cli.support.progress import compile_once, named, progress
from covey.matcher import compile_kernels
from covey.matcher.errors import CoveyError
from covey.sim.experiments.bench.drift import DRIFTS, Plan, Result, measure


def run(names: Sequence[str], quiet: bool, **options: Any) -> list[Result]:
    """All results; prints a table for each, unless `quiet`. `CoveyError` for an unknown drift."""
    for name in names:
        if name not in DRIFTS:
            raise CoveyError(f"drift {name!r}: expected one of {', '.join(DRIFTS)}")
    compile_once()
    compile_kernels()  # loaded before anything is measured
    results: list[Result] = []
    for name in names:
        with progress() as say:
            results.append(measure(Plan(name, **options), named(say, name)))
        if not quiet:
            print(_table(results[-1]), flush=True)
    return results


def _table(result: Result) -> str:
    lines = [
        f"{result.drift}, {result.subscriptions:,} subscriptions, events/s at the start and after each step:"
    ]
    for name, rates in result.rates.items():
        lines.append(f"  {name:15} {' '.join(f'{rate:>10,.0f}' for rate in rates)}")
    share = result.rates["dynamic"][-1] / result.optimum
    lines.append(f"  {'static optimum':15} {result.optimum:>10,.0f}; dynamic reaches {share:.0%} of it")
    return "\n".join(lines)
