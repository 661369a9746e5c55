"""The limits of named operators: turns, budgets, deadlines, suspensions."""

from covey.overlay.core.operators.operator_limits import NS_PER_S, Grant, Limiter, OperatorLimits

MS = 1_000_000
LIMITS = OperatorLimits(deadline_ms=200, turn_ms=100, operator_share=0.5, call_share=0.25)


def test_the_first_call_of_an_unknown_cost_is_small() -> None:
    limiter = Limiter(LIMITS)
    assert limiter.grant("f", 1, 256, 0) == Grant(16, 200 * MS)
    limiter.succeeded("f", 1, 16, 16 * MS // 10)
    assert limiter.grant("f", 1, 240, 2 * MS) == Grant(240, 200 * MS)


def test_a_declared_cost_stands_for_a_learned_one() -> None:
    limiter = Limiter(LIMITS)
    assert limiter.grant("f", 1, 256, 0, cost_us=100).events == 256
    assert limiter.grant("g", 1, 256, 0, cost_us=1e6).events == 1


def test_a_turn_is_used_up_by_all_operators_together() -> None:
    limiter = Limiter(LIMITS)
    limiter.grant("f", 1, 16, 0)
    limiter.succeeded("f", 1, 16, 60 * MS)
    assert limiter.grant("g", 2, 16, 60 * MS).events == 16
    limiter.succeeded("g", 2, 16, 40 * MS)
    assert limiter.grant("g", 2, 16, 100 * MS) == Grant(
        0, reason="waits for another turn: this one is used up"
    )
    limiter.begin_turn()
    assert limiter.grant("g", 2, 16, 100 * MS).events == 16


def test_a_call_is_no_longer_than_half_of_the_deadline_and_what_is_left() -> None:
    limiter = Limiter(LIMITS)
    limiter.grant("f", 1, 256, 0)
    limiter.succeeded("f", 1, 10, 10 * MS)
    limiter.begin_turn()
    assert limiter.grant("f", 1, 256, 10 * MS).events == 100  # of 1 ms each: the turn
    limiter.succeeded("f", 1, 100, 100 * MS)
    limiter.begin_turn()
    assert limiter.grant("f", 1, 256, 110 * MS).events == 100  # half of the deadline


def test_a_dear_call_uses_up_its_share_and_no_others() -> None:
    limiter = Limiter(LIMITS)
    now_ns = 0
    for _ in range(10):
        limiter.begin_turn()
        if limiter.grant("f", 1, 1, now_ns).events:
            limiter.succeeded("f", 1, 1, 100 * MS)
            now_ns += 100 * MS
    limiter.begin_turn()
    assert limiter.grant("f", 1, 1, now_ns) == Grant(0, reason="has used up its share of the time")
    assert limiter.grant("f", 2, 1, now_ns).events == 1
    assert limiter.grant("g", 1, 1, now_ns + NS_PER_S).events == 1


def test_a_share_refills_with_time() -> None:
    limiter = Limiter(LIMITS)
    limiter.grant("f", 1, 1, 0)
    limiter.succeeded("f", 1, 1, 300 * MS)
    limiter.begin_turn()
    assert not limiter.grant("f", 1, 1, 100 * MS).events
    assert limiter.grant("f", 1, 1, 300 * MS).events == 1


def test_faults_in_a_row_suspend_and_suspensions_double_until_a_success() -> None:
    limiter = Limiter(LIMITS)
    now_ns = 0
    for _ in range(3):
        assert limiter.grant("f", 1, 4, now_ns).events == 4
        limiter.failed("f", 1, MS, now_ns, "raised ValueError: no")
    reason = "is suspended for 1.0 s: it raised ValueError: no"
    assert limiter.grant("f", 1, 4, now_ns) == Grant(0, reason=reason)
    for seconds in (1, 2, 4):
        assert limiter.suspended_s("f", now_ns) == seconds
        now_ns += seconds * NS_PER_S
        assert limiter.grant("f", 1, 4, now_ns).events == 4
        limiter.failed("f", 1, MS, now_ns, "raised ValueError: no")
    now_ns += 8 * NS_PER_S
    limiter.grant("f", 1, 4, now_ns)
    limiter.succeeded("f", 1, 4, MS)
    assert limiter.why("f") == ""
    limiter.failed("f", 1, MS, now_ns, "raised ValueError: no")
    assert limiter.grant("f", 1, 4, now_ns).events == 4


def test_suspensions_have_a_longest() -> None:
    limiter = Limiter(LIMITS)
    now_ns = 0
    for _ in range(20):
        limiter.grant("f", 1, 4, now_ns)
        limiter.failed("f", 1, MS, now_ns, "did not answer within 200 ms", late=True)
        now_ns += round(limiter.suspended_s("f", now_ns) * NS_PER_S)
    assert limiter.suspended_s("f", now_ns - 1) < limiter.suspended_s("f", now_ns - 600 * NS_PER_S) == 600


def test_a_passed_deadline_suspends_at_once() -> None:
    limiter = Limiter(LIMITS)
    limiter.grant("f", 1, 4, 0)
    limiter.failed("f", 1, 200 * MS, 200 * MS, "did not answer within 200 ms", late=True)
    assert limiter.suspended_s("f", 200 * MS) == 1


def test_an_operator_is_off_while_too_many_of_its_calls_go_on() -> None:
    limiter = Limiter(LIMITS)
    assert limiter.grant("f", 1, 4, 0, abandoned=1).events == 4
    assert limiter.grant("f", 1, 4, 0, abandoned=2) == Grant(
        0, reason="is off: 2 of its calls have not ended"
    )


def test_budgets_of_old_calls_are_forgotten() -> None:
    limiter = Limiter(LIMITS)
    for key in range(5_000):
        limiter.begin_turn()
        assert limiter.grant(f"f{key}", key, 1, 0).events == 1
        limiter.succeeded(f"f{key}", key, 1, 250 * MS)
    limiter.begin_turn()
    known = [key for key in reversed(range(5_000)) if not limiter.grant(f"f{key}", key, 1, 0).events]
    assert known == [*reversed(range(5_000 - 4_096, 5_000))]
