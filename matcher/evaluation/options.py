"""How an engine evaluates the calls of named operators: options that all engines take."""

from __future__ import annotations

from typing import TypedDict

from covey.matcher.evaluation.evaluator import Evaluator
from covey.matcher.evaluation.fault_log import FaultLog
from covey.matcher.evaluation.strategies import DEFAULT


class EvaluationOptions(TypedDict, total=False):
    """`evaluation` names the strategy (`strategies.py`); `evaluator` is one to share instead."""

    evaluation: str
    evaluator: Evaluator | None


def evaluator_of(evaluation: str = DEFAULT, evaluator: Evaluator | None = None) -> Evaluator:
    """The evaluator of an engine. `CoveyError` for an unknown strategy."""
    return evaluator or Evaluator(evaluation, on_fault=FaultLog())
