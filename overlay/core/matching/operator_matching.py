"""Interests whose filters call named operators, beside those whose filters do not.

An engine of its own matches the *gates* of filters with calls (`Filter.gate`). An evaluator then decides the
*residues* of what has passed: once per call and event, all together, and for links only where no other filter
of the interface matches. Brokers pass on an event whose residue is undecided; the last reader drops it.

Invariant: after `_flush` the residues are those of the interests that were put and not discarded, with their
newest values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.matcher.engine import bits_of
from covey.matcher.evaluation.problem import FALSE, TRUE, UNDECIDED
from covey.matcher.evaluation.residues import Residues
from covey.matcher.matches import Matches
from covey.overlay.core.matching.interest_matching import NO_PAIRS, Decided, Matched
from covey.overlay.core.matching.matching import FilterAt, Matching

if TYPE_CHECKING:
    from covey.matcher.evaluation.evaluator import Evaluator
    from covey.matcher.events.batch import EventBatch
    from covey.matcher.events.event_type import EventType
    from covey.matcher.expressions.expression import Scalar
    from covey.matcher.filters.filter import Filter
    from covey.overlay.core.matching.event_points import EventPoints


Int64s = npt.NDArray[np.int64]


class CallResidues:
    """The interests with calls, by uid. Without `reads`, operators with state stay undecided."""

    def __init__(self, evaluator: Evaluator, *, reads: bool) -> None:
        self._evaluator = evaluator
        self._reads = reads
        self._residues = Residues()
        self._interests: dict[int, tuple[Matched, int]] = {}
        self._numbers: dict[int, tuple[Filter, int]] = {}
        self._dirty: dict[int, None] = {}

    def put(self, interest: Matched, number: int) -> None:
        self._interests[interest.uid] = interest, number
        self._dirty[interest.uid] = None

    def discard(self, interest: Matched) -> None:
        """Does nothing for an unknown interest."""
        if self._interests.pop(interest.uid, None) is not None:
            self._dirty[interest.uid] = None

    def __contains__(self, uid: int) -> bool:
        return uid in self._interests

    def __len__(self) -> int:
        return len(self._interests)

    def interfaces(self) -> dict[int, int]:
        return {uid: number for uid, (_, number) in self._interests.items()}

    def interfaces_of(self, uids: Int64s) -> Int64s:
        return _of_each(uids, lambda uid: self._interests[uid][1])

    def truths(
        self, batch: EventBatch, rows: Int64s, uids: Int64s, groups: Int64s | None = None
    ) -> npt.NDArray[np.int8]:
        """int8[pairs]: the truth of each pair of an event and an interest whose gate it passes; `groups` as
        in `Evaluator.decide`."""
        self._flush()
        numbers = _of_each(uids, lambda uid: self._numbers[uid][1])
        return self._evaluator.decide(batch, self._residues, rows, numbers, groups, readers=self._reads)

    def _flush(self) -> None:
        if not self._dirty:
            return
        removed: list[int] = []
        added: dict[Filter, list[Matched]] = {}
        updated: dict[Filter, list[Matched]] = {}
        for uid in self._dirty:
            current, known = self._interests.get(uid), self._numbers.get(uid)
            if known is not None and (current is None or current[0].filter != known[0]):
                removed.append(known[1])
                del self._numbers[uid]
                known = None
            if current is not None:
                group = added if known is None else updated
                group.setdefault(current[0].filter, []).append(current[0])
        if removed:
            self._residues.remove(np.array(removed, np.int64))
        for filter, interests in updated.items():
            numbers = np.array([self._numbers[interest.uid][1] for interest in interests], np.int64)
            self._residues.replace(numbers, filter, _columns(filter, interests))
        for filter, interests in added.items():
            numbers = self._residues.add_many(filter, _columns(filter, interests), len(interests))
            for interest, number in zip(interests, numbers.tolist(), strict=True):
                self._numbers[interest.uid] = filter, number
        self._dirty.clear()


def _of_each(uids: Int64s, value: Callable[[int], int]) -> Int64s:
    """`value` of each uid, called once per distinct one."""
    distinct, places = np.unique(uids, return_inverse=True)
    return np.array([value(uid) for uid in distinct.tolist()], np.int64)[places]


def _columns(filter: Filter, interests: list[Matched]) -> dict[str, list[Scalar]]:
    return {name: [interest.values[name] for interest in interests] for name in filter.variables}


class OperatorMatching:
    """`create` creates the matching of filters without calls, and of gates. With `reads` it is the last
    reader: operators with state are evaluated, undecided events dropped."""

    def __init__(
        self,
        create: Callable[[EventType], Matching],
        event_type: EventType,
        evaluator: Evaluator,
        *,
        reads: bool,
    ) -> None:
        self.plain = create(event_type)
        self.gates: Matching | None = None
        self._create = create
        self._event_type = event_type
        self._reads = reads
        self._calling = CallResidues(evaluator, reads=reads)
        self.calls = False

    # --- interests ------------------------------------------------------------------------------------------

    def widen(self, event_type: EventType) -> None:
        self._event_type = event_type
        self.plain.widen(event_type)
        if self.gates is not None:
            self.gates.widen(event_type)

    def check_room(self, filter: Filter, values: Mapping[str, Scalar], replaced: int) -> None:
        if not filter.calls:
            self.plain.check_room(filter, values, replaced)
        else:
            self._gates().check_room(*filter.gate_at(values), replaced)

    def put(self, interest: Matched, number: int) -> None:
        """While an interest moves, its filter may temporarily have no calls."""
        if interest.filter.calls:
            if interest.uid in self.plain:
                self.plain.discard(interest)
            self._gates().put(_gate_of(interest), number)
            self._calling.put(interest, number)
            self.calls = True
        else:
            if self.calls and interest.uid in self._calling:
                self.discard(interest)
            self.plain.put(interest, number)

    def _gates(self) -> Matching:
        if self.gates is None:
            self.gates = self._create(self._event_type)
        return self.gates

    def discard(self, interest: Matched) -> None:
        if self.gates is not None and interest.uid in self._calling:
            self._calling.discard(interest)
            self.gates.discard(interest)
            self.calls = len(self._calling) > 0
        else:
            self.plain.discard(interest)

    def form(self, filter: Filter) -> str:
        """Of a filter with calls, the form of its gate."""
        matching = self.gates if filter.calls else self.plain
        return "" if matching is None else matching.form(filter.gate)

    def interests(self) -> dict[int, int]:
        return {**self.plain.interests(), **self._calling.interfaces()}

    def __len__(self) -> int:
        return len(self.plain) + (len(self._calling) if self.calls else 0)

    # --- matching -------------------------------------------------------------------------------------------

    def match(self, events: EventPoints) -> Matches:
        if not self.calls:
            return self.plain.match(events)
        offsets, ids, _ = self.decide(events)
        return Matches.of(offsets, ids)

    def decide(self, events: EventPoints, among: tuple[Int64s, Int64s] | None = None) -> Decided:
        """As `match`, and what is undecided. With `among`, operators decide only these pairs (row, id) of
        interests with calls."""
        if events.batch.count == 1:
            ids = self.plain.event_uids(events)
            offsets = np.array((0, ids.size), np.int64)
        else:
            offsets, ids = self.plain.match(events).ordered()
        if not self.calls:
            return offsets, ids, NO_PAIRS
        rows, uids = self._passing(events)
        if among is not None:
            wanted = np.isin(_keys(rows, uids), _keys(*among))
            rows, uids = rows[wanted], uids[wanted]
        truths = self._calling.truths(events.over(self._event_type).batch, rows, uids)
        unsure = truths == UNDECIDED
        matching = truths == TRUE if self._reads else truths != FALSE
        every = np.concatenate([np.repeat(np.arange(len(events)), np.diff(offsets)), rows[matching]])
        ids = np.concatenate([ids, uids[matching]])
        order = np.lexsort((ids, every))
        offsets = np.zeros(len(events) + 1, np.int64)
        np.cumsum(np.bincount(every, minlength=len(events)), out=offsets[1:])
        return offsets, ids[order], (rows[unsure], uids[unsure])

    def match_interfaces(self, events: EventPoints, exclude: int = -1) -> npt.NDArray[np.uint64]:
        bits = self.plain.match_interfaces(events, exclude)
        if not self.calls:
            return bits
        rows, uids = self._passing(events)
        numbers = self._calling.interfaces_of(uids)
        words = int(numbers.max(initial=0)) // 64 + 1
        if words > bits.shape[1]:
            bits = np.hstack([bits, np.zeros((len(bits), words - bits.shape[1]), np.uint64)])
        shifts = (numbers % 64).astype(np.uint64)
        is_open = (bits[rows, numbers // 64] >> shifts & np.uint64(1) == 0) & (numbers != exclude)
        rows, uids, numbers, shifts = rows[is_open], uids[is_open], numbers[is_open], shifts[is_open]
        batch = events.over(self._event_type).batch
        passing = self._calling.truths(batch, rows, uids, numbers) != FALSE
        at = rows[passing], numbers[passing] // 64
        np.bitwise_or.at(bits, at, np.uint64(1) << shifts[passing])
        return bits

    def event_interfaces(self, events: EventPoints, exclude: int = -1) -> int:
        if self.calls:
            return bits_of(self.match_interfaces(events, exclude))
        return self.plain.event_interfaces(events, exclude)

    def _passing(self, events: EventPoints) -> tuple[Int64s, Int64s]:
        assert self.gates is not None
        events.batch.shared_results()  # else results added by another view of the schema would be lost
        offsets, uids = self.gates.match(events)
        return np.repeat(np.arange(len(events)), np.diff(offsets)), uids


def _keys(rows: Int64s, uids: Int64s) -> Int64s:
    """One number for each pair of a row and an id, which is under 2**40."""
    return (rows << 40) | uids


def _gate_of(interest: Matched) -> FilterAt:
    return FilterAt(interest.uid, *interest.filter.gate_at(interest.values))
