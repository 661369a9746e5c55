"""`covey operators`: the table, for people and for programs."""

import json
import sys
from pathlib import Path

import pytest
from commands import run

from covey.matcher.operators import table

MODULE = """
from covey.matcher.operators.named_operator import NUMBERS, NamedOperator, Parameter
from covey.matcher.operators.score import score_operator
from covey.matcher.operators.table import register

register(score_operator("danger_of_module", lambda features: features[:, 0], ["speed"]))
register(NamedOperator("bracketed", (Parameter("x", NUMBERS),), print, summary="a value of [red]"))
"""


def test_the_table_shows_calls_and_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "_registered", {})
    monkeypatch.setattr(table, "_failed", {"matches": "needs the module re2, which is not installed"})
    assert run("operators") == 0
    out = capsys.readouterr().out
    assert "time_of_day(time, start, end[, zone])" in out
    assert "a point lies within a distance of a centre" in out
    assert "matches: needs the module re2, which is not installed" in out


def test_json_has_every_operator_and_modules_add_theirs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "module_of_operators.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setattr(table, "_registered", {})
    assert run("operators", "--json", "--module", "module_of_operators") == 0
    entries = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert list(entries) == list(table.names())
    danger = entries["danger_of_module"]
    assert danger["signature"] == "danger_of_module(speed, ?score)"
    assert danger["parameters"][1] == {
        "name": "score",
        "kinds": ["float64"],
        "takes": ["constant or variable", "free variable"],
    }
    assert run("operators") == 0
    assert "a value of [red]" in capsys.readouterr().out
    assert (entries["within"]["covers"], entries["rate_of_change"]["stateful"]) == (True, True)


def test_a_module_that_cannot_be_imported_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("operators", "--module", "no_such_module_of_operators") == 2
    expected = "--module no_such_module_of_operators: expected a module that can be imported ("
    assert expected in capsys.readouterr().err
