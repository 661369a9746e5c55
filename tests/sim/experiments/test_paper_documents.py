"""The documents on papers: a command writes their figures, and no sentence has figures of its own."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

from covey.matcher.errors import CoveyError
from covey.sim.experiments.papers import PAPERS, PaperFinding, PaperReport, Verdict
from covey.sim.experiments.papers.documents import (
    DOCUMENTS,
    STALE,
    all_tables,
    fill,
    other_verdicts,
    read_results,
    unsupported,
    write_documents,
    write_results,
)
from covey.sim.experiments.papers.jayaram_calibrations import Calibrations, checked_in
from covey.sim.experiments.papers.jayaram_cases import BASE, Point, grid, point_scenario
from covey.sim.experiments.papers.measuring import measure
from covey.sim.experiments.papers.provenance import ROOT, SOURCES, digest, provenance
from covey.sim.experiments.papers.report import PaperPlan
from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.progress import silent
from covey.sim.reports import Curves
from covey.sim.scenario.scenario import Scenario
from covey.sim.workload import WORKLOADS, Boolean, Workload
from covey.sim.workload.boolean import branching

DOCS = ROOT / "docs"
WRITE = "python -m covey.sim.experiments.papers.documents writes them anew"
ORIGIN = {
    "digest": "d1",
    "commit": "abc",
    "size": "quick",
    "seeds": [0, 1],
    "machine": "m",
    "date": "2026-01-02",
    "python": "3.12",
}


def finding(**changes: object) -> PaperFinding:
    rows = [{"rate": 10, "gain": "2.0 (1.9 to 2.1)"}, {"rate": 2000.5, "gain": None}]
    plot = Curves("n", "ms", {"a": [(1, 2.0), (10, 3.0)]})
    fields = {"verdict": Verdict.HOLDS, "rows": rows, "plot": plot} | changes
    return PaperFinding("Fig. 9", "time", "Twice.", "Twice, at |p| = 3.", **fields)


def results() -> dict[str, dict[str, object]]:
    report = PaperReport("fabret", "Fabret", "quick", [finding()], ["One.", "Two."], (0, 1))
    return {"fabret": {"provenance": ORIGIN, "report": report.as_json()}}


def block(part: str, content: str = "", paper: str = "fabret") -> str:
    return f"<!-- results: {paper} {part} -->\n{content}<!-- end -->\n"


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ("notes", "- One.\n- Two.\n"),
        (
            "rows Fig. 9",
            "Twice, at |p| = 3.\n\n| rate | gain |\n| --- | --- |\n"
            "| 10 | 2.0 (1.9 to 2.1) |\n| 2,000.5 |  |\n",
        ),
        (
            "verdicts",
            "| figure | the paper | here | verdict |\n| --- | --- | --- | --- |\n"
            "| Fig. 9 | Twice. | Twice, at \\|p\\| = 3. | holds |\n",
        ),
        ("picture Fig. 9", "![time](fabret-fig-9.png)\n"),
        ("provenance", "Measured on code of abc, 2026-01-02, size quick, seeds 0, 1; m; Python 3.12.\n"),
    ],
)
def test_blocks_are_filled_and_filled_again(part: str, content: str) -> None:
    filled = fill(f"# Page\n\n{block(part, 'old')}\nText.\n", results(), lambda paper: "d1")
    assert filled == f"# Page\n\n{block(part, content)}\nText.\n"
    assert fill(filled, results(), lambda paper: "d1") == filled


def test_results_of_other_code_are_marked_and_none_are_invented() -> None:
    assert STALE in fill(block("provenance"), results(), lambda paper: "d2")
    assert "No results are checked in" in fill(
        block("provenance", paper="liu"), results(), lambda paper: "d1"
    )
    assert fill(block("verdicts", "old", "liu"), results(), lambda paper: "d1") == block(
        "verdicts", "", "liu"
    )
    with pytest.raises(CoveyError, match=r"fabret rows Fig\. 8: expected one of Fig\. 9"):
        fill(block("rows Fig. 8"), results(), lambda paper: "d1")


def test_a_smaller_size_names_the_verdicts_that_differ_from_those_checked_in() -> None:
    full = results()
    here = PaperReport("fabret", "Fabret", "tiny", [finding(verdict=Verdict.OPPOSITE)])
    assert other_verdicts(here, full) == (
        "At the quick size (docs/results/fabret.md) other verdicts: Fig. 9 (holds, here opposite)."
    )
    others = ({"size": "quick"}, {"findings": [finding()]}, {"paper": "liu"})
    assert {other_verdicts(replace(here, **each), full) for each in others} == {""}


def test_a_document_says_which_sizes_it_mixes() -> None:
    other = {"fabret": results()["fabret"], "liu": {"provenance": ORIGIN | {"size": "full"}}}
    filled = fill(block("sizes", paper="all"), other, lambda paper: "d1")
    assert "here and in [evaluation](evaluation.md): quick for fabret; full for liu." in filled
    assert fill(block("sizes", "old", "all"), {}, lambda paper: "d1") == block("sizes", "", "all")


def reached(run: Callable[[], object]) -> set[str]:
    """The files of Covey of which a run calls something; what it imports was imported before."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            files.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    own = [Path(file).relative_to(ROOT) for file in files if file.startswith(str(ROOT))]
    return {str(file) for file in own if file.parts[0] in ("matcher", "overlay", "sim")} - NOT_MEASURED


