"""All sections of reports on one page in headless Chromium: nothing logged, nothing loaded, right figures."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from chromium import Browser, Page, chromium
from run_summaries import summary

from covey.sim.checkers import oracle
from covey.sim.experiments.demo.report import page as demo_page
from covey.sim.experiments.demo.run import DemoOutcome
from covey.sim.experiments.papers import PaperFinding, PaperReport, Verdict
from covey.sim.experiments.papers.report import page as paper_page
from covey.sim.metrics import compare
from covey.sim.metrics.run_report import report_of
from covey.sim.reports import Bars, Curves, Report, write_report
from covey.sim.scenario.scenario import SYSTEMS, Scenario

FIGURES = "Bokeh.documents.flatMap(document => document.roots())"
DEEP = """
    const deep = (node, selector) => [...node.querySelectorAll(selector),
        ...[...node.querySelectorAll('*')].filter(each => each.shadowRoot)
            .flatMap(each => deep(each.shadowRoot, selector))];
"""
"""Elements below a node, in shadow trees too."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def sweep() -> Report:
    """Three systems at three rates with two seeds each."""
    runs = []
    for system in ("siena-subscribe-first", "siena-parametric", "covey-parametric"):
        for rate in (1.0, 5.0, 10.0):
            for seed in (0, 1):
                scenario = SYSTEMS[system].applied_to(Scenario(update_rate=rate, seed=seed))
                factor = 1 if system == "siena-subscribe-first" else 2
                name = f"{system}_update_rate-{rate:g}_seed-{seed}"
                runs.append(summary(name, scenario, factor * 100 / rate + seed))
    return report_of(runs, compare(runs))


def single_run() -> Report:
    run = summary("mine", Scenario(), 11.0)
    return report_of([run], compare([run]))


def paper() -> Report:
    rows = [f"HTM {system}, {metric}" for system in ("siena", "rete") for metric in ("throughput", "delay")]
    table = Bars(
        "times better with updates",
        rows,
        {"paper": [8.0, 6.0, 1.53, 2.0], "here": [(7.6, 7.1, 8.2), (1.3, 1.2, 1.4), None, 0.9]},
        dots=True,
        log=True,
    )
    curves = Curves(
        "updates/s",
        "events/s",
        {
            "siena-subscribe-first": [(10, 90.0, 80.0, 100.0), (100, 40.0, 35.0, 45.0)],
            "siena-parametric": [(10, 95.0, 85.0, 105.0), (100, 70.0, 65.0, 75.0)],
            "covey-parametric": [(10, 95.0, 85.0, 105.0), (100, 70.3, 65.0, 75.0)],
        },
        log_x=True,
        log_y=True,
    )
    cells = [{"row": row, "paper": n} for n, row in enumerate(rows)]
    findings = [
        PaperFinding("Table 1", "factors", "Up to 8.", "Up to 7.6.", Verdict.HOLDS, cells, table),
        PaperFinding("Fig. 8a", "throughput", "Up to 8.", "Up to 1.7.", Verdict.SMALLER, cells, curves),
        PaperFinding("Fig. 8b", "delay", "Up to 6.", "None.", Verdict.NOT_HERE, cells),
        PaperFinding("Fig. 9", "scalability", "2.25.", "Too few."),
    ]
    return paper_page(PaperReport("jayaram", "Jayaram et al.", "quick", findings, ["a note"], (2010, 2011)))


def demonstration() -> Report:
    def outcome(routing: str, missed: int) -> DemoOutcome:
        verdicts = {name: oracle.Verdict(delivered=100, missed=missed) for name in ("momentum", "range")}
        control = {f"b{n}": 100 * n for n in range(1, 6)}
        return DemoOutcome(routing, 2.0, 1200, verdicts, [0.5, 1.0, 2.0, 9.0], control, None)

    return demo_page([outcome("parametric", 0), outcome("static", 7)], {"rate": "unlimited"})


KINDS = (sweep, single_run, paper, demonstration)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("pages") / "page.html"
    reports = [kind() for kind in KINDS]
    parts = ("sections", "tiles", "notes", "definitions")
    together = {part: [each for report in reports for each in getattr(report, part)] for part in parts}
    write_report(path, replace(reports[0], **together))
    return path


@pytest.fixture(scope="module")
def page(browser: Browser, written: Path) -> Page:
    return opened(browser, written)


def opened(browser: Browser, path: Path, width: int = 1200) -> Page:
    page = browser.new_page()
    page.open(path, width)
    return page


