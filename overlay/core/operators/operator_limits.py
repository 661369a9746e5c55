"""Limits of the time of named operators in a broker: which call may run now, on how many events, until when.

Three bounds. A *turn*, all that the broker does before it looks at its connections again, has `turn_ms` for
all operators together. Each operator, and each distinct call of one, has a *budget*: a share of every second,
saved up for one second. And one call has a *deadline*. What is over a bound is undecided, so the events go on
to the next broker and in the end to the subscriber, who evaluates: a dear operator costs traffic, never the
time of others.

An operator that passes its deadline is suspended at once, one that raises or returns what it must not after
some faults in a row; each suspension is twice as long as the last, until a call succeeds. Calls that go on
past their deadline are abandoned. While as many of one operator go on as the limit says, it is off.

A state machine without I/O: the time, in nanoseconds of a clock that never jumps, is given.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000
_FIRST_EVENTS = 16
"""Events of the first call of an operator whose cost nobody has declared, and of one after a suspension."""
_LEARNING_EVENTS = 64
"""A call of so many events, or more, has half of the weight in the learned cost; one of fewer less."""
_LEAST_NS = 5_000_000
"""With less time left than for a few events, and than this, there is no call: its cost would be its own."""
_MOST_CALLS = 4_096
"""Distinct calls whose budgets are stored; one that comes again after more others has a new one."""


@dataclass(frozen=True, slots=True)
class OperatorLimits:
    """The limits, as in the section `operators` of the overlay file (docs/operators.md)."""

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
    """What a call may do now: the number of its events, and the time that it has for them. Without events,
    `reason` is why, as what follows the operator's name and a colon.
    """

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
        """What is left at a time, in nanoseconds."""
        gained = round((now_ns - self._at_ns) * self._share)
        self._at_ns = now_ns
        self.left_ns = min(self._full_ns, self.left_ns + gained)
        return self.left_ns

    def spend(self, took_ns: int) -> None:
        self.left_ns = max(-self._full_ns, self.left_ns - took_ns)


class _Operator:
    """The state of one operator."""

    __slots__ = ("budget", "cost_ns", "faults", "probing", "suspended_until_ns", "suspension_ns", "why")

    def __init__(self, budget: Budget, cost_ns: float) -> None:
        self.budget = budget
        self.cost_ns = cost_ns
        """Of one event; 0: unknown."""
        self.faults = 0
        """In a row."""
        self.suspended_until_ns = 0
        self.suspension_ns = 0
        """The length of the last suspension; 0 after a success."""
        self.probing = False
        """Whether the next call is the first after a suspension."""
        self.why = ""


class Limiter:
    """The limits of all operators of one broker."""

    def __init__(self, limits: OperatorLimits) -> None:
        self._operators: dict[str, _Operator] = {}
        self._calls: OrderedDict[int, Budget] = OrderedDict()
        self.set_limits(limits, 0)

    def set_limits(self, limits: OperatorLimits, now_ns: int) -> None:
        """From now on other limits; every operator and call begins with a full budget."""
        self.limits = limits
        self._turn_left_ns = round(limits.turn_ms * _NS_PER_MS)
        shares_ns = min(limits.operator_share, limits.call_share) * NS_PER_S
        self._least_ns = min(_LEAST_NS, shares_ns / 2, self._turn_left_ns / 2)
        for operator in self._operators.values():
            operator.budget = Budget(limits.operator_share, now_ns)
        self._calls.clear()

    def begin_turn(self) -> None:
        """The broker begins another turn."""
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
        """How many of some events the next call of an operator may have. `abandoned` of its calls go on past
        their deadlines; `cost_us` is its declared cost.
        """
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
        """A call that was granted has answered."""
        operator = self._operators[name]
        operator.faults = operator.suspension_ns = 0
        operator.probing = False
        operator.why = ""
        cost_ns = took_ns / events
        weight = min(events, _LEARNING_EVENTS) / (2 * _LEARNING_EVENTS) if operator.cost_ns else 1.0
        operator.cost_ns += (cost_ns - operator.cost_ns) * weight
        self._spend(operator, key, took_ns)

    def failed(self, name: str, key: int, took_ns: int, now_ns: int, why: str, *, late: bool = False) -> None:
        """A call that was granted has failed, or passed its deadline (`late`); `why` is the end of a sentence
        about the operator.
        """
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
        """For how many seconds an operator gets no calls; 0 for one that does."""
        operator = self._operators.get(name)
        return 0.0 if operator is None else max(0.0, (operator.suspended_until_ns - now_ns) / NS_PER_S)

    def why(self, name: str) -> str:
        """Its last fault since it succeeded, as the end of a sentence; empty without one."""
        operator = self._operators.get(name)
        return "" if operator is None else operator.why

    def cost_us(self, name: str) -> float:
        """Its learned cost of one event; 0 while it is unknown."""
        operator = self._operators.get(name)
        return 0.0 if operator is None else operator.cost_ns / 1e3
