"""The examples of docs/embedding.md run, in their order."""

import re
from pathlib import Path
from typing import Any

import covey.matcher

PAGE = (Path(__file__).parents[3] / "docs" / "embedding.md").read_text()


def test_the_examples_run() -> None:
    scope: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for block in blocks:
        exec(block, scope)
    assert len(blocks) == 7


def test_every_public_name_exists() -> None:
    for name in covey.matcher.__all__:
        assert getattr(covey.matcher, name) is not None
