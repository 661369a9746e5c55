"""Tables of a reproduction in a document."""

from __future__ import annotations

import pytest

from covey.matcher.errors import CoveyError
from covey.sim.experiments.papers.markdown import fill

REPORT = {
    "notes": ["One.", "Two."],
    "findings": [
        {
            "figure": "Fig. 9",
            "conclusion": "Twice.",
            "rows": [{"rate": 10, "gain": "2.0 (1.9 to 2.1)"}, {"rate": 2000.5, "gain": None}],
        }
    ],
}


def test_blocks_are_filled_and_filled_again() -> None:
    document = "# Page\n\n<!-- rows: Fig. 9 -->\nold\n<!-- end -->\n\n<!-- rows: notes -->\n<!-- end -->\n"
    filled = fill(document, REPORT)
    assert filled == (
        "# Page\n\n<!-- rows: Fig. 9 -->\nTwice.\n\n| rate | gain |\n| --- | --- |\n"
        "| 10 | 2.0 (1.9 to 2.1) |\n| 2,000.5 |  |\n<!-- end -->\n\n"
        "<!-- rows: notes -->\n- One.\n- Two.\n<!-- end -->\n"
    )
    assert fill(filled, REPORT) == filled


def test_an_unknown_figure_is_named() -> None:
    with pytest.raises(CoveyError, match=r"rows: Fig\. 8: expected one of Fig\. 9"):
        fill("<!-- rows: Fig. 8 -->\n<!-- end -->\n", REPORT)
