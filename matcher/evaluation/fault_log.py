"""Faults of operators where nobody else is told: logged once per operator, the last one kept."""

from __future__ import annotations

import logging

from covey.matcher.evaluation.asking import Fault

log = logging.getLogger("covey.matcher")


class FaultLog:
    """Takes faults of an evaluator (`Evaluator.on_fault`); `last` has the last of each operator."""

    def __init__(self) -> None:
        self.last: dict[str, Fault] = {}

    def __call__(self, fault: Fault) -> None:
        if fault.operator not in self.last:
            log.warning("%s; events that need it to be decided are dropped, further faults not logged", fault)
        self.last[fault.operator] = fault
