"""Worker processes share no state with the process that starts them."""

import gc
import os
import signal
import sys
from pathlib import Path

import pytest
from interrupting import interrupted

from covey.sim.experiments.processes import each


def test_workers_start_afresh() -> None:
    gc.disable()
    try:
        ((_, collects),) = each(eval, ["__import__('gc').isenabled()"], 1)
        assert collects.result()
    finally:
        gc.enable()


def die_at_two(number: int) -> int:
    if number == 2:
        os._exit(9)
    return number


def test_a_process_that_dies_costs_its_item_alone() -> None:
    results = {
        number: None if future.exception() else future.result()
        for number, future in each(die_at_two, [1, 2, 3], jobs=1)
    }
    assert results == {1: 1, 2: None, 3: 3}


_INTERRUPTED = """
import os, signal, sys, time
from covey.sim.experiments.processes import each


def work(path):
    open(path, "x").close()
    time.sleep(600)

if __name__ == "__main__":
    try:
        for path, future in each(work, [f"{sys.argv[1]}/{number}" for number in range(4)], 2):
            pass
    except KeyboardInterrupt:
        sys.exit(130)
"""


def test_ctrl_c_ends_the_workers_and_prints_nothing(tmp_path: Path) -> None:
    assert _interrupted(tmp_path) == (130, "", 2)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_process_that_started_them(ending: signal.Signals, tmp_path: Path) -> None:
    status, _, begun = _interrupted(tmp_path, ending)
    assert (status, begun) == (-ending, 2)


def _interrupted(folder: Path, only_first: signal.Signals | None = None) -> tuple[int, str, int]:
    """Status, output, and the number of begun calls."""
    script, begun = folder / "script.py", folder / "begun"
    script.write_text(_INTERRUPTED)
    begun.mkdir()
    status, output = interrupted(
        [sys.executable, str(script), str(begun)],
        lambda: len([*begun.iterdir()]) >= 2,
        only_first=only_first,
    )
    return status, output, len([*begun.iterdir()])
