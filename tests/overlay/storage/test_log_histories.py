"""Random histories of a log on a disk with faults: what was confirmed is served, or said to be damaged."""

from __future__ import annotations

from draws import some_seeds
from log_history import LogHistory


@some_seeds("logs on simulated disks", 8)
def test_what_was_confirmed_is_served_or_reported(seeds: range) -> None:
    for seed in seeds:
        history = LogHistory(seed)
        try:
            history.run(40)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def test_histories_crash_serve_and_lose() -> None:
    """The histories are worth their name: together they contain all that the test is about."""
    histories = [LogHistory(seed) for seed in range(60)]
    for history in histories:
        history.run(40)
    assert sum(history.crashes for history in histories) > 60
    assert sum(history.served for history in histories) > 1_000
    assert sum(history.flipped for history in histories) > 20
    assert any(history.cut for history in histories)
