"""Limits of the time of named operators in a broker. A state machine without I/O; times are nanoseconds of a
monotonic clock.

Three bounds. A *turn*, all that the broker does between two looks at its connections, has `turn_ms` for all
operators. Each operator, and each distinct call, has a *budget*: a share of time, saved up for at most one
second. Each call has a *deadline*. Over a bound, events stay undecided and are evaluated further on, at last
by the subscriber.

An operator is suspended at once when it passes its deadline, and after several faults in a row when it raises
or returns a wrong answer. Each suspension is twice as long as the last, until a call succeeds. Calls past
their deadline are abandoned; an operator with `abandoned_calls` still running is off."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000
_FIRST_EVENTS = 16
"""Events of the first call of an operator without a declared cost, and of the first after a suspension."""
_LEARNING_EVENTS = 64
"""Calls of at least so many events have weight 1/2 in the learned cost, smaller ones less."""
_LEAST_NS = 5_000_000
"""With less time left than this, and than for a few events, no call is made: overhead would exceed it."""
_MOST_CALLS = 4_096
"""Distinct calls whose budgets are stored, the latest ones; others begin anew."""


@dataclass(frozen=True, slots=True)
class OperatorLimits:
    """The section `operators` of the overlay file (docs/operators.md)."""

    deadline_ms: float = 200.0
    turn_ms: float = 50.0
    operator_share: float = 0.5
    call_share: float = 0.25
    faults_in_a_row: int = 3
    abandoned_calls: int = 2
    first_suspension_s: float = 1.0
    longest_suspension_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Grant:
    """A call may have `events`, and take `deadline_ns`. Without events, `reason` is why, behind the
    operator's name."""

    events: int
    deadline_ns: int = 0
    reason: str = ""


class Budget:
    """A share of the time, saved up for a second. It may be overdrawn by as much."""

    __slots__ = ("_at_ns", "_full_ns", "_share", "left_ns")

    def __init__(self, share: float, now_ns: int) -> None:
        self._share = share
        self._full_ns = round(share * NS_PER_S)
        self._at_ns = now_ns
        self.left_ns = self._full_ns

    def refill(self, now_ns: int) -> int:
        gained = round((now_ns - self._at_ns) * self._share)
        self._at_ns = now_ns
        self.left_ns = min(self._full_ns, self.left_ns + gained)
        return self.left_ns

    def spend(self, took_ns: int) -> None:
        self.left_ns = max(-self._full_ns, self.left_ns - took_ns)


class _Operator:
    """`cost_ns` is per event, 0 while unknown; `faults` are in a row; `suspension_ns` is the last, 0 after a
    success."""

    __slots__ = ("budget", "cost_ns", "faults", "probing", "suspended_until_ns", "suspension_ns", "why")

    def __init__(self, budget: Budget, cost_ns: float) -> None:
        self.budget = budget
        self.cost_ns = cost_ns
        self.faults = 0
        self.suspended_until_ns = 0
        self.suspension_ns = 0
        self.probing = False
        self.why = ""


