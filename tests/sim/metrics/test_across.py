"""Runs of a sweep compared: the names of their settings, their spread, and their colours."""

import csv
from pathlib import Path
from typing import Any

from run_summaries import summary

from covey.sim.experiments.sweep import load_sweep
from covey.sim.metrics import compare, write_csv
from covey.sim.metrics.run_report import conclusion, label, looks, plots, report_of
from covey.sim.reports import Bars
from covey.sim.reports.colours import KNOWN, styles
from covey.sim.scenario.scenario import Scenario

SWEEP = """
vary:
  system:
    re-subscribe: {routing: static, resubscribe: unsubscribe-first}
    move: {routing: parametric}
  update_rate: [1, 16]
seeds: SEEDS
"""


def runs_of(folder: Path, text: str = SWEEP, seeds: int = 2) -> list[dict[str, Any]]:
    """Metrics of the runs of a sweep file; the throughput is the seed, times ten."""
    (folder / "sweep.yaml").write_text(text.replace("SEEDS", str(seeds)))
    return [
        summary(run.name, run.scenario, 10.0 * run.scenario.seed, run.choices)
        for run in load_sweep(folder / "sweep.yaml")
    ]


def test_settings_have_the_names_of_their_choices(tmp_path: Path) -> None:
    runs = runs_of(tmp_path)
    groups = compare(runs)
    assert [group.parameters for group in groups] == [
        {"system": name, "update_rate": rate} for name in ("re-subscribe", "move") for rate in (1, 16)
    ]
    assert {label(group, "update_rate") for group in groups} == {"re-subscribe", "move"}
    report = report_of(runs, groups)
    assert (
        "Of `system`, re-subscribe is routing static, resubscribe unsubscribe-first; "
        "move is routing parametric."
    ) in report.notes
    write_csv(tmp_path / "runs.csv", runs)
    rows = list(csv.DictReader((tmp_path / "runs.csv").open()))
    assert [row["choice.system"] for row in rows] == ["re-subscribe"] * 4 + ["move"] * 4


def test_a_field_that_choices_do_not_determine_stays_a_parameter(tmp_path: Path) -> None:
    runs = runs_of(tmp_path)
    for run in runs[:2]:
        run["scenario"]["resubscribe"] = "subscribe-first"  # as in another sweep with the same names
    assert list(compare(runs)[0].parameters) == ["system", "update_rate", "resubscribe"]
    nameless = [run | {"choices": {}} for run in runs_of(tmp_path)]
    assert list(compare(nameless)[0].parameters) == ["update_rate", "routing"]
    assert list(compare([*nameless[:4], *runs_of(tmp_path)[4:]])[0].parameters) == ["update_rate", "routing"]


def test_whiskers_of_two_seeds_are_their_range_and_never_negative(tmp_path: Path) -> None:
    for seeds, interval, text in (
        (2, (0.0, 10.0), "Whiskers are the least and the greatest value: an interval takes 3 seeds."),
        (3, (0.0, 34.84), "Whiskers are 95 % intervals of the mean over the seeds"),
    ):
        runs = runs_of(tmp_path, seeds=seeds)
        group = compare(runs)[0]
        low, high = group.intervals["throughput_events_per_s"] or (None, None)
        assert (low, round(high or 0.0, 2)) == interval
        assert any(each.startswith(text) for each in report_of(runs, compare(runs)).sections[0].text)


def test_a_system_has_its_colour_whatever_its_choice_is_called(tmp_path: Path) -> None:
    groups = compare(runs_of(tmp_path))
    assert looks(groups) == {"re-subscribe": "unsubscribe-first", "move": "parametric"}
    chosen = styles(["move", "re-subscribe"], looks(groups))
    assert {name: style.colour for name, style in chosen.items()} == {
        "move": KNOWN["parametric"].colour,
        "re-subscribe": KNOWN["unsubscribe-first"].colour,
    }
    brokers = compare(runs_of(tmp_path, "vary: {size: {small: {brokers: 4}, large: {brokers: 40}}}"))
    assert looks(brokers) == {}, "two settings of one system have colours of their own"


def test_a_single_run_has_the_colour_of_its_system() -> None:
    for scenario, system in (
        (Scenario(), "parametric"),
        (Scenario(routing="static"), "subscribe-first"),
        (Scenario(engine="cluster"), "covey-parametric"),
    ):
        groups = compare([summary("mine", scenario, 11.0)])
        figure = plots(groups)["throughput_events_per_s"]
        assert figure.plot.styled == [system]
        assert styles(figure.plot.styled, looks(groups))[system].colour == KNOWN[system].colour


def test_figures_of_many_settings_are_bounded(tmp_path: Path) -> None:
    sizes = "".join(f"    s{n}: {{brokers: {n + 2}}}\n" for n in range(70))
    for more, bound in (("", 60), ("  update_rate: [1, 2]\n", 24)):
        runs = runs_of(tmp_path, f"vary:\n  size:\n{sizes}{more}")
        figure = plots(compare(runs))["delay_ms_p50"]
        assert len(figure.plot.groups if isinstance(figure.plot, Bars) else figure.plot.series) == bound
        assert f"The first {bound} of 70 settings; the table has all." in figure.caption


def test_a_page_says_what_can_be_compared_where_brokers_take_no_time() -> None:
    for cpu, share, said in (("free", 0.0, True), ("free", 0.4, False), ("measured", 0.0, False)):
        run = summary("mine", Scenario(cpu=cpu), 11.0) | {"busiest_share": share}
        notes = report_of([run], compare([run])).notes
        assert any("--cpu measured" in note for note in notes) is said


def test_the_conclusion_counts_what_was_excused_and_lost() -> None:
    run = summary("mine", Scenario(), 11.0)
    (first, *_) = conclusion([run], compare([run]))
    assert "112 expected deliveries, 2 of them excused" in first
    lossy = run | {"missed": 3, "lost": 3}
    (first, *_) = conclusion([lossy], compare([lossy]))
    assert "3 were missed, 3 of them where a change may lose events" in first


def test_the_conclusion_does_not_say_that_a_run_that_was_killed_missed_nothing() -> None:
    killed = summary("mine", Scenario(), 11.0) | {"complete": False, "missed": None}
    (first, *_) = conclusion([killed], compare([killed]))
    assert first.startswith("How many events were missed in the run, which has not ended, is unknown (112 ")
    ended = summary("other", Scenario(), 11.0)
    (first, *_) = conclusion([killed, ended], compare([killed, ended]))
    assert "1 incomplete, whose missed deliveries are unknown" in first
