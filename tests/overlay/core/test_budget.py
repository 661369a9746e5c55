"""The permits of a connection."""

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from covey.overlay.core.budget import AMPLE, PERMITS, PERMITS_PER_S, UNTRUSTED, Budget

SECOND = 1_000_000_000


def taken(budget: Budget, now_ns: int) -> int:
    return next(number for number in count() if not budget.take(1.0, now_ns))


def test_a_budget_is_spent_and_refills() -> None:
    budget = Budget(0, trusted=True)
    assert taken(budget, 0) == PERMITS
    assert taken(budget, SECOND) == PERMITS_PER_S - 1
    assert taken(budget, 100 * SECOND) == PERMITS


def test_before_it_is_trusted_a_peer_has_a_tenth() -> None:
    budget = Budget(0)
    assert taken(budget, 0) == PERMITS * UNTRUSTED
    assert taken(budget, SECOND) == PERMITS_PER_S * UNTRUSTED - 1
    budget.trust()
    assert taken(budget, SECOND) == PERMITS // 2


def test_a_peer_is_served_at_once_while_it_takes_hardly_anything() -> None:
    budget = Budget(0)
    assert not budget.ample(SECOND)
    budget.trust()
    assert not budget.ample(SECOND // 2), "trust grows with time"
    assert budget.ample(3 * SECOND)
    assert budget.take(PERMITS * (1 - AMPLE) + 1, 3 * SECOND)
    assert not budget.ample(3 * SECOND)
    assert budget.ample(4 * SECOND)


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0, 1_000), st.integers(0, SECOND))))
def test_what_is_earned_never_passes_the_bound(steps: list[tuple[float, float, int]]) -> None:
    budget, now_ns = Budget(0, trusted=True), 0
    for permits, earned, passed_ns in steps:
        now_ns += passed_ns
        budget.left += earned
        budget.take(permits, now_ns)
    assert taken(budget, now_ns) <= PERMITS
