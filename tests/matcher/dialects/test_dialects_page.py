"""Every example of docs/dialects.md is true."""

import re
import shlex
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.cli.main import main
from covey.matcher import FilterSyntaxError
from covey.matcher.dialects import translate

PAGE = (Path(__file__).parents[3] / "docs" / "dialects.md").read_text()
ROWS = re.findall(r"^\| `(.+)` \| `(.+)` \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("text", "filter"), ROWS)
def test_rows(text: str, filter: str) -> None:
    assert translate(text, "eventbridge" if text.startswith("{") else "sql") == filter


def test_the_page_has_rows_of_both() -> None:
    assert {text.startswith("{") for text, _ in ROWS} == {True, False}


def test_commands(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    said = re.findall(r"prints `(.+?)`|the second `(.+?)`", PAGE)
    for command, filter in zip(block.splitlines(), said, strict=True):
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(command)[1:])
        assert ended.value.code == 0
        assert capsys.readouterr().out == f"{filter[0] or filter[1]}\n"


SIGNS = "'\"({[:,]})=<> anot1.eliklANDORNULIS%_$*/-\n"


@given(st.sampled_from(["sql", "eventbridge"]), st.text(st.sampled_from(SIGNS)))
def test_any_text_is_translated_or_refused_as_a_filter(language: str, text: str) -> None:
    with suppress(FilterSyntaxError):
        translate(text, language)
