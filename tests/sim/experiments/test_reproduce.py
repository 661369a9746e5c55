"""`covey reproduce`: every paper at the smallest size, findings with rows, mistakes. Neither seconds nor
claims about speed are tested: they mean nothing at this size."""

import json
from collections.abc import Callable
from html import escape
from pathlib import Path
from random import Random
from statistics import mean

import pytest
from commands import run

from covey.matcher import CoveyError
from covey.sim import reports
from covey.sim.experiments.bench.match import MatchResult
from covey.sim.experiments.papers import PAPERS, PaperFinding, PaperPlan, PaperReport, Verdict, reproduce
from covey.sim.experiments.papers.aguilera import nodes, visited
from covey.sim.experiments.papers.bittner_theory import (
    Loaded,
    crossing,
    structures,
    theory,
    turning_points,
)
from covey.sim.experiments.papers.documents import fill
from covey.sim.experiments.papers.fabret import over_subscriptions
from covey.sim.experiments.papers.measuring import growth, sublinear
from covey.sim.experiments.papers.provenance import ROOT, provenance
from covey.sim.experiments.papers.report import Cell, page
from covey.sim.experiments.papers.verdicts import Claim, decide
from covey.sim.reports import Curves, png
from covey.sim.workload import Boolean, Shape
from covey.sim.workload.boolean import branching, pairs, with_least

PNG = b"\x89PNG"


def check_progress(step: str, share: float) -> None:
    assert step
    assert 0.0 <= share <= 1.0


TINY_PAPERS = [
    "liu",
    *(pytest.param(paper, marks=pytest.mark.thorough) for paper in ("aguilera", "bittner", "fabret")),
]


@pytest.fixture(scope="module", params=TINY_PAPERS)
def report(request: pytest.FixtureRequest) -> PaperReport:
    return reproduce(request.param, PaperPlan("tiny"), check_progress)


def test_every_finding_has_a_claim_rows_of_one_kind_and_a_verdict(report: PaperReport) -> None:
    assert report.findings
    assert len({finding.figure for finding in report.findings}) == len(report.findings)
    for finding in report.findings:
        assert finding.claim.endswith(".")
        assert finding.conclusion.endswith(".")
        assert len({tuple(row) for row in finding.rows}) <= 1
        assert len(finding.rows) >= 2
        assert all(len(points) >= 2 for points in finding.plot.series.values())


def test_a_report_is_json_and_plots(report: PaperReport) -> None:
    read = json.loads(json.dumps(report.as_json()))
    assert [f["figure"] for f in read["findings"]] == [f.figure for f in report.findings]
    assert list(read["findings"][0]) == ["figure", "title", "claim", "conclusion", "verdict", "rows", "plot"]
    pictures = [png(finding.plot) for finding in report.findings if finding.plot is not None]
    assert pictures
    assert all(picture.startswith(PNG) for picture in pictures)
    html = reports.html(page(report))
    assert all(escape(finding.claim.split("`")[0]) in html for finding in report.findings)


def test_the_documents_show_findings_that_there_are(report: PaperReport) -> None:
    kept = {report.paper: {"provenance": provenance(report.paper, "tiny", (0,)), "report": report.as_json()}}
    text = (ROOT / "docs" / "papers.md").read_text()
    filled = fill(text, kept, lambda paper: "other")
    assert all(f"| {finding.figure} | " in filled for finding in report.findings)
    assert f"]({report.paper}-" in filled, "a picture"


def test_the_command_prints_json_and_writes_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    curves = Curves("subscriptions", "ms", {"counting": [(1, 2.0), (10, 3.0)]}, log_x=True)
    rows: list[dict[str, Cell]] = [{"n": 1, "ms": 2.0}]
    finding = PaperFinding("Fig. 3(a)", "time", "It grows.", "It grew.", Verdict.HOLDS, rows, curves)
    stub = PaperReport("fabret", "Fabret et al.", "quick", [finding], ["a note"])
    plans: list[PaperPlan] = []

    def stand_in(paper: str, plan: PaperPlan, say: object) -> PaperReport:
        plans.append(plan)
        return stub

    monkeypatch.setattr("covey.sim.experiments.papers.reproduce", stand_in)
    assert run("reproduce", "fabret", "--quick", "--json", "--seed", "7", "--out", str(tmp_path / "new")) == 0
    assert plans == [PaperPlan("quick", 7, str(tmp_path / "new"))]
    assert json.loads(capsys.readouterr().out) == stub.as_json()
    assert json.loads((tmp_path / "new" / "report.json").read_text()) == stub.as_json()
    assert "It grew." in (tmp_path / "new" / "report.html").read_text()
    assert (tmp_path / "new" / "fabret-fig-3a.png").read_bytes().startswith(PNG)
    assert run("reproduce", "fabret") == 0
    printed = capsys.readouterr().out
    assert all(words in printed for words in ("Fig. 3(a)", "It grows.", "holds: It grew.", "a note"))
    assert plans[1] == PaperPlan("full", 0)
    assert run("reproduce", "all", "--out", str(tmp_path / "all")) == 0
    assert [plan.folder for plan in plans[2:]] == [str(tmp_path / "all" / name) for name in PAPERS]
    assert all((tmp_path / "all" / name / "report.html").is_file() for name in PAPERS)


