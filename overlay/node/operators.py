"""Calls named operators under time limits, which `core/operators/operator_limits.py` decides.

A `bounded` operator is called directly, any other in a thread until its deadline. Then the thread is
*abandoned*: an exception is raised in it, which ends a loop of Python at once, but a sleep or a library call
only when that returns. It stays alive until its call was seen to end, since the id by which it is interrupted
may be reused. A library that keeps the GIL cannot be bounded.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from queue import SimpleQueue
from typing import Any

from covey.matcher.evaluation.accounts import Account
from covey.matcher.evaluation.runner import Compute, Outcome, reason_of
from covey.matcher.events.results import Answers
from covey.matcher.operators.named_operator import NamedOperator
from covey.matcher.operators.table import find, why_missing
from covey.overlay.core.introspection.inspection import Listing
from covey.overlay.core.operators.operator_limits import Limiter
from covey.overlay.core.operators.operator_notices import Callers

_SWITCH_S = 0.0005
"""How long an abandoned thread that computes may keep the event loop waiting; Python's default is 5 ms."""
log = logging.getLogger("covey.broker")
_NONE = Account()
_COUNTS = ("subscriptions", "events", "reused", "true", "undecided", "failures")


class DeadlineError(Exception):
    """A call has not returned in time."""


class _Abandoned(BaseException):
    """Raised in a thread whose call has passed its deadline."""


class _Call:
    __slots__ = ("done", "error", "function", "result")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()


class _Thread(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="covey operators", daemon=True)
        self.calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._ending = False

    def run(self) -> None:
        call: _Call | None = None
        while not self._ending:
            try:
                if call is not None and call.done.locked():
                    call.done.release()
                call = None
                call = self.calls.get()
                if call is None:
                    continue
                try:
                    call.result = call.function()
                except BaseException as error:
                    call.error = error
                call.done.release()
            except _Abandoned:
                pass  # between two statements of this loop

    def end(self) -> None:
        """End after the current call. `interrupt` must not be called any more."""
        self._ending = True
        self.calls.put(None)

    def interrupt(self) -> None:
        """Raise `_Abandoned` in the call. Only before the call was seen to end."""
        if self.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self.ident), ctypes.py_object(_Abandoned)
            )


class OperatorThreads:
    """To be used by one thread."""

    def __init__(self) -> None:
        self._thread: _Thread | None = None
        self._abandoned: dict[str, list[tuple[_Thread, _Call]]] = {}
        self._switch_s = sys.getswitchinterval()

    def run(self, name: str, function: Callable[[], Any], deadline_ns: int) -> Any:
        """Returns or raises as the function; `DeadlineError` after `deadline_ns`, which abandons a thread
        under `name`."""
        thread = self._thread
        if thread is None:
            thread = self._thread = _Thread()
            thread.start()
        call = _Call(function)
        thread.calls.put(call)
        if not call.done.acquire(timeout=deadline_ns / 1e9):
            self._thread = None
            thread.interrupt()
            self._abandoned.setdefault(name, []).append((thread, call))
            sys.setswitchinterval(min(_SWITCH_S, self._switch_s))
            raise DeadlineError
        if call.error is not None:
            raise call.error
        return call.result

    def abandoned(self, name: str) -> int:
        """How many abandoned calls of `name` still run; interrupts them again."""
        abandoned = self._abandoned.get(name)
        if not abandoned:
            return 0
        ongoing = []
        for thread, call in abandoned:
            if call.done.locked() and thread.is_alive():
                thread.interrupt()
                ongoing.append((thread, call))
            else:
                thread.end()
        abandoned[:] = ongoing
        if not ongoing:
            del self._abandoned[name]
            if not self._abandoned:
                sys.setswitchinterval(self._switch_s)
        return len(ongoing)

    def close(self) -> None:
        """Abandoned threads end with their calls."""
        if self._thread is not None:
            self._thread.end()
            self._thread = None
        for abandoned in self._abandoned.values():
            for thread, _ in abandoned:
                thread.end()
        if self._abandoned:
            self._abandoned.clear()
            sys.setswitchinterval(self._switch_s)


class LimitedRunner:
    """On the running event loop. `clock` returns ns."""

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
        self.threads.close()

    def _end_turn(self) -> None:
        """Scheduled at a turn's first call, so it runs behind the other calls of that turn."""
        self._in_turn = False
        self.limiter.begin_turn()


def inspect_operators(
    callers: Callers, accounts: Mapping[str, Account], runner: LimitedRunner, listing: Listing
) -> dict[str, Any]:
    """As plain values for JSON, by name: operators that filters call or have called."""
    names = list(dict.fromkeys((*callers.operators(), *accounts)))
    now_ns = time.monotonic_ns()
    return {
        name: _inspect_operator(name, callers, accounts.get(name, _NONE), runner, now_ns)
        for name in listing.first(names, len(names), "operators")
    }


def _inspect_operator(
    name: str, callers: Callers, account: Account, runner: LimitedRunner, now_ns: int
) -> dict[str, Any]:
    operator, limiter = find(name), runner.limiter
    return {
        "version": None if operator is None else operator.version,
        "missing": why_missing(name) if operator is None else "",
        "evaluated_by_reader": operator is not None and operator.stateful,
        "subscriptions": callers.count(name),
        "calls": account.calls,
        "events": account.events,
        "true": account.true,
        "reused": account.reused,
        "undecided": account.undecided,
        "failures": account.failures,
        "seconds": round(account.took_ns / 1e9, 6),
        "cost_us": round(limiter.cost_us(name), 3),
        "suspended_s": round(limiter.suspended_s(name, now_ns), 3),
        "fault": limiter.why(name),
        "abandoned": runner.threads.abandoned(name),
    }


def render_operators(operators: Mapping[str, Any], listing: Listing) -> list[str]:
    """Empty without operators."""
    if not operators:
        return []
    rows: list[tuple[str, ...]] = [("operator", "version", *_COUNTS, "us/event")]
    for name, state in operators.items():
        counts = [state[count] for count in _COUNTS]
        version = "none" if state["version"] is None else str(state["version"])
        rows.append((name, version, *(f"{count:,}" for count in counts), f"{state['cost_us']:,.1f}"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["", "operators"]
    for row, state in zip(rows, (None, *operators.values()), strict=True):
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        lines.append(f"  {'  '.join(cells)}{'' if state is None else _remark(state)}")
    return lines + listing.more("operators", "  ")


def _remark(state: Mapping[str, Any]) -> str:
    if state["missing"]:
        return f"  missing: {state['missing']}; events are passed on"
    if state["evaluated_by_reader"]:
        return "  with state: the reader evaluates it"
    if state["abandoned"]:
        return f"  {state['abandoned']} calls have not ended; {state['fault']}"
    if state["suspended_s"]:
        return f"  suspended for {state['suspended_s']:.1f} s: {state['fault']}"
    return f"  last fault: {state['fault']}" if state["fault"] else ""
