"""The code of docs/how-to-scripts.md and docs/how-to-test.md runs, and neither is long; the example test runs
outside this repository."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from covey.testing import running_overlay

DOCS = Path(__file__).parents[2] / "docs"
WORDS = 400


def blocks(name: str) -> list[str]:
    page = (DOCS / name).read_text()
    assert len(page.split()) <= WORDS
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def test_scripts() -> None:
    pytest.importorskip("pandas")
    scope: dict[str, Any] = {}
    with running_overlay() as brokers:
        for block in blocks("how-to-scripts.md"):
            assert "localhost:7001" in block
            exec(block.replace("localhost:7001", brokers.address()), scope)
    assert scope["limits"][0].values == {"limit": 15.0}


def test_tests_of_applications(tmp_path: Path) -> None:
    conftest, tests, script = blocks("how-to-test.md")
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_mine.py").write_text(tests)
    shutil.copy(DOCS.parent / "examples" / "test_trailing_stop.py", tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", tmp_path, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.splitlines()[-1].startswith("3 passed"), done.stdout + done.stderr
    exec(script, {})
