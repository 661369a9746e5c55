"""docs/simulation.md: its scenario is valid, and it has every kind, defect and property."""

import re
from pathlib import Path

from covey.sim.scenario.scenario import load_scenario
from covey.sim.simulator.defects import DEFECTS
from covey.sim.topology import KINDS

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "simulation.md").read_text()


def test_the_scenario_is_valid(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    file = tmp_path / "scenario.yaml"
    file.write_text(text)
    assert load_scenario(file).subscribers == 5000


def test_every_kind_defect_and_property_is_named() -> None:
    assert all(f"`{name}`" in PAGE for name in KINDS)
    assert all(name in PAGE for name in DEFECTS)
    sources = [
        *(ROOT / "sim" / "checkers").glob("*.py"),
        ROOT / "sim" / "experiments" / "fuzz" / "history.py",
    ]
    names = re.compile(r'(?:findings\.add|_report)\(\s*"([a-z]+)"')
    properties = {name for source in sources for name in names.findall(source.read_text())} - {"livelock"}
    assert len(properties) >= 9
    table = PAGE.partition("| property |")[2]
    assert all(name in table for name in properties)