def test_an_unknown_paper_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("reproduce", "knuth") == 2
    complaint = capsys.readouterr().err.strip().splitlines()
    assert complaint[-1] == f"covey: paper 'knuth': expected one of {', '.join(PAPERS)}, all"


def test_results_are_written_in_a_checkout_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("reproduce", "liu", "--write") == 1
    assert "docs/papers.md does not exist: run it in a checkout of Covey" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    from covey.cli.reproduce import write_files

    (tmp_path / "file").write_text("")
    with pytest.raises(CoveyError, match=r"--out .*file: cannot be written: "):
        write_files(PaperReport("fabret", "", "quick", []), tmp_path / "file")


def test_an_unwritable_folder_is_refused_before_the_measurement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr("covey.sim.experiments.papers.reproduce", lambda paper, *_: started.append(paper))
    (tmp_path / "file").write_text("")
    assert run("reproduce", "fabret", "--quick", "--out", str(tmp_path / "file")) == 1
    assert f"covey: --out {tmp_path / 'file'}: " in capsys.readouterr().err
    assert not started


def measured(*, constant_ms: float, each_ns: float, power: float) -> dict[int, MatchResult]:
    """Five repetitions at three sizes; an event takes a constant time plus a power of the size."""
    results = {}
    for size in (2_000, 8_000, 32_000):
        ms = constant_ms + each_ns * size**power / 1e6
        result = MatchResult(
            "", size, "", rates={"ids": [1e3 / ms * x for x in (1, 0.995, 1.002, 1.004, 0.998)]}
        )
        results[size] = result
    return results


def test_time_that_is_linear_beside_a_constant_is_not_sublinear() -> None:
    """The linear scan and counting have exponents below one, since an event has a constant cost."""
    tree = measured(constant_ms=0.001, each_ns=40, power=0.5)
    assert decide(Claim(), [*sublinear(tree).values()]) is Verdict.HOLDS
    for constant_ms, least, most in ((0.002, 0.74, 0.8), (0.0008, 0.86, 0.9)):
        linear = measured(constant_ms=constant_ms, each_ns=1, power=1.0)
        assert least < growth([(size, 1 / result.rate()) for size, result in linear.items()]) < most
        assert decide(Claim(), [*sublinear(linear).values()]) is not Verdict.HOLDS


def test_plain_propagation_fails_what_dynamic_holds() -> None:
    """Its time grows with the subscriptions; and equal times show no gain of prefetching."""
    plain = measured(constant_ms=0.001, each_ns=0.5, power=1.0)
    engines = {
        "counting": measured(constant_ms=0.004, each_ns=2.0, power=1.0),
        "propagation": plain,
        "propagation wp": plain,
        "static": measured(constant_ms=0.0009, each_ns=0.001, power=1.0),
        "dynamic": measured(constant_ms=0.0009, each_ns=0.001, power=1.0),
    }
    runs = {size: {name: results[size] for name, results in engines.items()} for size in plain}
    order, prefetching, growing = over_subscriptions(runs)
    assert order.verdict is Verdict.HOLDS
    assert prefetching.verdict is Verdict.NOT_HERE
    assert growing.verdict is Verdict.HOLDS
    assert "counting opposite, propagation opposite" in growing.conclusion
    flat = {size: {**results, "propagation": results["dynamic"]} for size, results in runs.items()}
    assert over_subscriptions(flat)[2].verdict is Verdict.UNDECIDED, "propagation must fail"
    worse = {size: {**results, "dynamic": results["counting"]} for size, results in runs.items()}
    assert over_subscriptions(worse)[0].verdict is Verdict.OPPOSITE


def test_growth_is_the_exponent_of_a_power() -> None:
    assert growth([(x, 3 * x**0.5) for x in (1, 10, 50, 1000)]) == pytest.approx(0.5)


def test_shapes_have_the_stated_numbers_of_conjunctions() -> None:
    """The properties of shapes against the matcher's normal form."""
    shapes = [Shape(5), pairs(10, 3), Shape(0, ((2, 1), (1, 1)))]
    shapes += [branching(12, n, shared) for n in (2, 4, 5) for shared in (0.3, 0.7)]
    shapes += [with_least(10, n, 5) for n in (2, 3)]
    for shape in shapes:
        (group,) = Boolean(shape=shape).subscriptions(3)
        boxes = group.filter.boxes()
        assert boxes is not None
        assert len(boxes) == shape.conjunctions
        assert sum(len(box) for box in boxes) == pytest.approx(shape.shared * shape.predicates)


