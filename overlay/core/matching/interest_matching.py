"""The interface of what matches events against the interest in one event type (`OperatorMatching`, or a
`MatchingFactory` passed to the broker), and what becomes of the result: the shares of receivers, and results
of named operators that travel.

Invariant: the batch of a message does not change, since both ends of a link count its bytes. Matching adds
results to a view of it (`opened`); a message that leaves has a copy of the travelling ones (`sealed`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from covey.matcher.events.batch import EventBatch
from covey.matcher.events.results import Answers, Results

if TYPE_CHECKING:
    from covey.matcher.evaluation.evaluator import Evaluator
    from covey.matcher.events.event_type import EventType
    from covey.matcher.expressions.expression import Scalar
    from covey.matcher.filters.filter import Filter
    from covey.matcher.matches import Matches
    from covey.overlay.core.covering.poset import Poset
    from covey.overlay.core.matching.event_points import EventPoints


Int64s = npt.NDArray[np.int64]
_NONE: Int64s = np.zeros(0, np.int64)


Decided = tuple[Int64s, Int64s, tuple[Int64s, Int64s]]
"""The matches of a batch, as offsets and ids that ascend within each event; then the pairs (row, id) with an
undecided residue: among the matches where these are passed on, else missing from them."""
NO_PAIRS = _NONE, _NONE


class Matched(Protocol):
    @property
    def uid(self) -> int: ...

    @property
    def filter(self) -> Filter: ...

    @property
    def values(self) -> Mapping[str, Scalar]: ...


class InterestMatching(Protocol):
    @property
    def calls(self) -> bool:
        """Whether a filter calls a named operator."""

    def widen(self, event_type: EventType) -> None:
        """Accept interests over this schema, which includes all present ones."""

    def check_room(self, filter: Filter, values: Mapping[str, Scalar], replaced: int) -> None:
        """`CapacityError` if there is no room for an interest in place of the uid `replaced`, -1 for none."""

    def put(self, interest: Matched, number: int) -> None:
        """Insert an interest of the interface with this number, or apply its new values."""

    def discard(self, interest: Matched) -> None:
        """Remove an interest."""

    def match(self, events: EventPoints) -> Matches:
        """The uids of the matching interests of each event; supports all but `interfaces`."""

    def decide(self, events: EventPoints) -> Decided:
        """As `match`, and which pairs no operator has decided."""

    def match_interfaces(self, events: EventPoints, exclude: int = -1) -> npt.NDArray[np.uint64]:
        """As `Matches.interfaces`; the bits of the interface `exclude` are undefined."""

    def event_interfaces(self, events: EventPoints, exclude: int = -1) -> int:
        """The interfaces of interests that match a single event, as bits; that of `exclude` is undefined."""

    def form(self, filter: Filter) -> str:
        """As `Engine.form`."""

    def interests(self) -> dict[int, int]:
        """The numbers of interfaces by uid."""


MatchingFactory = Callable[["EventType", "Mapping[str, Poset]", bool, "Evaluator"], InterestMatching]
"""Arguments: event type, posets of its groups, True for the interest of sessions, evaluator."""


Share = tuple[int, npt.NDArray[np.int64] | None, npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""What one session gets of a batch: its number, then rows, offsets and ids (`split_by_session`)."""


def split_by_link(
    bits: npt.NDArray[np.uint64], numbers: list[int]
) -> list[tuple[int, npt.NDArray[np.bool_] | None]]:
    """The matching interfaces with bool[n_events], None for all. `bits`: uint64[n_events, words], n_events >
    0."""
    some = np.bitwise_or.reduce(bits, axis=0)
    every = np.bitwise_and.reduce(bits, axis=0)
    links: list[tuple[int, npt.NDArray[np.bool_] | None]] = []
    for number in numbers:
        word, bit = divmod(number, 64)
        if word >= len(some) or not int(some[word]) >> bit & 1:
            continue
        if int(every[word]) >> bit & 1:
            links.append((number, None))
        else:
            links.append((number, (bits[:, word] >> np.uint64(bit) & np.uint64(1)).astype(np.bool_)))
    return links


def split_by_session(
    offsets: npt.NDArray[np.int64], owners: npt.NDArray[np.int64], ids: npt.NDArray[np.int64]
) -> list[Share]:
    """The result of a match, split by session, in order of number. `owners` and `ids` are the numbers and
    subscription ids of the matches. Rows are the session's events in the batch, None for all; offsets and ids
    are as in `Deliver`. Cost: one sort of the matches, none for a single session."""
    if not owners.size:
        return []
    count = offsets.size - 1
    if len(set(owners.tolist())) == 1 if count == 1 else (owners == owners[0]).all():
        number = int(owners[0])
        return [(number, None, offsets, ids) if count == 1 else _sole_share(number, offsets, ids)]
    events = np.repeat(np.arange(count), offsets[1:] - offsets[:-1])
    order = np.argsort(owners, kind="stable")
    owners, events, ids = owners[order], events[order], ids[order]
    # A session's ids for one event are a run; runs are grouped by session.
    new_session = owners[1:] != owners[:-1]
    starts = np.flatnonzero(np.concatenate(([True], new_session | (events[1:] != events[:-1]))))
    rows, ends = events[starts], np.concatenate((starts, [len(ids)]))
    edges = np.searchsorted(starts, np.flatnonzero(new_session) + 1).tolist()
    shares: list[Share] = []
    for first, last in pairwise([0, *edges, len(starts)]):
        low, high = ends[first], ends[last]
        mine = None if last - first == count else rows[first:last]
        shares.append((int(owners[low]), mine, ends[first : last + 1] - low, ids[low:high]))
    return shares


def _sole_share(number: int, offsets: npt.NDArray[np.int64], ids: npt.NDArray[np.int64]) -> Share:
    matching = offsets[1:] > offsets[:-1]
    if matching.all():
        return number, None, offsets, ids
    rows = np.flatnonzero(matching)
    return number, rows, np.concatenate((offsets[rows], offsets[-1:])), ids


MAX_RESULT_BYTES = 1 << 20
"""A quarter of a neighbour's credit, and of a frame, so that results never keep events from leaving. The next
broker evaluates again what is over it."""


def opened(batch: EventBatch) -> EventBatch:
    """The same events, with results of their own."""
    return batch.with_results(Results() if batch.results is None else batch.results.copy())


class TravellingResults:
    """The results of one broker that leave: all or, unless `share`, none."""

    def __init__(self, *, share: bool = True) -> None:
        self.share = share
        self.left_out = 0
        """Calls whose results did not fit."""

    def sealed(self, batch: EventBatch, keys: Collection[int] | None = None) -> EventBatch:
        """The same events with a copy of the results, only of `keys` if given."""
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
    """The results of these keys, at the cost of the smaller of both."""
    if len(keys) > len(results):
        yield from ((key, answers) for key, answers in results.items() if key in keys)
        return
    for key in sorted(keys):
        answers = results.get(key)
        if answers is not None:
            yield key, answers