class Limiter:
    def __init__(self, limits: OperatorLimits) -> None:
        self._operators: dict[str, _Operator] = {}
        self._calls: OrderedDict[int, Budget] = OrderedDict()
        self.set_limits(limits, 0)

    def set_limits(self, limits: OperatorLimits, now_ns: int) -> None:
        """Every operator and call begins with a full budget."""
        self.limits = limits
        self._turn_left_ns = round(limits.turn_ms * _NS_PER_MS)
        shares_ns = min(limits.operator_share, limits.call_share) * NS_PER_S
        self._least_ns = min(_LEAST_NS, shares_ns / 2, self._turn_left_ns / 2)
        for operator in self._operators.values():
            operator.budget = Budget(limits.operator_share, now_ns)
        self._calls.clear()

    def begin_turn(self) -> None:
        self._turn_left_ns = round(self.limits.turn_ms * _NS_PER_MS)

    def grant(
        self,
        name: str,
        key: int,
        events: int,
        now_ns: int,
        *,
        abandoned: int = 0,
        cost_us: float | None = None,
    ) -> Grant:
        """How many of `events` the next call `key` may have. `abandoned` of its calls still run; `cost_us` is
        declared."""
        operator = self._operators.get(name)
        if operator is None:
            budget = Budget(self.limits.operator_share, now_ns)
            operator = self._operators[name] = _Operator(budget, 1e3 * (cost_us or 0.0))
        if abandoned >= self.limits.abandoned_calls:
            return Grant(0, reason=f"is off: {abandoned} of its calls have not ended")
        if now_ns < operator.suspended_until_ns:
            left_s = (operator.suspended_until_ns - now_ns) / NS_PER_S
            return Grant(0, reason=f"is suspended for {left_s:.1f} s: it {operator.why}")
        budget_ns = min(operator.budget.refill(now_ns), self._call(key, now_ns).left_ns)
        left_ns = min(self._turn_left_ns, budget_ns)
        if left_ns <= min(operator.cost_ns * min(events, _FIRST_EVENTS), self._least_ns):
            if budget_ns > left_ns:
                return Grant(0, reason="waits for another turn: this one is used up")
            return Grant(0, reason="has used up its share of the time")
        deadline_ns = round(self.limits.deadline_ms * _NS_PER_MS)
        if operator.probing or not operator.cost_ns:
            events = min(events, _FIRST_EVENTS)
        if operator.cost_ns:
            events = max(1, min(events, int(min(left_ns, deadline_ns // 2) / operator.cost_ns)))
        return Grant(events, deadline_ns)

    def _call(self, key: int, now_ns: int) -> Budget:
        budget = self._calls.get(key)
        if budget is None:
            budget = self._calls[key] = Budget(self.limits.call_share, now_ns)
            if len(self._calls) > _MOST_CALLS:
                self._calls.popitem(last=False)
        else:
            self._calls.move_to_end(key)
            budget.refill(now_ns)
        return budget

    def succeeded(self, name: str, key: int, events: int, took_ns: int) -> None:
        operator = self._operators[name]
        operator.faults = operator.suspension_ns = 0
        operator.probing = False
        operator.why = ""
        cost_ns = took_ns / events
        weight = min(events, _LEARNING_EVENTS) / (2 * _LEARNING_EVENTS) if operator.cost_ns else 1.0
        operator.cost_ns += (cost_ns - operator.cost_ns) * weight
        self._spend(operator, key, took_ns)

    def failed(self, name: str, key: int, took_ns: int, now_ns: int, why: str, *, late: bool = False) -> None:
        """A granted call has failed, or passed its deadline (`late`); `why` ends a sentence."""
        operator, limits = self._operators[name], self.limits
        operator.faults += 1
        operator.why = why
        self._spend(operator, key, took_ns)
        if late or operator.probing or operator.faults >= limits.faults_in_a_row:
            longest_ns = round(limits.longest_suspension_s * NS_PER_S)
            first_ns = round(limits.first_suspension_s * NS_PER_S)
            operator.suspension_ns = min(longest_ns, 2 * operator.suspension_ns or first_ns)
            operator.suspended_until_ns = now_ns + operator.suspension_ns
            operator.probing = True

    def _spend(self, operator: _Operator, key: int, took_ns: int) -> None:
        self._turn_left_ns -= took_ns
        operator.budget.spend(took_ns)
        budget = self._calls.get(key)
        if budget is not None:
            budget.spend(took_ns)

    def suspended_s(self, name: str, now_ns: int) -> float:
        """Seconds until the operator gets calls again; 0 if it does now."""
        operator = self._operators.get(name)
        return 0.0 if operator is None else max(0.0, (operator.suspended_until_ns - now_ns) / NS_PER_S)

    def why(self, name: str) -> str:
        """The fault since the last success, as the end of a sentence; empty without one."""
        operator = self._operators.get(name)
        return "" if operator is None else operator.why

    def cost_us(self, name: str) -> float:
        """The learned cost of one event; 0 while unknown."""
        operator = self._operators.get(name)
        return 0.0 if operator is None else operator.cost_ns / 1e3
