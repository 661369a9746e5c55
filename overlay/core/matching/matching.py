"""A matching engine and its pending changes.

Control messages record changes; the engine applies them before a match, columnwise for all subscriptions of
one filter. Once about a millisecond's worth is pending (`MOST_PENDING`) they are applied: who changes much
pays for it, and no event waits for more. Where few events meet few filters, changes stay pending and the
filters are *walked* (`event_points.py`), until that has cost about as much as applying them. Until the
kernels are loaded every match tests the filters. The engines of the papers never walk, since they are there
to be measured.

Invariant: after `flush` the engine has exactly the interests that were put and not discarded, under their
uids, with the values they had at the flush; a match is over these, by the engine or by a walk. A subscription
over an engine's number of text constants is refused on arrival (`TextConstants`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.schema_columns import MOST_TEXTS
from covey.matcher.engine import create_engine
from covey.matcher.errors import CapacityError, EventTypeError
from covey.matcher.expressions.expression import And, Or, Predicate, Variable
from covey.matcher.expressions.operators import Operator
from covey.matcher.jit.compiling import kernels_usable
from covey.matcher.matches import Matches
from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.matching.event_points import (
    Box,
    EventMasks,
    EventPoints,
    Mask,
    Rows,
    Walkable,
    around,
)
from covey.overlay.core.matching.interest_matching import Matched
from covey.overlay.core.moving.motion import moves

if TYPE_CHECKING:
    from covey.matcher.covering.covering import Region
    from covey.matcher.engine import Engine
    from covey.matcher.events.event_type import EventType
    from covey.matcher.expressions.expression import Scalar
    from covey.matcher.filters.filter import Filter


_Constant = tuple[str, Operator, "Scalar"]


class TextConstants:
    """The constants of `contains` and `not suffix` in use, at most `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._users: dict[_Constant, int] = {}
        self.by_uid: dict[int, set[_Constant]] = {}

    def __contains__(self, uid: int) -> bool:
        return uid in self.by_uid

    def check(self, filter: Filter, values: Mapping[str, Scalar], replaced: int) -> None:
        """`CapacityError` if this filter, in place of interest `replaced`, would be over the number."""
        if not filter.texts:
            return
        needed = _constants(filter, values)
        freed = sum(self._users[c] == 1 for c in self.by_uid.get(replaced, set()) - needed)
        if len(self._users) - freed + len(needed - self._users.keys()) > self.most:
            raise CapacityError(
                f"over {self.most:,} different constants of contains and not suffix in the subscriptions to "
                f"{filter.event_type.name}: expected one that others have, or fewer subscriptions"
            )

    def put(self, uid: int, filter: Filter, values: Mapping[str, Scalar]) -> None:
        self.discard(uid)
        if filter.texts:
            self.by_uid[uid] = _constants(filter, values)
            for constant in self.by_uid[uid]:
                self._users[constant] = self._users.get(constant, 0) + 1

    def discard(self, uid: int) -> None:
        for constant in self.by_uid.pop(uid, ()):
            self._users[constant] -= 1
            if not self._users[constant]:
                del self._users[constant]


def _constants(filter: Filter, values: Mapping[str, Scalar]) -> set[_Constant]:
    found: set[_Constant] = set()
    for predicate in filter.texts:
        (operand,) = predicate.operands
        value = values[operand.name] if isinstance(operand, Variable) else operand.value
        held = Operator.SUFFIX if predicate.operator is Operator.NOT_SUFFIX else Operator.CONTAINS
        found.add((predicate.attribute, held, value))
    return found


_WALKING = "cluster"
"""The only engine beside which filters are walked."""
_ONLY: Rows = [0]
_FEW_EVENTS = 16
"""Larger batches are not walked."""
_FEW_BOXES = 8
"""Filters without an engine for single events: an engine takes longer than so many boxes."""
_PAIRS_ALONE = 128
_PAIRS_TOGETHER, _PAIRS_MORE = 1024, 8
"""Pairs of an event and a filter, at about 0.3 µs each, that cost as much as applying one of few changes (130
µs), many changes columnwise (400 µs), and each of these many (2.5 µs)."""
MOST_PENDING = 512
"""Changes, of 2.5 µs each, that may be pending."""
_MOST_ALONE = 32
"""Intervals of a region that are tested column by column, at 3 µs each for some hundred events."""
_OF_FILTER, _OF_CONSTANT = 16, 2
"""How many changes another filter among the pending ones counts as, and each of its constants, since both are
indexed one by one."""


class Matching:
    """The engine of one event type, created at the first flush. Up to `few` filters are tested without one,
    so that a process with few loads no kernels."""

    def __init__(self, engine_name: str, event_type: EventType, *, few: int = 0) -> None:
        self._few = few
        self._walks = engine_name == _WALKING
        self._walked = 0
        """Pairs tested since the last flush."""
        self._walkable: dict[int, Walkable] = {}
        """Of interests unchanged since they were walked."""
        self._boxes: list[tuple[int, int, Box]] | None = None
        """Uid, interface number and box of few filters, which a single event walks whatever is pending; empty
        unless all are boxes and few, None after a change."""
        self._engine_name = engine_name
        self._event_type = event_type
        self._engine: Engine | None = None
        self._interests: dict[int, tuple[Matched, int]] = {}
        self._installed: dict[int, tuple[Filter, int]] = {}
        self._dirty: dict[int, None] = {}
        self.pending = 0
        """`_dirty` changes, weighed by the cost of applying them."""
        self._pending_filters: set[Filter] = set()
        self._texts = TextConstants(MOST_TEXTS)

    def widen(self, event_type: EventType) -> None:
        self._event_type = event_type
        if self._engine is not None:
            try:
                self._engine.widen(event_type)
            except EventTypeError:  # an attribute has another kind now
                self._drop_engine()

    def _drop_engine(self) -> None:
        """The next flush begins with an empty engine."""
        self._engine = None
        self._installed.clear()
        self._dirty = dict.fromkeys(self._interests)
        self._pending_filters.clear()
        self.pending = len(self._dirty)

    def check_room(self, filter: Filter, values: Mapping[str, Scalar], replaced: int) -> None:
        self._texts.check(filter, values, replaced)

    def put(self, interest: Matched, number: int) -> None:
        uid, filter = interest.uid, interest.filter
        known = self._interests.get(uid)
        only_moves = known is not None and known[0].filter is filter
        self._interests[uid] = (interest, number)
        if self._texts.by_uid or (not only_moves and filter.texts):
            self._texts.put(uid, filter, interest.values)
        if only_moves and uid in self._dirty:  # already pending
            self._walkable.pop(uid, None)
            self._boxes = None
            return
        if filter not in self._pending_filters and self._flushes():
            self._pending_filters.add(filter)
            self.pending += _OF_FILTER + _OF_CONSTANT * _constants_in(filter)
        self._changed(uid)

    def discard(self, interest: Matched) -> None:
        del self._interests[interest.uid]
        self._texts.discard(interest.uid)
        self._changed(interest.uid)
        if interest.uid in self._dirty and interest.uid not in self._installed:
            del self._dirty[interest.uid]  # the engine has never had it
            self.pending -= 1

    def _changed(self, uid: int) -> None:
        self._walkable.pop(uid, None)
        self._boxes = None
        if uid not in self._dirty:
            self._dirty[uid] = None
            self.pending += 1
        if self.pending > MOST_PENDING and self._flushes():
            self.flush()

    def _flushes(self) -> bool:
        """Whether many changes are applied before the next match."""
        return self._walks and (self._engine is not None or self._may_load())

    def _may_load(self) -> bool:
        return len(self._interests) > self._few and kernels_usable()

    def __contains__(self, uid: int) -> bool:
        return uid in self._interests

    def __len__(self) -> int:
        return len(self._interests)

    def flush(self) -> Engine:
        """Apply the pending changes and return the engine. O(changed interests)."""
        if self._engine is None:
            options = {"texts": self._texts.most} if self._walks else {}
            self._engine = create_engine(self._engine_name, self._event_type, **options)
            self._walkable.clear()
        if self._dirty:
            try:
                self._apply(self._engine)
            except BaseException:
                self._drop_engine()
                raise
            self._dirty.clear()
            self._walked = 0
        self._pending_filters.clear()
        self.pending = 0
        return self._engine

    # --- matching -------------------------------------------------------------------------------------------

    def match(self, events: EventPoints) -> Matches:
        events = events.over(self._event_type)
        if self._without_kernels():
            if len(events) > _FEW_EVENTS:
                return self._match_columns(events)
        elif not self._cheap_to_walk(len(events)):
            return self.flush().match(events.batch)
        matches: list[list[int]] = [[] for _ in events.rows]
        for uid, _, rows in self._accepting(events):
            for row in rows:
                matches[row].append(uid)
        offsets = np.zeros(len(events) + 1, np.int64)
        np.cumsum([len(uids) for uids in matches], out=offsets[1:])
        return Matches.of(offsets, np.array([uid for uids in matches for uid in sorted(uids)], np.int64))

    def match_interfaces(self, events: EventPoints, exclude: int = -1) -> npt.NDArray[np.uint64]:
        events = events.over(self._event_type)
        if self._without_kernels():
            if len(events) > _FEW_EVENTS:
                return self._match_interface_columns(events, exclude)
        elif not self._cheap_to_walk(len(events)):
            return self.flush().match(events.batch).interfaces()
        # the rows that no filter of an interface accepts, by number
        unmatched: dict[int, list[int]] = {exclude: []}
        for _, number, rows in self._accepting(events, unmatched):
            unmatched[number] = [row for row in unmatched.get(number, events.rows) if row not in rows]
        del unmatched[exclude]
        bits = np.zeros((len(events), max(unmatched, default=0) // 64 + 1), np.uint64)
        for number, rows in unmatched.items():
            reached = sorted(set(events.rows).difference(rows))
            bits[reached, number // 64] |= np.uint64(1 << number % 64)
        return bits

    def event_uids(self, events: EventPoints) -> npt.NDArray[np.int64]:
        if events.batch.event_type is not self._event_type:
            events = events.over(self._event_type)
        boxes = self._few_boxes() if self._boxes is None else self._boxes
        if boxes:
            return np.array(sorted(around(boxes, events)), np.int64)
        engine = self._engine_of_one()
        if engine is None:
            return np.array(sorted([uid for uid, _, _ in self._accepting(events)]), np.int64)
        return engine.event_ids(events.batch)

    def event_interfaces(self, events: EventPoints, exclude: int = -1) -> int:
        if events.batch.event_type is not self._event_type:
            events = events.over(self._event_type)
        boxes = self._few_boxes() if self._boxes is None else self._boxes
        bits = 0
        if boxes:
            for number in around(boxes, events).values():
                bits |= 1 << number
            return bits
        engine = self._engine_of_one()
        if engine is not None:
            return engine.event_interfaces(events.batch)
        unmatched: dict[int, list[int]] = {exclude: []}
        for _, number, _ in self._accepting(events, unmatched):
            unmatched[number] = []
            bits |= 1 << number
        return bits

    def _few_boxes(self) -> list[tuple[int, int, Box]]:
        self._boxes = []
        if self._walks and len(self._interests) <= _FEW_BOXES:
            for uid, (interest, number) in self._interests.items():
                walkable = self._walkable_of(uid, interest)
                if not walkable.is_box:
                    self._boxes = []
                    break
                self._boxes.append((uid, number, walkable.box))
        return self._boxes

    def _engine_of_one(self) -> Engine | None:
        engine = self._engine
        if engine is None or self._dirty:
            if self._cheap_to_walk(1) or self._without_kernels():
                return None
            engine = self.flush()
        return engine

    def _accepting(
        self, events: EventPoints, unmatched: Mapping[int, Rows] = MappingProxyType({})
    ) -> Iterator[tuple[int, int, Rows]]:
        """The interests that accept some events: uid, interface number, rows. Of an interface in `unmatched`
        only those rows are tested."""
        alone = events.alone if events.batch.count == 1 else None
        every, walkable = _ONLY if alone is not None else events.rows, self._walkable
        for uid, (interest, number) in self._interests.items():
            rows = unmatched.get(number, every) if unmatched else every
            if not rows:
                continue
            walked = walkable[uid] if uid in walkable else self._walkable_of(uid, interest)
            if alone is not None:
                for attribute, low, high in walked.box:
                    point = alone[attribute] if attribute in alone else events.point(attribute)
                    if not low <= point < high:
                        break
                else:
                    if walked.is_box or events.inside(walked.region, rows):
                        yield uid, number, rows
            else:
                inside = events.inside(walked.region, rows)
                if inside:
                    yield uid, number, inside

    def _cheap_to_walk(self, events: int) -> bool:
        """Whether to walk the filters for this match; counts its pairs."""
        changes = len(self._dirty)
        if not changes or not self._walks or events > _FEW_EVENTS:
            return False
        self._walked += events * len(self._interests)
        walked = self._walked
        return walked <= _PAIRS_ALONE * changes and walked <= _PAIRS_TOGETHER + _PAIRS_MORE * changes

    def _walkable_of(self, uid: int, interest: Matched) -> Walkable:
        walkable = self._walkable.get(uid)
        if walkable is None:
            walkable = self._walkable[uid] = Walkable(region_of(interest))
        return walkable

    # --- without kernels ------------------------------------------------------------------------------------

    def _without_kernels(self) -> bool:
        return self._engine is None and self._walks and not self._may_load()

    def _match_columns(self, events: EventPoints) -> Matches:
        masks = EventMasks(events)
        uids = sorted(self._interests)
        by_uid = [
            np.flatnonzero(masks.inside(self._walkable_of(uid, self._interests[uid][0]).region))
            for uid in uids
        ]
        rows = np.concatenate([np.zeros(0, np.int64), *by_uid])
        matching = np.repeat(np.array(uids, np.int64), [len(rows) for rows in by_uid])
        offsets = np.zeros(len(events) + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=len(events)), out=offsets[1:])
        # 16 bits are radix-sorted: many matches in a third of the time.
        order = np.argsort(rows.astype(np.min_scalar_type(len(events))), kind="stable")
        return Matches.of(offsets, matching[order])

    def _match_interface_columns(self, events: EventPoints, exclude: int) -> npt.NDArray[np.uint64]:
        masks = EventMasks(events)
        matches: dict[int, Mask] = {}
        for uid, (interest, number) in self._interests.items():
            earlier = matches.get(number)
            if number == exclude or (earlier is not None and earlier.all()):
                continue
            inside = masks.inside(self._walkable_of(uid, interest).region)
            matches[number] = inside if earlier is None else earlier | inside
        bits = np.zeros((len(events), max(matches, default=0) // 64 + 1), np.uint64)
        for number, inside in matches.items():
            bits[inside, number // 64] |= np.uint64(1 << number % 64)
        return bits

    # --- applying pending changes ---------------------------------------------------------------------------

    def _apply(self, engine: Engine) -> None:
        removed: list[int] = []
        added: dict[tuple[Filter, int], list[Matched]] = {}
        updated: dict[Filter, list[Matched]] = {}
        for uid in self._dirty:
            current = self._interests.get(uid)
            installed = self._installed.get(uid)
            if current is None:
                if installed is not None:
                    removed.append(uid)
                    del self._installed[uid]
                continue
            interest, number = current
            key = (interest.filter, number)
            if installed == key and uid not in self._texts:  # old texts make room for new ones
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
        """The interface numbers by uid as of the last flush."""
        return {uid: number for uid, (_, number) in self._installed.items()}

    def form(self, filter: Filter) -> str:
        """As `Engine.form`; "" before there is an engine."""
        return "" if self._engine is None else self._engine.form(filter)

    def interests(self) -> dict[int, int]:
        """The interface numbers by uid after the next flush."""
        return {uid: number for uid, (_, number) in self._interests.items()}


@dataclass(frozen=True, slots=True)
class FilterAt:
    """A filter with values that hold at one time, for matching without an `Interest`."""

    uid: int
    filter: Filter
    values: Mapping[str, Scalar]


def region_alone(interest: Matched) -> Region | None:
    """The region of an interest, None if it has many intervals, calls operators or moves."""
    if interest.filter.calls or moves(interest.values):
        return None
    region = region_of(interest)
    if region.conjunctions is None or len(region.conjunctions) > _MOST_ALONE:
        return None
    cuts = sum(len(each) for conjunction in region.conjunctions for each in conjunction.cuts.values())
    return region if cuts <= 2 * _MOST_ALONE else None


def region_of(interest: Matched) -> Region:
    if isinstance(interest, Interest) and interest.announcement is None:
        return interest.region
    return interest.filter.region(interest.values)


def _constants_in(filter: Filter) -> int:
    count, pending = 0, [filter.expression]
    while pending:
        part = pending.pop()
        if isinstance(part, And | Or):
            pending += part.parts
        elif isinstance(part, Predicate):
            count += len(part.operands)
    return count


def _uids(interests: Sequence[Matched]) -> npt.NDArray[np.int64]:
    return np.array([interest.uid for interest in interests], np.int64)


def _columns(filter: Filter, interests: Sequence[Matched]) -> dict[str, list[object]]:
    return {name: [interest.values[name] for interest in interests] for name in filter.variables}
