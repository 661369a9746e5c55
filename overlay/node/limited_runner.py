"""Calls named operators under limits of time: the `Runner` of a broker process.

The limits decide (`core/operators/operator_limits.py`); here are the clock, the thread and the turns of the
event loop. An operator that is `bounded` is called at once, any other in another thread, until its deadline.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from covey.matcher.evaluation.runner import Compute, Outcome, reason_of
from covey.matcher.events.results import Answers
from covey.matcher.operators.named_operator import NamedOperator
from covey.overlay.core.operators.operator_limits import Limiter
from covey.overlay.node.operator_threads import DeadlineError, OperatorThreads

log = logging.getLogger("covey.broker")


class LimitedRunner:
    """The runner of one broker, on the running event loop. `clock` is in nanoseconds."""

    def __init__(self, limiter: Limiter, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.limiter = limiter
        self.threads = OperatorThreads()
        self._clock = clock
        self._in_turn = False

    def __call__(self, operator: NamedOperator, key: int, events: int, compute: Compute) -> Outcome:
        limiter, name = self.limiter, operator.name
        if not self._in_turn:
            self._in_turn = True
            asyncio.get_running_loop().call_soon(self._end_turn)
        parts: list[Answers] = []
        answered = took_ns = 0
        while answered < events:
            start_ns = self._clock()
            abandoned = 0 if operator.bounded else self.threads.abandoned(name)
            grant = limiter.grant(
                name, key, events - answered, start_ns, abandoned=abandoned, cost_us=operator.cost_us
            )
            if not grant.events:
                return Outcome(parts, answered, took_ns, grant.reason)
            late, why = False, ""
            part = None
            call = partial(compute, answered, answered + grant.events)
            try:
                part = call() if operator.bounded else self.threads.run(name, call, grant.deadline_ns)
            except DeadlineError:
                late = True
            except BaseException as error:  # of code that Covey does not know, SystemExit among them
                why = reason_of(error)
                log.warning("operator %s %s", name, why, exc_info=error)
            now_ns = self._clock()
            took_ns += now_ns - start_ns
            # A library that keeps the GIL may return late and not be caught at it.
            if late or (not why and now_ns - start_ns > grant.deadline_ns):
                late, why = True, f"did not answer within {limiter.limits.deadline_ms:g} ms"
                log.warning("operator %s %s", name, why)
            if part is not None:
                parts.append(part)
                answered += grant.events
            if why:
                limiter.failed(name, key, now_ns - start_ns, now_ns, why, late=late)
                return Outcome(parts, answered, took_ns, why, failed=True)
            limiter.succeeded(name, key, grant.events, now_ns - start_ns)
        return Outcome(parts, answered, took_ns)

    def close(self) -> None:
        """End the thread."""
        self.threads.close()

    def _end_turn(self) -> None:
        """What the loop has called until now was one turn; connections that are ready come next."""
        self._in_turn = False
        self.limiter.begin_turn()
