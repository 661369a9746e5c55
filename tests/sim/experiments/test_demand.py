"""Requested and achieved rates of a machine."""

from itertools import pairwise

import pytest

from covey.sim.experiments.pages.site import Demand


def test_a_machine_is_behind_until_it_keeps_up_again() -> None:
    demand = Demand(4)
    at, reports, behind = 0.0, 0.0, []
    for reached_per_s in [100] * 6 + [50] * 6 + [92] * 6 + [100] * 6:
        demand.count(at, {"reports": reports, "delivered": 0}, {"reports": 100})
        behind.append(demand.behind)
        at, reports = at + 0.5, reports + 0.5 * reached_per_s
    # 85 % is behind; above 95 % is not.
    assert [at for at, (a, b) in enumerate(pairwise(behind)) if a != b] == [7, 19]
    assert demand.demanded_per_s == {"reports": 100}
    assert demand.reached_per_s["reports"] == pytest.approx(100)
    assert demand.reached_per_s["delivered"] == 0


def test_more_that_is_asked_for_is_no_shortfall() -> None:
    """Both sides cover the same seconds."""
    demand, reports = Demand(4), 0.0
    for at in range(40):
        rate = 10 if at < 20 else 1_000
        reports += rate if at else 0
        demand.count(at, {"reports": reports}, {"reports": rate})
        assert not demand.behind
        if at:
            assert demand.reached_per_s == pytest.approx(demand.demanded_per_s)


def test_nothing_is_asked_for() -> None:
    demand = Demand(2)
    for at in range(5):
        demand.count(at, {"reports": 0}, {"reports": 0})
        assert not demand.behind
