"""The named operators of a broker process, for `covey inspect`: their callers, accounts and limits."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from covey.matcher.evaluation.accounts import Account
from covey.matcher.operators.table import find, why_missing
from covey.overlay.core.introspection.inspection import Listing
from covey.overlay.core.operators.operator_notices import Callers
from covey.overlay.node.limited_runner import LimitedRunner

_NONE = Account()
_COUNTS = ("subscriptions", "events", "reused", "true", "undecided", "failures")


def inspect_operators(
    callers: Callers, accounts: Mapping[str, Account], runner: LimitedRunner, listing: Listing
) -> dict[str, Any]:
    """By name the operators that filters at this broker call, or have called: plain values for JSON."""
    names = list(dict.fromkeys((*callers.operators(), *accounts)))
    now_ns = time.monotonic_ns()
    return {
        name: _inspect_operator(name, callers, accounts.get(name, _NONE), runner, now_ns)
        for name in listing.first(names, len(names), "operators")
    }


def _inspect_operator(
    name: str, callers: Callers, account: Account, runner: LimitedRunner, now_ns: int
) -> dict[str, Any]:
    operator, limiter = find(name), runner.limiter
    return {
        "version": None if operator is None else operator.version,
        "missing": why_missing(name) if operator is None else "",
        "evaluated_by_reader": operator is not None and operator.stateful,
        "subscriptions": callers.count(name),
        "calls": account.calls,
        "events": account.events,
        "true": account.true,
        "reused": account.reused,
        "undecided": account.undecided,
        "failures": account.failures,
        "seconds": round(account.took_ns / 1e9, 6),
        "cost_us": round(limiter.cost_us(name), 3),
        "suspended_s": round(limiter.suspended_s(name, now_ns), 3),
        "fault": limiter.why(name),
        "abandoned": runner.threads.abandoned(name),
    }


def render_operators(operators: Mapping[str, Any], listing: Listing) -> list[str]:
    """The same as a table for people; nothing without operators."""
    if not operators:
        return []
    rows: list[tuple[str, ...]] = [("operator", "version", *_COUNTS, "us/event")]
    for name, state in operators.items():
        counts = [state[count] for count in _COUNTS]
        version = "none" if state["version"] is None else str(state["version"])
        rows.append((name, version, *(f"{count:,}" for count in counts), f"{state['cost_us']:,.1f}"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["", "operators"]
    for row, state in zip(rows, (None, *operators.values()), strict=True):
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        lines.append(f"  {'  '.join(cells)}{'' if state is None else _remark(state)}")
    return lines + listing.more("operators", "  ")


def _remark(state: Mapping[str, Any]) -> str:
    if state["missing"]:
        return f"  missing: {state['missing']}; events are passed on"
    if state["evaluated_by_reader"]:
        return "  with state: the reader evaluates it"
    if state["abandoned"]:
        return f"  {state['abandoned']} calls have not ended; {state['fault']}"
    if state["suspended_s"]:
        return f"  suspended for {state['suspended_s']:.1f} s: {state['fault']}"
    return f"  last fault: {state['fault']}" if state["fault"] else ""
