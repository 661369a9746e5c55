"""Random histories of a log on a faulty disk: confirmed records are served, or reported as damaged."""

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
