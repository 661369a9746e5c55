"""Progress on a terminal, and where stderr is redirected."""

import os
import pty
import select
import subprocess
import sys

import pytest

from covey.cli.support import output

_STARTS_SPARK = """
from covey.cli.support.output import progress
from covey.sim.metrics.session import _stderr_to_file
with progress() as on_progress, _stderr_to_file():
    on_progress("starting Spark", 0.0)
    input()
"""


def test_the_bar_is_shown_while_stderr_is_redirected_as_at_the_start_of_spark() -> None:
    terminal, stderr = pty.openpty()
    shown = b""
    command = [sys.executable, "-c", _STARTS_SPARK]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=stderr) as process:
        os.close(stderr)
        assert process.stdin is not None
        while b"starting Spark" not in shown and select.select([terminal], [], [], 60)[0]:
            shown += os.read(terminal, 1 << 16)
        process.stdin.close()
        process.kill()
    os.close(terminal)
    assert b"starting Spark" in shown


def test_a_redirected_stderr_has_a_line_now_and_then(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr(output, "monotonic", lambda: now_s)
    with output.progress() as on_progress:
        on_progress("too soon", 0.0)
        for step in range(8):
            now_s += 0.3 * output.EVERY_S
            on_progress(f"step {step}", step / 8)
    assert capfd.readouterr().err == " 38%  step 3\n 88%  step 7\n"
