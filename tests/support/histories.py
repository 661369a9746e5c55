"""Random histories of the fuzzer that have to hold."""

from __future__ import annotations

from collections.abc import Iterable

from covey.sim.experiments.fuzz import Options, play


def play_all(seeds: Iterable[int], options: Options) -> int:
    """Play the history of each seed; how many events were owed in all. A failure says how to replay it."""
    owed = 0
    for seed in seeds:
        outcome = play(seed, options)
        assert not outcome.failed, f"{options.command(seed)}: {[*outcome.findings, outcome.error]}"
        owed += outcome.owed
    return owed
