"""An installation without the extra `sim`: what needs it says so in one line."""

from __future__ import annotations

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
    (tmp_path / "scenario.yaml").write_text("brokers: 3\n")
    needed = {
        "covey demo": ("bokeh-sampledata", []),
        "covey sim": ("networkx", []),
        "covey sim fuzz": ("networkx", ["--seed", "1"]),
        "covey topology make": ("networkx", ["line"]),
        "covey topology check": ("networkx", [five]),
        "covey metrics": ("pyspark", [str(tmp_path)]),
        "covey sweep": ("pyspark", [str(ROOT / "examples" / "sweep.yaml"), "--out", str(tmp_path / "out")]),
        "covey bench control": ("networkx", []),
        "covey bench scenario": ("networkx", [str(tmp_path / "scenario.yaml")]),
        "covey reproduce": ("networkx", ["jayaram", "--quick"]),
    }
    lines = json.dumps([[*command.split()[1:], *words] for command, (_, words) in needed.items()])
    done = subprocess.run([sys.executable, "-c", SCRIPT, lines], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for (command, (package, _)), told in zip(
        needed.items(), json.loads(done.stdout.splitlines()[-1]), strict=True
    ):
        what = "a replay of quotes" if command == "covey demo" else command
        assert told == [1, f"covey: {what} needs {package}: `pip install '.[sim]'` in the clone"]


def test_a_module_that_no_extra_has_is_left_as_it_is() -> None:
    error = ModuleNotFoundError("No module named 'x'", name="x")
    assert missing("a plot", error) is error
