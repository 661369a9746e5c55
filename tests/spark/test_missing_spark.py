"""Without Spark, or with a too old one, importing `covey.spark` fails with one sentence."""

import subprocess
import sys

import pytest

_OLD = "import importlib.metadata as m; m.version = lambda package: '3.5.1'"
_NONE = "import sys; sys.modules['pyspark'] = None"


@pytest.mark.parametrize(
    ("before", "sentence"),
    [
        (_OLD, "covey.spark needs pyspark 4.0 or newer, and 3.5.1 is installed: `pip install 'pyspark>"),
        (_NONE, "covey.spark needs pyspark: `pip install 'covey[sim]'`"),
    ],
)
def test_the_import_names_what_is_missing(before: str, sentence: str) -> None:
    command = [sys.executable, "-c", f"{before}\nimport covey.spark"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].partition(": ")[2].startswith(sentence)
