"""Verdicts: a planted wrong result of each kind, and the grounds of a decision."""

from math import inf

import pytest

from covey.sim.experiments.papers.estimates import Estimate, gain
from covey.sim.experiments.papers.verdicts import Claim, Verdict, beside, compared, decide, extremes

HOLDS, SMALLER, NOT_HERE, OPPOSITE, UNDECIDED = Verdict
RISING = [Estimate(1.2, 1.15, 1.3, 5), Estimate(4.0, 3.7, 4.4, 5), Estimate(8.0, 7.5, 8.5, 5)]
SLOWER = Estimate(0.4, 0.35, 0.45, 5)
SAME = Estimate(1.0, 0.99, 1.04, 5)
WIDE = Estimate(3.0, 0.8, 11.0, 5)


@pytest.mark.parametrize(
    ("claim", "effects", "verdict"),
    [
        (Claim(8.0, up_to=True), RISING, HOLDS),
        (Claim(8.0), RISING, SMALLER),  # at every point, where the first reaches 1.2 alone
        (Claim(), RISING, HOLDS),
        (Claim(9.0, up_to=True), RISING, SMALLER),
        (Claim(8.0, up_to=True), [*RISING, SAME], HOLDS),  # no effect at a low rate
        (Claim(), [*RISING, SAME], SMALLER),
        (Claim(8.0, up_to=True), [*RISING, SLOWER], OPPOSITE),  # the best point hides none that is reversed
        (Claim(8.0, up_to=True), [SAME, SAME], NOT_HERE),
        (Claim(), [SAME], NOT_HERE),  # 1.00 to 1.04 is no lead
        (Claim(), [SLOWER], OPPOSITE),
        (Claim(8.0, up_to=True), [WIDE], UNDECIDED),
        (Claim(), [Estimate(8.0, 0.0, inf, 1)], UNDECIDED),
        (Claim(), [Estimate(8.0, 7.9, 8.1, 4)], UNDECIDED),  # four seeds
        (Claim(), [Estimate.exact(1.2)], HOLDS),
        (Claim(), [Estimate.exact(0.9)], OPPOSITE),
        (Claim(), [RISING[0], None], SMALLER),  # a point that was not measured
        (Claim(), [], UNDECIDED),
        (Claim(4.4, up_to=True), [Estimate(10.2, 3.1, 34.0, 5)], SMALLER),  # 3.1 does not show 4.4
    ],
)
def test_a_claim_is_decided_by_intervals_at_every_point(claim, effects, verdict):
    assert decide(claim, effects) is verdict


@pytest.mark.parametrize("planted", [HOLDS, SMALLER, NOT_HERE, OPPOSITE])
def test_a_planted_result_of_each_kind_has_its_verdict_and_no_other(planted):
    """Five seeds of a system that gains four times, twice, nothing or the contrary, for a claim of four."""
    factor = {HOLDS: 4.1, SMALLER: 2.0, NOT_HERE: 1.0, OPPOSITE: 0.5}[planted]
    before = [100.0, 103.0, 98.0, 101.0, 99.0]
    after = [factor * x * noise for x, noise in zip(before, (1.01, 0.99, 1.0, 1.02, 0.98), strict=True)]
    assert decide(Claim(4.0), [gain(after, before)] * 3) is planted


def test_what_a_baseline_does_not_fail_tells_nothing():
    assert beside(HOLDS, [NOT_HERE, OPPOSITE]) is HOLDS
    assert beside(OPPOSITE, []) is OPPOSITE
    for passed in (HOLDS, SMALLER, UNDECIDED):
        assert beside(HOLDS, [NOT_HERE, passed]) is UNDECIDED


def test_none_on_the_paper_s_side_is_a_reversed_result():
    reversed_ = gain([0.0] * 5, [6.0, 5.0, 7.0, 6.0, 5.0], unit=0.1)
    assert reversed_ is not None
    assert str(reversed_).startswith("< 0.0")
    assert decide(Claim(6.0, up_to=True), [reversed_]) is OPPOSITE


def test_words_state_the_worst_point_and_count_no_lead_without_an_interval():
    assert extremes({"0.2": SLOWER, "0.9": RISING[2], "0": None}) == (
        "at worst 0.40 (0.35 to 0.45) (0.2), at best 8.00 (7.50 to 8.50) (0.9)"
    )
    assert extremes({"0": None}) == "nothing was measured"
    single = Estimate(3.0, 0.0, inf, 1)
    assert compared([RISING[0], SAME, SLOWER, single, WIDE], "cases") == (
        "ahead in 1 of 5 cases, behind in 1, equal within 1.05 times in 1, open in 2"
    )
