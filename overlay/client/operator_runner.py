"""Calls the named operators of this client's own filters: at once, without limits, with a clock."""

from __future__ import annotations

import time
from dataclasses import replace

from covey.matcher.evaluation.runner import Compute, Outcome, run_at_once
from covey.matcher.operators.named_operator import NamedOperator


def run_timed(operator: NamedOperator, key: int, events: int, compute: Compute) -> Outcome:
    start_ns = time.perf_counter_ns()
    outcome = run_at_once(operator, key, events, compute)
    return replace(outcome, took_ns=time.perf_counter_ns() - start_ns)
