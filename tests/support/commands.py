"""The command line, run in the process of a test."""

from __future__ import annotations

import pytest

from covey.cli.main import main


def run(*words: object) -> int | str | None:
    """Run `covey` with these words, each as its text; the status with which it ends."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code