def test_shapes_have_the_share_and_the_least_that_they_are_asked_for() -> None:
    for n, nearest in ((1, 1.0), (2, 0.5), (3, 1 / 3), (4, 0.3), (6, 0.3), (8, 0.3)):
        shape = branching(50, n, 0.3)
        assert (shape.predicates, shape.conjunctions) == (50, n)
        assert shape.shared / n == pytest.approx(nearest, abs=0.02)
    for p, alternations, least in ((10, 2, 5), (30, 2, 10), (30, 3, 5)):
        shape = with_least(p, alternations, least)
        assert (shape.predicates, shape.conjunctions, shape.least) == (p, 2**alternations, least)


def test_filters_on_the_other_side_of_a_turning_point_reverse_its_verdict() -> None:
    """Bytes by the equations hold; equal bytes of all forms are not here; exchanged forms are the
    opposite."""
    shapes = [branching(20, n, s_r) for n in (1, 2, 4, 8) for s_r in (0.3, 0.7)]

    def loaded(pick: Callable[[dict[str, float], str], float]) -> list[Loaded]:
        found = []
        for shape in shapes:
            long, short = theory(shape), theory(shape, unsubscription=False)
            memory = {name: {"counts": pick(short, name)} for name in short}
            for name in ("counting", "cluster"):
                memory[name]["subscription-predicate table"] = pick(long, name) - pick(short, name)
            found.append(Loaded(shape, memory))
        return found

    def verdicts(of: list[Loaded]) -> list[Verdict]:
        return [finding.verdict for finding in turning_points(of)]

    assert verdicts(loaded(lambda sizes, name: sizes[name])) == [Verdict.HOLDS] * 3
    assert verdicts(loaded(lambda sizes, name: 100.0)) == [Verdict.NOT_HERE] * 3
    exchanged = {"noncanonical": "counting"}
    reversed_ = loaded(lambda sizes, name: sizes[exchanged.get(name, "noncanonical")])
    assert verdicts(reversed_) == [Verdict.OPPOSITE] * 3


def test_tables_are_judged_beside_their_equations() -> None:
    shape = branching(20, 4, 0.3)
    tables = ("predicate-subscription table", "subscription-predicate table")
    memory = {
        "counting": {"counts": 16.0} | dict.fromkeys(tables, 999.0),
        "noncanonical": {"counts": 4.0, "trees": 100.0} | dict.fromkeys(tables, 99.0),
        "cluster": {"clusters": 999.0, tables[1]: 999.0},
    }
    assert structures([Loaded(shape, memory)]).verdict is Verdict.HOLDS
    memory["cluster"] = dict.fromkeys(memory["cluster"], 9.0)
    assert structures([Loaded(shape, memory)]).verdict is Verdict.OPPOSITE


def test_bittners_break_even_points() -> None:
    """Section 5.1: canonical engines need more memory than the tree from the S_s of inequality 12 on."""
    for p in (10, 30, 50):
        for s in (1, 2, 3, 4, 5, 8):
            shape = branching(p, s, 0.7)
            relative = shape.shared / shape.conjunctions
            turning = (p * (2 * shape.operators / p + 9) + 6) / (2 + 8 * relative * p)
            expected = theory(shape)
            assert (expected["counting"] > expected["noncanonical"]) == (shape.conjunctions > turning)


def test_crossings_are_interpolated() -> None:
    level = [(1.0, 10.0), (2.0, 10.0), (4.0, 10.0)]
    assert crossing([(1.0, 5.0), (2.0, 8.0), (4.0, 16.0)], level) == pytest.approx(2.5)
    assert crossing([(1.0, 11.0), (2.0, 12.0), (4.0, 13.0)], level) == 1.0
    assert crossing([(1.0, 5.0), (2.0, 6.0), (4.0, 7.0)], level) is None


def test_the_model_of_the_search_tree_matches_random_trees() -> None:
    attributes, tests, values, count = 5, 2, 3, 20
    rng = Random(5)
    held, reached = [], []
    for _ in range(300):
        rows = []
        for _ in range(count):
            tested = set(rng.sample(range(attributes), tests))
            rows.append([rng.randrange(values) if a in tested else None for a in range(attributes)])
        tree = {tuple(row[:depth]) for row in rows for depth in range(1, attributes + 1)}
        event = [rng.randrange(values) for _ in range(attributes)]
        held.append(len(tree))
        reached.append(sum(all(x in (None, y) for x, y in zip(node, event, strict=False)) for node in tree))
    assert mean(held) == pytest.approx(nodes(count, attributes, tests, values), rel=0.02)
    assert mean(reached) == pytest.approx(visited(count, attributes, tests, values), rel=0.05)
