"""One matching engine and the changes it has not seen yet.

Control messages only note what should be in the engine; the engine is brought up to date just before the next
match, columnwise for all subscriptions of one filter. A thousand UPDs between two batches of events so cost
the engine one `update_many`, and an UPD that is overtaken by the next costs it nothing.

Invariant: after `flush` the engine holds exactly the interests that were put and not discarded, under their
uids, with the values they had at the flush.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from covey.matcher.engine import create_engine

if TYPE_CHECKING:
    from covey.matcher.engine import Engine
    from covey.matcher.event_type import EventType
    from covey.matcher.expression import Scalar
    from covey.matcher.filter import Filter


class Matched(Protocol):
    """What is put into an engine: a filter with values, under an id."""

    @property
    def uid(self) -> int: ...

    @property
    def filter(self) -> Filter: ...

    @property
    def values(self) -> Mapping[str, Scalar]: ...


class Matching:
    """The engine of one event type for either links or sessions; made at the first flush that needs one."""

    def __init__(self, engine_name: str, event_type: EventType) -> None:
        self._engine_name = engine_name
        self._event_type = event_type
        self._engine: Engine | None = None
        self._wanted: dict[int, tuple[Matched, int]] = {}
        self._installed: dict[int, tuple[Filter, int]] = {}
        self._dirty: dict[int, None] = {}

    def put(self, interest: Matched, number: int) -> None:
        """This interest is there, or has taken new values; `number` is that of its interface."""
        self._wanted[interest.uid] = (interest, number)
        self._dirty[interest.uid] = None

    def discard(self, interest: Matched) -> None:
        del self._wanted[interest.uid]
        self._dirty[interest.uid] = None

    def __len__(self) -> int:
        return len(self._wanted)

    def flush(self) -> Engine:
        """The engine, brought up to date. Cost: per interest changed since the last flush."""
        if self._engine is None:
            self._engine = create_engine(self._engine_name, self._event_type)
        if self._dirty:
            self._apply(self._engine)
            self._dirty.clear()
        return self._engine

    def _apply(self, engine: Engine) -> None:
        removed: list[int] = []
        added: dict[tuple[Filter, int], list[Matched]] = {}
        updated: dict[Filter, list[Matched]] = {}
        for uid in self._dirty:
            wanted = self._wanted.get(uid)
            installed = self._installed.get(uid)
            if wanted is None:
                if installed is not None:
                    removed.append(uid)
                    del self._installed[uid]
                continue
            interest, number = wanted
            key = (interest.filter, number)
            if installed == key:
                if interest.values:
                    updated.setdefault(interest.filter, []).append(interest)
                continue
            if installed is not None:
                removed.append(uid)
            added.setdefault(key, []).append(interest)
            self._installed[uid] = key
        if removed:
            engine.remove_many(np.array(removed, np.int64))
        for filter, interests in updated.items():
            if len(interests) == 1:
                engine.update(interests[0].uid, interests[0].values)
            else:
                engine.update_many(_uids(interests), _columns(filter, interests))
        for (filter, number), interests in added.items():
            if len(interests) == 1:
                engine.add(interests[0].uid, filter, interests[0].values, interface=number)
            else:
                engine.add_many(_uids(interests), filter, _columns(filter, interests), interface=number)

    def installed(self) -> dict[int, int]:
        """The uids in the engine as of the last flush, and the numbers of their interfaces."""
        return {uid: number for uid, (_, number) in self._installed.items()}

    def wanted(self) -> dict[int, int]:
        """The uids that the next flush leaves in the engine, and the numbers of their interfaces."""
        return {uid: number for uid, (_, number) in self._wanted.items()}


def _uids(interests: Sequence[Matched]) -> npt.NDArray[np.int64]:
    return np.array([interest.uid for interest in interests], np.int64)


def _columns(filter: Filter, interests: Sequence[Matched]) -> dict[str, list[object]]:
    return {name: [interest.values[name] for interest in interests] for name in filter.variables}


def split_by_link(
    bits: npt.NDArray[np.uint64], numbers: list[int]
) -> list[tuple[int, npt.NDArray[np.bool_] | None]]:
    """Which of these interfaces match, and which events: None where all do, else one bool per event.

    `bits` is uint64[n_events, words], as `Engine.match_interfaces` gives it; n_events is at least 1.
    """
    if len(bits) == 1:
        words = bits[0].tolist()
        return [(n, None) for n in numbers if n >> 6 < len(words) and words[n >> 6] >> (n & 63) & 1]
    some = np.bitwise_or.reduce(bits, axis=0)
    every = np.bitwise_and.reduce(bits, axis=0)
    found: list[tuple[int, npt.NDArray[np.bool_] | None]] = []
    for number in numbers:
        word, bit = divmod(number, 64)
        if word >= len(some) or not int(some[word]) >> bit & 1:
            continue
        if int(every[word]) >> bit & 1:
            found.append((number, None))
        else:
            found.append((number, (bits[:, word] >> np.uint64(bit) & np.uint64(1)).astype(np.bool_)))
    return found


Share = tuple[int, npt.NDArray[np.int64] | None, npt.NDArray[np.int64], npt.NDArray[np.int64]]


def split_by_session(
    offsets: npt.NDArray[np.int64],
    uids: npt.NDArray[np.int64],
    owner: npt.NDArray[np.int64],
    subscription: npt.NDArray[np.int64],
) -> list[Share]:
    """The result of a match, split by session: (number, rows, offsets, subscription ids), in order of number.

    `rows` are the positions of the session's events in the batch, None where it gets all of them; offsets and
    ids are as in `Deliver`. Cost: one sort of the matches by session, none where there is one session.
    """
    if not len(uids):
        return []
    count = len(offsets) - 1
    owners = owner[uids]
    ids = subscription[uids]
    if count == 1 and len(set(owners.tolist())) == 1:
        return [(int(owners[0]), None, offsets, ids)]
    if (owners == owners[0]).all():
        matched = np.flatnonzero(offsets[1:] > offsets[:-1])
        if len(matched) == count:
            return [(int(owners[0]), None, offsets, ids)]
        return [(int(owners[0]), matched, np.append(offsets[matched], len(ids)), ids)]
    events = np.repeat(np.arange(count), np.diff(offsets))
    order = np.argsort(owners, kind="stable")
    owners, events, ids = owners[order], events[order], ids[order]
    bounds = np.flatnonzero(np.diff(owners)) + 1
    edges = [0, *bounds.tolist(), len(ids)]
    shares: list[Share] = []
    for start, stop in pairwise(edges):
        mine = events[start:stop]
        first = np.flatnonzero(np.diff(mine, prepend=-1))
        rows = None if len(first) == count else mine[first]
        shares.append((int(owners[start]), rows, np.append(first, stop - start), ids[start:stop]))
    return shares
