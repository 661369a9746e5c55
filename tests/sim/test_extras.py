"""Without the extra `sim`, what needs it fails with one line."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from covey.sim.extras import EXTRAS, missing

ROOT = Path(__file__).parents[2]
SCRIPT = """
import contextlib, io, json, sys
from covey.sim.extras import EXTRAS
sys.modules.update(dict.fromkeys(EXTRAS))
from covey.cli.main import main
told = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as complaint:
        try:
            main(words)
        except SystemExit as ended:
            told.append((ended.code, complaint.getvalue().splitlines()[-1]))
print(json.dumps(told))
"""


def test_the_extra_is_the_one_that_the_project_declares() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["sim"]
    assert sorted(EXTRAS.values()) == sorted(requirement.partition(">")[0] for requirement in declared)


def test_a_command_that_needs_the_extra_says_so(tmp_path: Path) -> None:
    five = str(ROOT / "examples" / "five.yaml")
    sweep = str(ROOT / "examples" / "sweep.yaml")
    out = ["--out", str(tmp_path / "out")]
    (tmp_path / "scenario.yaml").write_text("brokers: 3\n")
    needed = [
        (["demo"], "a replay of quotes", "bokeh-sampledata"),
        (["sim"], "covey sim", "networkx"),
        (["sim", "fuzz", "--seed", "1"], "covey sim fuzz", "networkx"),
        (["topology", "make", "line"], "covey topology make", "networkx"),
        (["topology", "check", five], "covey topology check", "networkx"),
        (["metrics", str(tmp_path)], "covey metrics", "pyspark"),
        (["sweep", sweep, *out], "a sweep", "bokeh"),
        (["bench", "match", "--draw", str(tmp_path / "curves.svg")], "--draw", "matplotlib"),
        (["reproduce", "jayaram", "--quick"], "covey reproduce", "networkx"),
        (["reproduce", "fabret", "--quick", *out], "a report", "bokeh"),
    ]
    lines = json.dumps([words for words, _, _ in needed])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, lines], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    for (_, what, package), told in zip(needed, json.loads(done.stdout.splitlines()[-1]), strict=True):
        assert told == [2, f"covey: {what} needs {package}: `pip install 'covey[sim]'`"]


def test_a_module_that_no_extra_has_is_left_as_it_is() -> None:
    error = ModuleNotFoundError("No module named 'x'", name="x")
    assert missing("a plot", error) is error
