"""Random histories of the fuzzer that have to hold."""

from collections.abc import Iterable

from covey.sim.experiments.fuzz import FuzzOptions, play_history


def kind(options: FuzzOptions) -> str:
    """What differs from the usual options, as in the command: the id of a test."""
    return " ".join(options.command(0).split()[5:])


def play_all(seeds: Iterable[int], options: FuzzOptions) -> int:
    """Run the history of each seed and return the number of expected events; a failure names the replay."""
    expected = 0
    for seed in seeds:
        outcome = play_history(seed, options)
        assert not outcome.failed, f"{options.command(seed)}: {[*outcome.findings, outcome.error]}"
        expected += outcome.expected
    return expected
