"""How an engine evaluates the calls of named operators: options that all engines take."""

from __future__ import annotations

from typing import TypedDict

from covey.matcher.errors import CoveyError
from covey.matcher.evaluation.evaluator import Evaluator
from covey.matcher.evaluation.problem import TRUE, UNDECIDED
from covey.matcher.evaluation.strategies import DEFAULT, STRATEGIES

DROP, PASS = "drop", "pass"


class EvaluationOptions(TypedDict, total=False):
    """Options of every engine: `evaluation` names the strategy (`evaluation/strategies.py`), `evaluator` is
    one to share; `undecided` says whether pairs that no operator here can decide are dropped, or passed on
    to a later reader, as brokers do, which also leave operators with state to it.
    """

    evaluation: str
    evaluator: Evaluator | None
    undecided: str


class Evaluation:
    """The evaluator of an engine, and what becomes of undecided pairs."""

    def __init__(
        self, evaluation: str = DEFAULT, evaluator: Evaluator | None = None, undecided: str = DROP
    ) -> None:
        """`CoveyError` for an option that has no such value."""
        if undecided not in (DROP, PASS):
            raise CoveyError(f"undecided {undecided!r}: expected {DROP} or {PASS}")
        if evaluation not in STRATEGIES:
            raise CoveyError(f"evaluation {evaluation!r}: expected one of {', '.join(STRATEGIES)}")
        self.evaluator = evaluator or Evaluator(evaluation)
        self.readers = undecided == DROP
        self.least = TRUE if undecided == DROP else UNDECIDED
        """The least truth of a match."""