def test_a_page_draws_its_figures_without_errors_and_requests(page: Page, written: Path) -> None:
    assert page.logged == []
    outside = [address for address in page.requests if not address.startswith("data:")]
    assert outside == [written.resolve().as_uri()]
    places = page.value("document.querySelectorAll('figure').length")
    assert places >= 1
    assert page.value(f"{FIGURES}.length") == places
    painted = page.value(
        f"""{{ {DEEP}
        [...document.querySelectorAll('figure')].every(figure => deep(figure, 'canvas').some(canvas => {{
            const {{width, height}} = canvas;
            if (width == 0 || height == 0) return false;
            const {{data}} = canvas.getContext('2d').getImageData(0, 0, width, height);
            return new Set(new Uint32Array(data.buffer)).size > 5;
        }}))}}"""
    )
    assert painted


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_has_a_short_conclusion_figures_and_definitions(kind: Callable[[], Report]) -> None:
    report = kind()
    assert 2 <= len(report.conclusion) <= 6
    assert len(report.definitions) >= 3
    assert any(section.figures for section in report.sections)


def test_a_page_has_conclusion_origin_and_definitions(page: Page) -> None:
    assert 2 <= page.value("document.querySelectorAll('.conclusion p').length") <= 6
    top = [page.value(f"document.querySelector('{part}').offsetTop") for part in (".conclusion", ".origin")]
    assert top == sorted(top)
    terms = page.value("[...document.querySelectorAll('.origin > dl > dt')].map(each => each.textContent)")
    assert set(terms) >= {"size", "Covey", "written", "command"}
    assert page.value("document.querySelectorAll('#definitions dt').length") >= 3


def test_the_data_of_a_figure_is_in_the_page(page: Page) -> None:
    files = page.value(
        "Promise.all([...document.querySelectorAll('figure a[download]')]"
        ".map(link => atob(link.href.split(',')[1])))"
    )
    assert len(files) == page.value("document.querySelectorAll('figure').length")
    assert all(file.splitlines()[0].startswith("series,") for file in files)
    assert all(len(file.splitlines()) > 1 for file in files)
    assert page.value("document.querySelectorAll('figure details table tbody tr').length") == sum(
        len(file.splitlines()) - 1 for file in files
    )


def test_a_page_is_as_wide_as_a_phone(browser: Browser, written: Path) -> None:
    page = opened(browser, written, width=390)
    assert page.value("document.documentElement.scrollWidth") == 390
    page.value("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.value("document.documentElement.scrollWidth") == 390
    assert page.value(f"{FIGURES}.every(each => Bokeh.index.get_by_id(each.id).bbox.width > 250)")
    shown = "[...document.querySelectorAll('dd')].filter(each => each.checkVisibility())"
    assert page.value(f"{shown}.every(each => each.clientWidth > 200)")


def test_the_legend_hides_a_curve_and_the_pointer_shows_values(page: Page) -> None:
    figure = f"{FIGURES}[0]"
    visible = f"{figure}.renderers.filter(each => each.visible).length"
    before = page.value(visible)
    page.value("document.querySelector('figure').scrollIntoView()")
    item = page.value(
        f"""{{ {DEEP}
        const item = deep(document.querySelector('figure'), '.bk-item')
            .find(each => each.textContent.includes('siena-parametric'));
        const {{x, y, width, height}} = item.getBoundingClientRect();
        [x + width / 2, y + height / 2] }}"""
    )
    page.click(*item)
    page.until(f"{visible} < {before}")
    assert page.value(visible) == before - 3, "line, whiskers and markers"
    page.click(*item)
    page.until(f"{visible} == {before}")
    point = page.value(
        f"""{{ {DEEP}
        const view = Bokeh.index.get_by_id({figure}.id);
        const {{x, y}} = view.canvas_view.el.getBoundingClientRect();
        const data = {figure}.renderers.filter(each => each.data_source.data.has?.('interval')
            ?? 'interval' in each.data_source.data).at(-1).data_source.data;
        const column = name => data.get ? data.get(name) : data[name];
        [x + view.frame.x_scale.compute(column('x')[1]), y + view.frame.y_scale.compute(column('y')[1])] }}"""
    )
    page.move_to(*point)
    page.until(
        f"""{{ {DEEP}
        deep(document, '[class*=ooltip]').map(each => each.textContent)
            .some(text => text.includes('covey-parametric') && / to /.test(text)) }}"""
    )
    assert page.logged == []
