"""Operators that hang, raise or are expensive, called under limits by a broker's runner."""

import asyncio
import itertools
import re
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from running import eventually

from covey.matcher.errors import OperatorError
from covey.matcher.evaluation.runner import Compute, Outcome
from covey.matcher.events.event_type import Kind
from covey.matcher.events.results import Answers
from covey.matcher.operators.named_operator import NamedOperator, Parameter
from covey.overlay.core.operators.operator_limits import Limiter, OperatorLimits
from covey.overlay.node.operators import DeadlineError, LimitedRunner, OperatorThreads

# Calls on a busy machine meet this deadline; slow operators take time by the test's clock.
LIMITS = OperatorLimits(deadline_ms=60_000, turn_ms=50)


def operator(name: str = "slow", bounded: bool = False, cost_us: float | None = None) -> NamedOperator:
    parameter = Parameter("x", frozenset({Kind.INT64}))
    return NamedOperator(name, (parameter,), evaluate=lambda x: x, bounded=bounded, cost_us=cost_us)


def all_true(first: int, last: int) -> Answers:
    return Answers(np.arange(first, last), np.ones(last - first, np.bool_))


def run(runner: LimitedRunner, compute: Compute, events: int = 4, **options: object) -> Outcome:
    async def call() -> Outcome:
        return runner(operator(**options), 1, events, compute)

    return asyncio.run(call())


def answered(outcome: Outcome) -> list[int]:
    return [row for part in outcome.parts for row in part.rows.tolist()]


@pytest.mark.parametrize("bounded", [True, False])
def test_a_call_is_answered_in_parts_of_bounded_time(bounded: bool) -> None:
    sizes: list[int] = []

    def compute(first: int, last: int) -> Answers:
        sizes.append(last - first)
        return all_true(first, last)

    runner = LimitedRunner(Limiter(LIMITS), itertools.count().__next__)
    outcome = run(runner, compute, 100, bounded=bounded)
    assert answered(outcome) == list(range(100))
    assert (outcome.answered, outcome.reason, outcome.failed) == (100, "", False)
    assert sizes[0] == 16
    assert outcome.took_ns > 0


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt()])
def test_an_exception_is_a_fault(error: BaseException, bounded: bool) -> None:
    def compute(first: int, last: int) -> Answers:
        raise error

    runner = LimitedRunner(Limiter(LIMITS), itertools.count().__next__)
    outcome = run(runner, compute, bounded=bounded)
    assert outcome.failed
    assert outcome.reason.startswith(f"raised {type(error).__name__}")
    run(runner, compute, bounded=bounded)
    run(runner, compute, bounded=bounded)
    suspended = run(runner, all_true, bounded=bounded)
    assert not suspended.failed
    assert suspended.reason.startswith("is suspended for")
    assert answered(suspended) == []


def test_a_wrong_result_is_told_in_its_own_words() -> None:
    def compute(first: int, last: int) -> Answers:
        raise OperatorError("returned a str: expected 4 truths")

    assert run(LimitedRunner(Limiter(LIMITS)), compute).reason == "returned a str: expected 4 truths"


def test_a_loop_of_python_ends_after_its_deadline() -> None:
    ended = threading.Event()

    def spin(first: int, last: int) -> Answers:
        try:
            while True:
                pass
        finally:
            ended.set()

    limits = replace(LIMITS, deadline_ms=100, first_suspension_s=600)
    runner = LimitedRunner(Limiter(limits))
    start_s = time.monotonic()
    outcome = run(runner, spin)
    held_s = time.monotonic() - start_s
    assert outcome == Outcome([], 0, outcome.took_ns, "did not answer within 100 ms", failed=True)
    assert held_s < 10
    assert ended.wait(60)
    eventually(lambda: not runner.threads.abandoned("slow"))
    assert sys.getswitchinterval() == pytest.approx(0.005)
    reason = run(runner, all_true).reason
    assert re.match(r"is suspended for [\d.]+ s: it did not answer within 100 ms", reason)


def test_calls_that_do_not_end_are_bounded_in_number() -> None:
    release = threading.Event()
    threads = OperatorThreads()
    for ongoing in (1, 2):
        with pytest.raises(DeadlineError):
            threads.run("slow", release.wait, 20_000_000)
        assert threads.abandoned("slow") == ongoing
    assert threads.abandoned("other") == 0
    assert threads.run("other", lambda: 5, 10**10) == 5
    release.set()
    eventually(lambda: not threads.abandoned("slow"))
    threads.close()


def test_what_returns_too_late_counts_as_late() -> None:
    now_ns = 0

    def late(first: int, last: int) -> Answers:
        nonlocal now_ns
        now_ns += 61_000_000_000
        return all_true(first, last)

    runner = LimitedRunner(Limiter(LIMITS), lambda: now_ns)
    outcome = run(runner, late, bounded=True)
    assert (outcome.failed, outcome.answered) == (True, 4)
    assert runner.limiter.suspended_s("slow", now_ns) == 1.0


def test_a_dear_operator_answers_for_one_turn_and_again_in_the_next() -> None:
    now_ns = 0

    def dear(first: int, last: int) -> Answers:
        nonlocal now_ns
        now_ns += 10_000_000 * (last - first)
        return all_true(first, last)

    runner = LimitedRunner(Limiter(LIMITS), lambda: now_ns)

    async def two_turns() -> tuple[Outcome, Outcome]:
        one = runner(operator(cost_us=10_000), 1, 100, dear)
        await asyncio.sleep(0)
        return one, runner(operator(cost_us=10_000), 1, 100, dear)

    one, other = asyncio.run(two_turns())
    for outcome in (one, other):
        assert outcome.answered == 5  # of 10 ms, in a turn of 50 ms
        assert (outcome.reason, outcome.failed) == ("waits for another turn: this one is used up", False)


def test_no_thread_is_interrupted_that_may_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may be another thread's by then."""
    release = threading.Event()
    threads = OperatorThreads()
    with pytest.raises(DeadlineError):
        threads.run("slow", release.wait, 20_000_000)
    ((thread, _),) = threads._abandoned["slow"]
    interrupted: list[bool] = []
    interrupt, is_alive = thread.interrupt, thread.is_alive

    def ends_now() -> bool:
        release.set()
        thread.join(0.3)
        return True

    monkeypatch.setattr(thread, "is_alive", ends_now)
    monkeypatch.setattr(thread, "interrupt", lambda: (interrupted.append(is_alive()), interrupt()))
    assert threads.abandoned("slow") == 1
    assert interrupted == [True]
    eventually(lambda: not threads.abandoned("slow"))
    thread.join(60)
    assert not is_alive()


def test_close_ends_threads_whose_calls_end_later() -> None:
    release = threading.Event()
    threads = OperatorThreads()
    with pytest.raises(DeadlineError):
        threads.run("slow", release.wait, 20_000_000)
    ((thread, _),) = threads._abandoned["slow"]
    threads.close()
    assert sys.getswitchinterval() == pytest.approx(0.005)
    release.set()
    thread.join(60)
    assert not thread.is_alive()
