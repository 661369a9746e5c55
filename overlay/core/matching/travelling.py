"""Results of named operators on their way: what matching adds to, and what a message carries.

Invariant: the batch of a message does not change, since both ends of a link count its bytes; matching adds
results to a view of it (`opened`), and a message that leaves has a copy of those that travel (`sealed`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from covey.matcher.events.batch import EventBatch
from covey.matcher.events.results import Answers, Results

MAX_RESULT_BYTES = 1 << 20
"""How many bytes of results a batch carries: a quarter of a neighbour's credit, and of a frame, so that
results never keep events from leaving. The next broker asks again what is over it."""


def opened(batch: EventBatch) -> EventBatch:
    """The same events, with results of their own."""
    return batch.with_results(Results() if batch.results is None else batch.results.copy())


class TravellingResults:
    """What leaves of the results of one broker: all or, where `share` is false, nothing."""

    def __init__(self, *, share: bool = True) -> None:
        self.share = share
        self.left_out = 0
        """Calls whose answers were over the bytes that a batch carries."""

    def sealed(self, batch: EventBatch, keys: Collection[int] | None = None) -> EventBatch:
        """The same events with a copy of the results, of these keys alone if there are any."""
        results = batch.results
        taken: dict[int, Answers] = {}
        if results is not None and self.share:
            room = MAX_RESULT_BYTES
            for key, answers in results.items() if keys is None else _of(results, keys):
                size = answers.nbytes
                if size > room:
                    self.left_out += 1
                else:
                    taken[key] = answers
                    room -= size
        return batch.with_results(Results(taken) if taken else None)


def _of(results: Results, keys: Collection[int]) -> Iterator[tuple[int, Answers]]:
    """The answers of the calls among these keys, at a cost of the smaller of both."""
    if len(keys) > len(results):
        yield from ((key, answers) for key, answers in results.items() if key in keys)
        return
    for key in sorted(keys):
        answers = results.get(key)
        if answers is not None:
            yield key, answers
