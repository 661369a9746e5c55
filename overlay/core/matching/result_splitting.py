"""Splits the result of a match by receiver, without a Python statement per event."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

Share = tuple[int, npt.NDArray[np.int64] | None, npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""What one session gets of a batch: its number, then rows, offsets and ids (`split_by_session`)."""


def split_by_link(
    bits: npt.NDArray[np.uint64], numbers: list[int]
) -> list[tuple[int, npt.NDArray[np.bool_] | None]]:
    """The interfaces among these that match, with their events: None for all, else one bool per event.

    `bits` is uint64[n_events, words], as `Matches.interfaces` gives it; n_events is at least 1.
    """
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
    """The result of a match, split by session: (number, rows, offsets, subscription ids), in order of number.
    `owners` and `ids` are the numbers and subscription ids of the matches.

    `rows` are the positions of the session's events in the batch, None where it gets all of them; offsets and
    ids are as in `Deliver`. Cost: one sort of the matches by session, none where there is one session.
    """
    if not owners.size:
        return []
    count = offsets.size - 1
    if len(set(owners.tolist())) == 1 if count == 1 else (owners == owners[0]).all():
        number = int(owners[0])
        return [(number, None, offsets, ids) if count == 1 else _sole_share(number, offsets, ids)]
    events = np.repeat(np.arange(count), offsets[1:] - offsets[:-1])
    order = np.argsort(owners, kind="stable")
    owners, events, ids = owners[order], events[order], ids[order]
    # A session's ids for one event are a run; all runs are found at once, then grouped by session.
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
    """The share of a session that gets all."""
    matching = offsets[1:] > offsets[:-1]
    if matching.all():
        return number, None, offsets, ids
    rows = np.flatnonzero(matching)
    return number, rows, np.concatenate((offsets[rows], offsets[-1:])), ids
