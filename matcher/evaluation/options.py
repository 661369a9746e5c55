"""How an engine evaluates the calls of named operators: options that all engines take."""

from __future__ import annotations

import logging
from typing import TypedDict

from covey.matcher.evaluation.asking import Fault
from covey.matcher.evaluation.evaluator import Evaluator
from covey.matcher.evaluation.strategies import DEFAULT

log = logging.getLogger("covey.matcher")


class FaultLog:
    """Takes faults of an evaluator (`Evaluator.on_fault`); `last` has the last of each operator."""

    def __init__(self) -> None:
        self.last: dict[str, Fault] = {}

    def __call__(self, fault: Fault) -> None:
        if fault.operator not in self.last:
            log.warning("%s; events that need it to be decided are dropped, further faults not logged", fault)
        self.last[fault.operator] = fault


class EvaluationOptions(TypedDict, total=False):
    """`evaluation` names the strategy (`strategies.py`); `evaluator` is one to share instead."""

    evaluation: str
    evaluator: Evaluator | None


def evaluator_of(evaluation: str = DEFAULT, evaluator: Evaluator | None = None) -> Evaluator:
    """The evaluator of an engine. `CoveyError` for an unknown strategy."""
    return evaluator or Evaluator(evaluation, on_fault=FaultLog())
