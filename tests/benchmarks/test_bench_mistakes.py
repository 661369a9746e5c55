"""A mistake in the options of a benchmark is one line, which names the option or its value."""

from __future__ import annotations

import pytest
from commands import measure


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("bounds --of patience", "patience"),
        ("change --modes paramtric", "modes 'paramtric': expected some of parametric, subscribe-first"),
        ("drift --drifts skew,continental", "drifts 'continental': expected some of attributes, skew"),
        ("gateway --overflow block", "overflow"),
        ("gateway --silent 1000", "silent"),
        ("gateway --share 0", "share"),
        ("hostile --attacks earthquake", "earthquake"),
        ("operators --calls 3", "calls"),
        ("routing --filters many", "filters 'many': expected positive integers"),
        ("routing --posets foo", "posets 'foo': expected some of forest, naive, diagram"),
        ("routing --merging off,foo", "merging 'foo': expected some of off, perfect, budget"),
        ("stalled --policies wait", "wait"),
    ],
)
def test_a_mistake_is_one_line(words: str, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert measure(*words.split()) != 0
    error = capsys.readouterr().err
    assert error.startswith("covey: ")
    assert complaint in error
    assert error.count("\n") == 1
