"""Estimates from runs of several seeds."""

from math import inf

import pytest

from covey.sim.experiments.papers.estimates import Estimate, gain, mean


def test_a_mean_has_students_interval() -> None:
    estimate = mean([1.0, 2.0, 3.0, 4.0, 5.0])
    assert estimate.value == 3.0
    assert estimate.high - 3.0 == pytest.approx(2.776 * 1.5811 / 5**0.5, rel=1e-3)
    assert mean([2.0]).high == inf


def test_a_gain_is_that_of_each_seed() -> None:
    estimate = gain([20.0, 40.0, 80.0], [10.0, 20.0, 40.0])
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((2.0, 2.0, 2.0))


def test_a_run_that_counted_none_counts() -> None:
    estimate = gain([6.0, 5.0, 7.0], [0.0, 2.0, 1.0], unit=0.1)
    assert estimate.value == pytest.approx(6.0)
    assert estimate.low < 6.0 < estimate.high
    none = gain([6.0, 6.0], [0.0, 0.0], unit=0.1)
    assert none.above
    rest = (none.value / (none.value + 1)) ** 120
    assert rest == pytest.approx(0.05), "all of 120 events on one side has this probability at the bound"
    assert str(none) == "> 39.6"
    few = gain([0.1, 0.3], [0.0, 0.0], unit=0.1)
    assert few.value < 1, "four events against none do not show which is larger"
    assert gain([0.0], [0.0], unit=0.1) is None


def test_a_whisker_is_drawn_only_for_an_interval() -> None:
    assert Estimate(2.0, 1.0, 3.0, 5).drawn == (2.0, 1.0, 3.0)
    for bare in (Estimate(2.0, 2.0, inf, 5, above=True), Estimate(2.0, 0.0, inf, 1), Estimate.exact(2.0)):
        assert bare.drawn == 2.0


def test_a_ratio_below_a_limit() -> None:
    assert Estimate(4.0, 2.0, 5.0, 5).under(2.0) == Estimate(0.5, 0.4, 1.0, 5)
    assert Estimate(4.0, 0.0, inf, 5).under(2.0) == Estimate(0.5, 0.0, inf, 5)
