"""Tables of a reproduction in a document: each block between `<!-- rows: FIGURE -->` and `<!-- end -->` is
replaced by the rows of that finding.

    python -m covey.sim.experiments.papers.markdown evaluation/report.json docs/evaluation.md
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from covey.matcher.errors import CoveyError

_BLOCK = re.compile(r"(<!-- rows: (?P<figure>[^>]+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def fill(document: str, report: Mapping[str, Any]) -> str:
    """The document with the rows of the report's findings. `CoveyError` if it names none of them."""
    by_figure = {finding["figure"]: finding for finding in report["findings"]}

    def table(match: re.Match[str]) -> str:
        figure = match["figure"]
        if figure == "notes":
            return f"{match[1]}{_listed(report['notes'])}{match[4]}"
        if figure not in by_figure:
            raise CoveyError(f"rows: {figure}: expected one of {', '.join(by_figure)}")
        finding = by_figure[figure]
        text = f"{finding['conclusion']}\n\n{_table(finding['rows'])}"
        return f"{match[1]}{text}{match[4]}"

    return _BLOCK.sub(table, document)


def _listed(sentences: Sequence[str]) -> str:
    return "".join(f"- {sentence}\n" for sentence in sentences)


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns)] + [[_cell(row[column]) for column in columns] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:,g}" if isinstance(value, int | float) else str(value)


def main() -> None:
    """Fill the document, the second argument, with the report, the first."""
    report, document = map(Path, sys.argv[1:3])
    text = fill(document.read_text(encoding="utf-8"), json.loads(report.read_text(encoding="utf-8")))
    document.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
