"""Calls the function of an operator: at once, or under limits that the evaluator's owner sets.

Invariant: a runner never raises for what an operator does. Events without an answer are undecided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from covey.matcher.errors import OperatorError
from covey.matcher.events.results import Answers
from covey.matcher.operators.named_operator import NamedOperator

Compute = Callable[[int, int], Answers]
"""`compute(first, last)` calls the function on the events `first` to `last - 1` of a call and checks the
result. It raises as the function does, and `OperatorError` for a wrong result. It may run in another thread,
and end too late to count, so it changes nothing else."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a call: `parts` are the answers of its first `answered` events, in order.

    `reason` is why there are no more, as the end of a sentence about the operator. With `failed` it is the
    operator's fault: an exception, a wrong result, a passed deadline (even if the answer came); otherwise a
    limit left no time."""

    parts: list[Answers]
    answered: int
    took_ns: int = 0  # of the calls; 0 without a clock
    reason: str = ""
    failed: bool = False


class Runner(Protocol):
    """Calls the function of an operator for some events; `key` is the call's (`events/results.py`)."""

    def __call__(self, operator: NamedOperator, key: int, events: int, compute: Compute) -> Outcome: ...


def run_at_once(operator: NamedOperator, key: int, events: int, compute: Compute) -> Outcome:
    """The runner without limits and without a clock."""
    try:
        return Outcome([compute(0, events)], events)
    except Exception as error:  # of code that Covey does not know
        return Outcome([], 0, reason=reason_of(error), failed=True)


def timed(clock: Callable[[], int]) -> Runner:
    """The runner without limits that measures the time of operators by a clock in nanoseconds."""

    def run(operator: NamedOperator, key: int, events: int, compute: Compute) -> Outcome:
        start_ns = clock()
        return replace(run_at_once(operator, key, events, compute), took_ns=clock() - start_ns)

    return run


def reason_of(error: BaseException) -> str:
    """An exception of an operator as the end of a sentence: `raised ValueError: ...`."""
    if isinstance(error, OperatorError):
        return str(error)
    text = " ".join(str(error).split())[:200]
    return f"raised {type(error).__name__}" + (f": {text}" if text else "")
