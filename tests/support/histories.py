"""Random histories of the fuzzer that have to hold."""

from collections.abc import Iterable

from covey.sim.experiments.fuzz import FuzzOptions, play_history


def kind(options: FuzzOptions) -> str:
    """A test's id: its options that differ from the defaults, as in the command."""
    return " ".join(options.command(0).split()[5:])


def play_all(seeds: Iterable[int], options: FuzzOptions) -> int:
    """Run each seed's history; returns the number of expected events. A failure prints the replay command."""
    expected = 0
    for seed in seeds:
        outcome = play_history(seed, options)
        assert not outcome.failed, f"{options.command(seed)}: {[*outcome.findings, outcome.error]}"
        expected += outcome.expected
    return expected
