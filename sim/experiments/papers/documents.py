"""Results of a reproduction in documents: kept in `docs/results/PAPER.json`, and written between marks,

    <!-- results: PAPER PART -->
    <!-- end -->

where PART is `provenance`, `verdicts`, `summary`, `notes`, `rows FIGURE` or `picture FIGURE`; PAPER may be
`all` with the PART `sizes`, which papers have which, since a document may mix them. All tables are
in `docs/results/PAPER.md`. `covey reproduce PAPER --write` measures and writes; where only the code has
changed since, this writes that into the documents, and measures nothing:

    python -m covey.sim.experiments.papers.documents
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from covey.matcher.errors import CoveyError
from covey.sim.experiments.papers.provenance import SOURCES, digest, provenance
from covey.sim.experiments.papers.report import PaperReport

DOCUMENTS = ("papers.md", "evaluation.md")
STALE = "**The code that is measured has changed since.**"
_BLOCK = re.compile(r"(<!-- results: (?P<paper>\w+) (?P<part>[^>]+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")
_NO_FIGURE = re.compile(
    r"```.*?```|^ {4}.*?$|`[^`]*`|\]\([^)]*\)|<!--.*?-->|\b(?:19|20)\d\d\b"
    r"|\b(?:Figs?\.|[Ss]ect(?:ions?|\.)|Table|Equations?) ?\d[\w.()]*(?:(?:,| to| and) \d[\w.()]*)*",
    re.DOTALL | re.MULTILINE,
)
"""Code, links, years, and numbers of figures and sections."""

Results = Mapping[str, Any]
"""Of a paper: `provenance`, and the report as JSON."""


def read_results(docs: Path) -> dict[str, Results]:
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((docs / "results").glob("*.json"))
        if path.stem in SOURCES
    }


def write_results(report: PaperReport, docs: Path) -> None:
    """Store a report and its pictures, and write the documents. `CoveyError` if `docs` lacks documents."""
    check_documents(docs)
    seeds = report.seeds
    kept = {"provenance": provenance(report.paper, report.size, seeds), "report": report.as_json()}
    for finding in kept["report"]["findings"]:
        del finding["plot"]
    (docs / "results").mkdir(exist_ok=True)
    path = docs / "results" / f"{report.paper}.json"
    path.write_text(as_text(kept), encoding="utf-8")
    path.with_suffix(".md").write_text(all_tables(kept), encoding="utf-8")
    drawn = {block["part"] for text in _texts(docs) for block in blocks(text, report.paper)}
    from covey.sim.reports import png

    for finding in report.findings:
        if f"picture {finding.figure}" in drawn and finding.plot is not None:
            (docs / picture_name(report.paper, finding.figure)).write_bytes(png(finding.plot))
    write_documents(docs)


def as_text(kept: Results) -> str:
    """JSON with one line per row of a finding."""
    text = json.dumps(kept, indent=1, ensure_ascii=False)
    return re.sub(r"\n {6,}|\n {5}(?=\})", "", text) + "\n"


def check_documents(docs: Path) -> None:
    """Raises `CoveyError` if a folder lacks one of the documents."""
    for name in DOCUMENTS:
        if not (docs / name).is_file():
            raise CoveyError(f"--write: {docs / name} does not exist: run it in a checkout of Covey")


def write_documents(docs: Path) -> None:
    """Write the checked-in results between the marks of the documents."""
    results = read_results(docs)
    for name in DOCUMENTS:
        text = (docs / name).read_text(encoding="utf-8")
        (docs / name).write_text(fill(text, results, digest), encoding="utf-8")


def other_verdicts(report: PaperReport, results: Mapping[str, Results]) -> str:
    """Which findings have another verdict in results of another size, as a sentence; "" without any."""
    kept = results.get(report.paper)
    if kept is None or kept["provenance"]["size"] == report.size:
        return ""
    verdicts = {each["figure"]: each["verdict"] for each in kept["report"]["findings"]}
    others = [
        f"{each.figure} ({verdict}, here {each.verdict.value})"
        for each in report.findings
        if (verdict := verdicts.get(each.figure, each.verdict.value)) != each.verdict.value
    ]
    there = f"At the {kept['provenance']['size']} size (docs/results/{report.paper}.md)"
    return f"{there} other verdicts: {', '.join(others)}." if others else ""


def _texts(docs: Path) -> list[str]:
    return [(docs / name).read_text(encoding="utf-8") for name in DOCUMENTS]


def blocks(text: str, paper: str) -> Iterator[re.Match[str]]:
    return (block for block in _BLOCK.finditer(text) if block["paper"] == paper)


def fill(text: str, results: Mapping[str, Results], current: Callable[[str], str]) -> str:
    """A document with results between its marks; `current` gives the digest of the code of a paper.

    Raises `CoveyError` for a part that there is not.
    """
    current = cache(current)

    def part(block: re.Match[str]) -> str:
        paper, what = block["paper"], block["part"]
        if (paper, what) == ("all", "sizes"):
            return f"{block[1]}{_sizes(results)}{block[5]}"
        if paper not in results:
            lacking = f"No results are checked in: `covey reproduce {paper} --write` measures them.\n"
            return f"{block[1]}{lacking if what == 'provenance' else ''}{block[5]}"
        return f"{block[1]}{_part(what, paper, results[paper], current(paper))}{block[5]}"

    return _BLOCK.sub(part, text)


def _part(what: str, paper: str, results: Results, current: str) -> str:
    report, origin = results["report"], results["provenance"]
    by_figure = {finding["figure"]: finding for finding in report["findings"]}
    kind, _, figure = what.partition(" ")
    if kind == "provenance":
        return _origin(origin, current)
    if kind in ("notes", "summary"):
        return "".join(f"- {sentence}\n" for sentence in report[kind])
    if kind == "verdicts":
        return table(
            [
                {
                    "figure": each["figure"],
                    "the paper": each["claim"],
                    "here": _shortened(each["conclusion"]),
                    "verdict": each["verdict"],
                }
                for each in report["findings"]
            ]
        )
    if figure not in by_figure:
        raise CoveyError(f"results: {paper} {what}: expected one of {', '.join(by_figure)}")
    if kind == "rows":
        return f"{by_figure[figure]['conclusion']}\n\n{table(by_figure[figure]['rows'])}"
    return f"![{by_figure[figure]['title']}]({picture_name(paper, figure)})\n"


def _shortened(conclusion: str) -> str:
    """Its first sentence, and the sentences with the worst point beside the best."""
    first, *rest = re.split(r"(?<=\.) (?=[A-Z])", conclusion)
    kept = [first, *(sentence for sentence in rest if "at worst" in sentence)]
    return " ".join(re.sub(r"; ahead in .*", ".", sentence) for sentence in kept)


def _sizes(results: Mapping[str, Results]) -> str:
    """The sizes of the results, as a sentence; "" without results."""
    by_size: dict[str, list[str]] = {}
    for paper, each in results.items():
        by_size.setdefault(each["provenance"]["size"], []).append(paper)
    listed = "; ".join(f"{size} for {', '.join(papers)}" for size, papers in by_size.items())
    return f"Sizes of the results here and in [evaluation](evaluation.md): {listed}.\n" if listed else ""


def _origin(origin: Mapping[str, Any], current: str) -> str:
    seeds = ", ".join(map(str, origin["seeds"]))
    words = (
        f"Measured on code of {origin['commit'] or 'an installed version'}, {origin['date']}, size "
        f"{origin['size']}, seeds {seeds}; {origin['machine']}; Python {origin['python']}."
    )
    return f"{words}\n" if origin["digest"] == current else f"{words}\n{STALE}\n"


def all_tables(results: Results) -> str:
    report, origin = results["report"], results["provenance"]
    parts = [
        f"# {report['citation']}\n\nWritten by `covey reproduce {report['paper']} --write`.\n",
        _origin(origin, origin["digest"]) + f"Digest of the code: {origin['digest'] or 'not recorded'}.\n",
        "".join(f"- {sentence}\n" for sentence in report["notes"]),
    ]
    for each in report["findings"]:
        title = f"## {each['figure']}: {each['title']}\n\n*{each['verdict'].capitalize()}.* The paper: "
        parts.append(f"{title}{each['claim']} Here: {each['conclusion']}\n\n{table(each['rows'])}")
    return "\n".join(parts)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a Markdown table; all have the same keys."""
    if not rows:
        return ""
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns)] + [[_cell(row[column]) for column in columns] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: Any) -> str:
    text = "" if value is None else f"{value:,g}" if isinstance(value, int | float) else str(value)
    return text.replace("|", "\\|")


def picture_name(paper: str, figure: str) -> str:
    """The file name of a finding's plot: `fabret-fig-3a.png`."""
    slug = re.sub(r"[^a-z0-9]+", "-", figure.lower().replace("(", "")).strip("-")
    return f"{paper}-{slug}.png"


def unsupported(text: str, results: Mapping[str, Results]) -> list[str]:
    """The figures in the prose of a document, outside of its marks, that are in no result."""
    known = {number for each in results.values() for number in _numbers(_leaves(each["report"]))}
    return [number for number in _numbers([_NO_FIGURE.sub("", _BLOCK.sub("", text))]) if number not in known]


def _numbers(texts: Sequence[str]) -> list[str]:
    return [number.rstrip(",") for text in texts for number in _NUMBER.findall(text)]


def _leaves(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for each in value.items() for text in _leaves(list(each))]
    if isinstance(value, list):
        return [text for each in value for text in _leaves(each)]
    return [_cell(value)]


if __name__ == "__main__":
    write_documents(Path("docs"))
