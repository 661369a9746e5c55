"""The quotes of the demonstration, and its imports."""

import subprocess
import sys

from covey.sim.scenario.recorded import FIRMS, QUOTE, load_quotes


def test_quotes_are_complete_ordered_and_unique() -> None:
    quotes = load_quotes()
    assert quotes.schema == QUOTE.arrow_schema
    rows = quotes.to_pylist()
    assert len(rows) == 12_154
    keys = [(row["date"], row["firm"]) for row in rows]
    assert keys == sorted(set(keys))
    assert {row["firm"] for row in rows} == set(FIRMS)
    assert rows[0]["firm"] == "AAPL"
    assert (rows[-1]["firm"], rows[-1]["date"].isoformat()) == ("MSFT", "2013-03-01T00:00:00+00:00")


def test_the_demonstration_needs_no_package_but_the_quotes() -> None:
    script = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("icalendar", "matplotlib", "networkx", "pandas", "pyspark", "shapely"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
import covey.cli.demo
from covey.sim.experiments.demo import report, run
from covey.sim.scenario.recorded import load_quotes
load_quotes()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
