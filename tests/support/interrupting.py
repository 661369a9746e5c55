"""Ctrl-C in a terminal, SIGINT to all processes of a command; or a signal to its first process."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress


def interrupted(
    words: Sequence[str],
    begun: Callable[[], bool],
    environment: Mapping[str, str] | None = None,
    only_first: signal.Signals | None = None,
) -> tuple[int, str]:
    """Status and output of a command that is interrupted once it has begun, or whose first process alone gets
    a signal. All its processes must end, since the output stays open until the last does."""
    process = subprocess.Popen(
        words,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        until = time.monotonic() + 120
        while not begun():
            assert time.monotonic() < until
            assert process.poll() is None
            time.sleep(0.05)
        if only_first is None:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(only_first)
        output, _ = process.communicate(timeout=120)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, output
