"""The command line, in the process of a test, or as its own process."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.__main__ import benchmark
from covey.cli.main import main


def run(*words: object) -> int | str | None:
    """Run `covey` with these words, as text; returns the exit status."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code


def measure(*words: object) -> int | str | None:
    """As `run`, for `python -m benchmarks`."""
    with pytest.raises(SystemExit) as ended:
        benchmark([str(word) for word in words])
    return ended.value.code


COMMAND = [sys.executable, "-m", "covey.cli.main"]


@contextmanager
def started(
    *words: str, program: Sequence[str] = COMMAND, cwd: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A process, by default of `covey`, that runs until SIGTERM at the end; its output includes stderr."""
    process = subprocess.Popen(
        [*program, *words],
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        bufsize=1,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=100)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def line_with(process: subprocess.Popen[str], text: str) -> str:
    """The next line of a process's output that contains a text; fails at the end of the output."""
    seen = []
    assert process.stdout is not None
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return line
    raise AssertionError(f"no line with {text!r} in {''.join(seen)}")
