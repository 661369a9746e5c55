"""How the calls of named operators in a filter are answered at one broker, for `covey explain`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from covey.matcher.evaluation.problem import FALSE, UNDECIDED
from covey.matcher.evaluation.residues import Residues
from covey.matcher.events.batch import EventBatch
from covey.matcher.operators.table import find

if TYPE_CHECKING:
    from covey.matcher.evaluation.asking import Fault
    from covey.matcher.evaluation.evaluator import Evaluator
    from covey.matcher.expressions.expression import Scalar
    from covey.matcher.filters.filter import Filter


@dataclass(frozen=True, slots=True)
class ExplainedCalls:
    """The truth of each call of a filter for one event, a sentence each. An event whose residue is
    `undecided` is passed on.
    """

    sentences: list[str]
    matches: bool
    undecided: bool


def explain_calls(
    evaluator: Evaluator,
    broker_id: str,
    filter: Filter,
    values: Mapping[str, Scalar],
    event: Mapping[str, object],
) -> ExplainedCalls:
    """Ask the operators that a filter with calls names about one event, as this broker would. Accounts and
    notices do not change.
    """
    faults: dict[str, Fault] = {}

    def note(fault: Fault) -> None:
        faults.setdefault(fault.operator, fault)

    aside = evaluator.aside(note)
    known = {name: value for name, value in event.items() if name in filter.event_type.attributes}
    batch = EventBatch.from_pylist(filter.event_type, [known])
    residues = Residues()
    number = residues.add(filter, values)
    row = np.zeros(1, np.int64)
    (truth,) = aside.decide(batch, residues, row, np.array([number]), readers=False)
    sentences = aside.explain(batch, residues, number, filter.substitute(values), readers=False)
    for operator in dict.fromkeys(call.operator for call in filter.calls):
        entry = find(operator)
        if operator in faults:
            sentences.append(f"operator {operator} at {broker_id} {faults[operator].reason}")
        elif entry is not None and entry.stateful:
            sentences.append(f"operator {operator} has state: the client evaluates it")
    is_passed = filter.gate.matches(known, {name: values[name] for name in filter.gate.variables})
    return ExplainedCalls(
        sentences, bool(is_passed and truth != FALSE), bool(is_passed and truth == UNDECIDED)
    )
