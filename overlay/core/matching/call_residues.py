"""The residues of the interests whose filters call named operators, decided by an evaluator.

Control messages only record changes; they are applied before the next decision, columnwise for all interests
of one filter. Invariant: after `_flush` the residues are those of the interests that were put and not
discarded, with their newest values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.matcher.evaluation.residues import Residues

if TYPE_CHECKING:
    from covey.matcher.evaluation.evaluator import Evaluator
    from covey.matcher.events.batch import EventBatch
    from covey.matcher.expressions.expression import Scalar
    from covey.matcher.filters.filter import Filter
    from covey.overlay.core.matching.interest_matching import Matched

Int64s = npt.NDArray[np.int64]


class CallResidues:
    """The interests with calls, by uid. With `reads` operators with state are asked, else undecided."""

    def __init__(self, evaluator: Evaluator, *, reads: bool) -> None:
        self._evaluator = evaluator
        self._reads = reads
        self._residues = Residues()
        self._interests: dict[int, tuple[Matched, int]] = {}
        """The interests, and the numbers of their interfaces."""
        self._numbers: dict[int, tuple[Filter, int]] = {}
        """Of the interests that are in the residues: the filter, and the number of the residue."""
        self._dirty: dict[int, None] = {}

    def put(self, interest: Matched, number: int) -> None:
        """Insert an interest with calls of the interface with this number, or take its new values."""
        self._interests[interest.uid] = interest, number
        self._dirty[interest.uid] = None

    def discard(self, interest: Matched) -> None:
        """Remove an interest, if it is here."""
        if self._interests.pop(interest.uid, None) is not None:
            self._dirty[interest.uid] = None

    def __contains__(self, uid: int) -> bool:
        return uid in self._interests

    def __len__(self) -> int:
        return len(self._interests)

    def interfaces(self) -> dict[int, int]:
        """The uids, and the numbers of their interfaces."""
        return {uid: number for uid, (_, number) in self._interests.items()}

    def interfaces_of(self, uids: Int64s) -> Int64s:
        """The number of the interface of each."""
        return _of_each(uids, lambda uid: self._interests[uid][1])

    def truths(
        self, batch: EventBatch, rows: Int64s, uids: Int64s, groups: Int64s | None = None
    ) -> npt.NDArray[np.int8]:
        """The truth of each pair of an event and an interest whose gate it passes; `groups` as in
        `Evaluator.decide`.
        """
        self._flush()
        numbers = _of_each(uids, lambda uid: self._numbers[uid][1])
        return self._evaluator.decide(batch, self._residues, rows, numbers, groups, readers=self._reads)

    def _flush(self) -> None:
        """Apply the pending changes, columnwise for all interests of one filter."""
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
    """A number of each interest, looked up once per distinct one."""
    distinct, places = np.unique(uids, return_inverse=True)
    return np.array([value(uid) for uid in distinct.tolist()], np.int64)[places]


def _columns(filter: Filter, interests: list[Matched]) -> dict[str, list[Scalar]]:
    return {name: [interest.values[name] for interest in interests] for name in filter.variables}
