"""`benchmarks soak`: its verdicts. The run itself takes minutes, beside the tests of `make test-all`."""

import numpy as np
import pytest
import typer

from benchmarks.harness import command
from benchmarks.soak import Arrivals, SoakPlan, SoakResult, judged_from, show, slope_of


@pytest.mark.parametrize(
    ("batches", "counts"),
    [
        ([[0, 1, 2], [3, 4]], (5, 0, 0)),
        ([[0, 1], [4, 5]], (4, 2, 0)),
        ([[0, 1, 1], [2]], (4, 0, 1)),
        ([[0, 2, 1, 3]], (4, 1, 1)),
        ([[1], [2]], (2, 1, 0)),
    ],
)
def test_missed_and_repeated_events_are_counted(
    batches: list[list[int]], counts: tuple[int, int, int]
) -> None:
    arrivals = Arrivals()
    for batch in batches:
        arrivals.add(np.array(batch))
    assert (arrivals.delivered, arrivals.missed, arrivals.repeated) == counts


@pytest.mark.parametrize(
    ("percent_per_hour", "hours", "flat"),
    [(0.0, 1.0, True), (0.8, 1.0, True), (1.3, 1.0, False), (1.3, 0.1, True), (90.0, 0.1, False)],
)
def test_memory_is_flat_by_its_slope(percent_per_hour: float, hours: float, flat: bool) -> None:
    rng = np.random.default_rng(5)
    seconds = np.arange(0.0, 3600.0 * hours, 5.0)
    memory = 200.0 * (1 + percent_per_hour / 100 * seconds / 3600) + rng.normal(0, 0.02, len(seconds))
    slope = slope_of(seconds + 700.0, memory, 3600.0 * hours)
    assert slope.low < percent_per_hour < slope.high
    assert slope.low < slope.percent_per_hour < slope.high
    assert slope.flat is flat


@pytest.mark.parametrize(("seconds", "start"), [(60.0, 30.0), (300.0, 150.0), (3_600.0, 720.0)])
def test_memory_is_judged_once_caches_have_filled(seconds: float, start: float) -> None:
    assert judged_from(seconds) == start


def test_caches_that_fill_in_the_first_minutes_are_no_leak() -> None:
    seconds = np.arange(0.0, 300.0, 5.0)
    memory = 320.0 + 18.0 * np.minimum(seconds / 145.0, 1.0) + 5.0 * (seconds > 225.0)
    judged = seconds >= judged_from(300.0)
    assert slope_of(seconds[judged], memory[judged], 300.0).flat
    leaking = memory + 0.15 * seconds
    assert not slope_of(seconds[judged], leaking[judged], 300.0).flat


def test_the_result_says_whether_the_run_passed(capsys: pytest.CaptureFixture[str]) -> None:
    assert SoakResult(1).passed
    assert not SoakResult(1, missed=1).passed
    assert not SoakResult(1, flat=False).passed
    show(SoakPlan(), SoakResult(1))
    assert "left behind: nothing" in capsys.readouterr().out


def test_a_benchmark_that_does_not_pass_ends_with_1() -> None:
    fails = command(SoakPlan, lambda *_: SoakResult(1, missed=1), show, passed=lambda result: result.passed)
    with pytest.raises(typer.Exit) as ended:
        fails(json_output=True, seconds=1.0, rate=0, visitors=0, seed=0)
    assert ended.value.exit_code == 1