def play(scenario: Scenario) -> None:
    SimulatedRun(scenario).run()


def measured_files(paper: str) -> set[str]:
    places = [ROOT / source for source in SOURCES[paper]]
    files = [file for place in places for file in ([place] if place.is_file() else place.rglob("*.py"))]
    return {str(file.relative_to(ROOT)) for file in files}


NOT_MEASURED = {"sim/progress.py", "sim/invariants.py", "sim/experiments/papers/report.py"}
"""Files that show progress, assert, or pick a size."""


def test_the_digests_have_all_that_matching_reaches() -> None:
    def match(workload: Workload, *engines: str) -> None:
        measure(workload, 60, dict(zip(engines, engines, strict=True)), PaperPlan("tiny"), silent)

    match(WORKLOADS["W0"], "naive")
    called = reached(partial(match, WORKLOADS["W0"], "counting", "propagation", "search_tree", "cluster"))
    boolean = Boolean(shape=branching(6, 3, 0.3), fulfilled=0.3)
    called |= reached(partial(match, boolean, "noncanonical", "trees"))
    for paper in ("aguilera", "bittner", "fabret"):
        assert called <= measured_files(paper)


def test_the_digest_of_jayaram_has_all_that_its_runs_reach(tmp_path: Path) -> None:
    costs = Calibrations.write(tmp_path, checked_in()).files
    small = {"brokers": 4, "publishers": 8, "subscribers": 8, "duration_s": 1.0, "warm_up_s": 0.5}
    cases = grid(PaperPlan("quick")).cases
    points = [Point(case, BASE, system, case.rhos[-1], 1) for case in cases for system in case.systems]
    scenarios = [point_scenario(point, costs, 0.02, 0.0).having(**small) for point in points]
    play(scenarios[0])
    for scenario in scenarios:
        assert reached(partial(play, scenario)) <= measured_files("jayaram")


def test_the_digest_is_of_the_measured_sources_alone(tmp_path: Path) -> None:
    for name in (
        "matcher/evaluation/a.py",
        "sim/workload/b.py",
        "sim/experiments/papers/liu.py",
        "docs/c.md",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    (tmp_path / "sim/experiments/papers/liu_bound.py").write_text("")
    first = digest("liu", tmp_path)
    (tmp_path / "docs/c.md").write_text("y")
    assert digest("liu", tmp_path) == first
    code = tmp_path / "matcher/evaluation/a.py"
    code.write_text('"""A module\nof one line."""\n\n# A comment.\nx = 1  # one\n')
    assert digest("liu", tmp_path) == first, "words are not measured"
    for change in ("x = 2\n", "x = 1\ny = 'x'\n"):
        code.write_text(change)
        assert digest("liu", tmp_path) != first
    assert SOURCES.keys() == PAPERS.keys()
    assert all((ROOT / source).exists() for sources in SOURCES.values() for source in sources)


def test_results_state_where_they_come_from() -> None:
    origin = provenance("liu", "quick", (3, 4))
    assert origin.keys() == ORIGIN.keys()
    assert (origin["digest"], origin["seeds"], origin["size"]) == (digest("liu"), [3, 4], "quick")
    assert re.fullmatch(r".+, \d+ cores, \d+ GB", origin["machine"])


def test_a_report_is_kept_and_written_into_the_documents(tmp_path: Path) -> None:
    for name in DOCUMENTS:
        (tmp_path / name).write_text(block("provenance") + block("picture Fig. 9"))
    report = PaperReport("fabret", "Fabret", "quick", [finding()], ["One."], (0,))
    write_results(report, tmp_path)
    kept = read_results(tmp_path)["fabret"]
    assert kept["provenance"]["digest"] == digest("fabret")
    assert kept["report"]["findings"][0]["rows"] == finding().rows
    assert (tmp_path / "results" / "fabret.md").read_text() == all_tables(kept)
    assert (tmp_path / "fabret-fig-9.png").is_file()
    text = (tmp_path / "papers.md").read_text()
    assert f"Python {kept['provenance']['python']}" in text
    assert STALE not in text
    kept["provenance"]["digest"] = "of other code"
    (tmp_path / "results" / "fabret.json").write_text(json.dumps(kept))
    write_documents(tmp_path)
    assert STALE in (tmp_path / "papers.md").read_text()
    with pytest.raises(CoveyError, match="run it in a checkout"):
        write_results(report, tmp_path / "results")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_documents_are_what_the_checked_in_results_and_this_code_give(name: str) -> None:
    text, known = (DOCS / name).read_text(), read_results(DOCS)
    assert fill(text, known, digest) == text, WRITE
    stale = [paper for paper, each in known.items() if each["provenance"]["digest"] != digest(paper)]
    shown = [paper for paper in stale if f"<!-- results: {paper} provenance -->" in text]
    assert text.count(STALE) == len(shown)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_figure_in_prose_is_in_the_results(name: str) -> None:
    text, known = (DOCS / name).read_text(), read_results(DOCS)
    assert unsupported(text, known) == []
    assert unsupported(f"{text}\nUpdates are 7.31 times as fast.\n", known) == ["7.31"]


def test_every_table_of_the_results_is_checked_in() -> None:
    for paper, kept in read_results(DOCS).items():
        assert (DOCS / "results" / f"{paper}.md").read_text() == all_tables(kept)


def test_the_evaluation_is_read_in_ten_minutes() -> None:
    assert len((DOCS / "evaluation.md").read_text().split()) <= 2_500
