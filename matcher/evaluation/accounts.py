"""The costs and answers of operators: an account per operator, and the cost and selectivity of each call.

Costs are in microseconds per event: declared, else measured by a runner with a clock, else 1. A call with few
answers has the estimates of its operator. (Liu et al., sections 3 and 4.3: selectivities are learned.)"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from covey.matcher.evaluation.bound_calls import BoundCall

Floats = npt.NDArray[np.float64]

MOST_CALLS = 1 << 16  # calls with a cost and selectivity; the least recently evaluated one is evicted
MOST_OPERATORS = 1_000
"""Accounts kept; operators that were never called are evicted first, since filters may name unknown ones."""
_PRIOR = 8.0  # weight, in events, of an operator's estimate in the estimates of its calls


@dataclass(slots=True)
class Account:
    """The calls and answers of one operator; times in ns. An evaluation is a pair of a call and an event."""

    calls: int = 0  # of its function
    events: int = 0  # evaluations
    true: int = 0  # evaluations that were true
    took_ns: int = 0  # time of its function; 0 without a clock
    failures: int = 0  # calls that raised, returned a wrong result, or passed a deadline
    undecided: int = 0  # evaluations without an answer: unknown here, failed, or over a limit
    reused: int = 0  # evaluations whose answer was already in the batch


@dataclass(slots=True)
class _Learned:
    events: int = 0
    true: int = 0
    took_ns: int = 0


@dataclass(slots=True)
class Accounts:
    by_operator: dict[str, Account] = field(default_factory=dict)
    _learned: dict[int, _Learned] = field(default_factory=dict)

    def of(self, operator: str) -> Account:
        account = self.by_operator.get(operator)
        if account is None:
            if len(self.by_operator) >= MOST_OPERATORS:
                oldest = next(iter(self.by_operator))
                unasked = (name for name, each in self.by_operator.items() if not each.calls)
                del self.by_operator[next(unasked, oldest)]
            account = self.by_operator[operator] = Account()
        return account

    def add(self, call: BoundCall, events: int, true: int, took_ns: int) -> None:
        account = self.of(call.operator)
        account.calls += 1
        account.events += events
        account.true += true
        account.took_ns += took_ns
        learned = self._learned.pop(call.key, None) or _Learned()
        learned.events += events
        learned.true += true
        learned.took_ns += took_ns
        self._learned[call.key] = learned  # behind all others
        if len(self._learned) > MOST_CALLS:
            del self._learned[next(iter(self._learned))]

    def estimates(self, calls: Iterable[BoundCall]) -> tuple[Floats, Floats]:
        """The cost of each call for one event, in microseconds, and its selectivity."""
        priors: dict[str, tuple[float, float, bool]] = {}
        costs, selectivities = [], []
        none = _Learned()
        for call in calls:
            prior = priors.get(call.operator)
            if prior is None:
                prior = priors[call.operator] = self._prior(call)
            cost, selectivity, is_measured = prior
            learned = self._learned.get(call.key, none)
            weight = learned.events + _PRIOR
            if is_measured:
                cost = (learned.took_ns / 1_000 + _PRIOR * cost) / weight
            costs.append(cost)
            selectivities.append((learned.true + _PRIOR * selectivity) / weight)
        return np.array(costs, np.float64), np.array(selectivities, np.float64)

    def _prior(self, call: BoundCall) -> tuple[float, float, bool]:
        account, entry = self.of(call.operator), call.entry
        selectivity = (account.true + 1) / (account.events + 2)
        if entry is not None and entry.cost_us is not None:
            return entry.cost_us, selectivity, False
        if account.took_ns:
            return account.took_ns / 1_000 / max(account.events, 1), selectivity, True
        return 1.0, selectivity, False
