"""The command line, run in the process of a test."""

import pytest

from benchmarks.__main__ import benchmark
from covey.cli.main import main


def run(*words: object) -> int | str | None:
    """Run `covey` with these words, each as its text; the status with which it ends."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code


def measure(*words: object) -> int | str | None:
    """As `run`, of `python -m benchmarks`."""
    with pytest.raises(SystemExit) as ended:
        benchmark([str(word) for word in words])
    return ended.value.code
