"""`covey bench match`: figures of every engine, comparison of answers, mistakes; no durations."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from commands import run

from covey.matcher import CoveyError, EventBatch, Matches
from covey.matcher.engines.reference.naive import NaiveEngine
from covey.sim.experiments.bench import match as bench
from covey.sim.experiments.bench.match import DisagreementError, MatchPlan, compare_engines, make_engine
from covey.sim.workload import WORKLOADS, Fabret
from covey.sim.workload.options import find_workload

QUICK = MatchPlan(engines=("scan",), events=60, batch=20, repetitions=2, repetition_s=0.005, sample=30)
KEYS = [
    "workload",
    "subscriptions",
    "engine",
    "ids_per_s",
    "ordered_per_s",
    "counts_per_s",
    "interfaces_per_s",
    "ids_to_scan",
    "counts_to_scan",
    "matches_per_event",
    "load_s",
    "bytes_per_subscription",
    "update_us",
    "update_many_us",
]


def check_progress(step: str, share: float) -> None:
    assert step
    assert 0.0 <= share <= 1.0


@pytest.mark.parametrize("name", WORKLOADS)
def test_engines_agree_over_every_workload(name: str) -> None:
    engines = ("scan", "cluster")
    plan = MatchPlan(engines, events=30, batch=20, repetitions=1, repetition_s=0.005, sample=30)
    results = compare_engines(WORKLOADS[name], 300, plan, check_progress)
    assert tuple(result.engine for result in results) == engines
    for result in results:
        document = result.as_json()
        assert list(document) == KEYS
        assert document["ids_per_s"] > 0
        assert document["interfaces_per_s"] > 0
        assert document["counts_to_scan"] is not None
        assert document["ids_to_scan"] == 1.0 or result.engine != "scan"
        assert document["bytes_per_subscription"] > 0


class Forgetful(NaiveEngine):
    lost = 1

    def match(self, batch: EventBatch) -> Matches:
        offsets, ids = super().match(batch)
        return Matches.of(
            np.maximum(offsets - self.lost * (np.arange(len(offsets)) == len(offsets) - 1), 0), ids
        )


def test_engines_that_disagree_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = make_engine

    def sometimes(text: str, *others: object) -> object:
        if text == "forgetful":
            return Forgetful(WORKLOADS["SYMBOLS"].event_type)
        return genuine(text, *others)

    monkeypatch.setattr(bench, "make_engine", sometimes)
    plan = MatchPlan(("scan", "forgetful"), events=30, repetitions=1, repetition_s=0.005, sample=30)
    with pytest.raises(DisagreementError, match="of SYMBOLS at 2,000: forgetful returns other ids than scan"):
        compare_engines(WORKLOADS["SYMBOLS"], 2000, plan, check_progress)


class Recording(NaiveEngine):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.added: list[int] = [0]
        self.matched: list[int] = []

    def add_many(self, ids: npt.ArrayLike, *others: Any, **options: Any) -> None:
        self.added[-1] += np.size(ids)
        super().add_many(ids, *others, **options)

    def match(self, batch: EventBatch) -> Matches:
        self.added.append(0)
        self.matched.append(len(batch))
        return super().match(batch)


def test_the_generators_batches_of_subscriptions_and_events_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = find_workload("fabret", {"fabret": Fabret()}, ["subscription_batch=40", "event_batch=7"])
    engine = Recording(workload.event_type)
    monkeypatch.setattr(bench, "make_engine", lambda *arguments: engine)
    monkeypatch.setattr(bench, "_events_for", lambda contender, events, seconds: len(events))
    plan = replace(QUICK, events=20, sample=0, updates=False)
    assert compare_engines(workload, 100, plan, check_progress)[0].complete
    assert (engine.added[:4], sum(engine.added[4:])) == ([40, 40, 20, 0], 0)
    assert (engine.matched[:3], engine.matched[-3:]) == ([1, 1, 1], [7, 7, 6])


def test_loading_is_abandoned_after_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_CHUNK", 100)
    plan = MatchPlan(("scan",), events=10, repetitions=1, repetition_s=0.005, load_limit_s=0.0)
    result = compare_engines(WORKLOADS["VEHICLES"], 1000, plan, check_progress)[0]
    assert (result.loaded, result.complete) == (100, False)
    document: Mapping[str, object] = result.as_json()
    assert list(document) == KEYS
    assert set(list(document.values())[3:]) == {None}


@pytest.mark.parametrize(
    ("engine", "complaint"),
    [
        ("siena", "engine 'siena': expected one of"),
        ("scan:depth=3", "engine 'scan:depth=3': .*unexpected keyword"),
        ("scan:depth", "engine 'scan:depth': option 'depth', expected option=value"),
        ("search_tree:factoring=9", "engine 'search_tree:factoring=9': factoring 9: expected 0 to 4"),
    ],
)
def test_unknown_engines_and_options_are_refused(engine: str, complaint: str) -> None:
    with pytest.raises(CoveyError, match=complaint):
        make_engine(engine, WORKLOADS["SYMBOLS"], 1)


def bench_match(*words: str) -> int | str | None:
    return run("bench", "match", *words)


QUICKLY = ("--events", "40", "--repetitions", "1", "--seconds", "0.01")


def test_json_has_stable_keys(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--workload", "SYMBOLS", "--subscriptions", "200,300", "--engines", "scan,naive", "--json")
    assert bench_match(*words, *QUICKLY) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(r["workload"], r["subscriptions"], r["engine"]) for r in document] == [
        ("SYMBOLS", n, e) for n in (200, 300) for e in ("scan", "naive")
    ]
    assert all(list(result) == KEYS for result in document)


def test_results_are_printed_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    engines = "search_tree:factoring=0,delayed_branching=false;scan"
    words = ("--workload", "fabret", "--subscriptions", "200", "--engines", engines, "--set", "predicates=3")
    assert bench_match(*words, *QUICKLY) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("fabret, 200 subscriptions")
    table = [line.split() for line in lines[1:] if line.strip()]
    assert table[0][:4] == ["engine", "ids/s", "min", "max"]
    assert [row[0] for row in table[2:]] == engines.split(";")


def test_markdown_tables_and_a_drawing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    drawing = tmp_path / "curves.svg"
    words = ("--workload", "SYMBOLS,VEHICLES", "--subscriptions", "100", "--engines", "scan,naive")
    assert bench_match(*words, *QUICKLY, "--markdown", "--draw", str(drawing)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Events per second with their ids (median), 100 subscriptions:"
    assert lines[2] == "| engine | SYMBOLS | VEHICLES |"
    assert [line.split("|")[1].strip() for line in lines[4:6]] == ["`scan`", "`naive`"]
    assert "VEHICLES, 100 subscriptions:" in lines
    assert drawing.read_text().lstrip().startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--workload", "W9"), "covey: workload 'W9': expected one of W0, W2"),
        (("--subscriptions", "many"), "covey: subscriptions 'many': expected positive integers"),
        (("--engines", "siena"), "covey: engine 'siena': expected one of"),
        (("--workload", "SYMBOLS", "--set", "domain=1..2"), "covey: workload SYMBOLS: it has no parameters"),
    ],
)
def test_a_mistake_is_one_line(
    words: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench_match(*words) != 0
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1
    assert errors[0].startswith(complaint)
