"""What operators have cost and answered: an account per operator, and the cost and selectivity of each call.

Costs are in microseconds per event: declared, else measured by a runner with a clock, else 1. A call of which
little is known takes after its operator. (Liu et al., sections 3 and 4.3: selectivities are learned.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from covey.matcher.evaluation.bound_calls import BoundCall

Floats = npt.NDArray[np.float64]

MOST_CALLS = 1 << 16
"""Calls whose cost and selectivity are kept; those that were asked longest ago are forgotten."""
MOST_OPERATORS = 1_000
"""Accounts that are kept: filters may name operators that nobody has. Of more, unknown ones go first."""
_PRIOR = 8.0
"""Events that the selectivity and cost of an operator count for in those of its calls."""


@dataclass(slots=True)
class Account:
    """What one operator was asked and has answered; times in nanoseconds."""

    calls: int = 0
    """Calls of its function."""
    events: int = 0
    """Pairs of a call and an event that it was asked about."""
    true: int = 0
    """Of these, those that were true."""
    took_ns: int = 0
    """The time of its function; 0 without a clock."""
    failures: int = 0
    """Calls that raised, returned what they must not, or passed a deadline."""
    undecided: int = 0
    """Pairs of a call and an event without an answer: unknown here, failed, or over a limit."""
    reused: int = 0
    """Pairs of a call and an event whose answer the batch had already, however it came there."""


@dataclass(slots=True)
class _Learned:
    events: int = 0
    true: int = 0
    took_ns: int = 0


@dataclass(slots=True)
class Accounts:
    """Accounts by operator, and what is learned of calls by key."""

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
        """Add the answers of one call of a function."""
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
