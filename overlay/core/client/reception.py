"""Turns a Deliver into events to hand out: each once, and only to subscriptions whose newest values it
matches.

A Deliver has the control epoch of this client that the broker had applied when it matched. If no subscription
to the type has changed since, the broker's matches stand; else the batch is evaluated again
(`strictness.py`): pairs that fail are *spurious*, and events that only newer values match are delivered
already. Epoch 0 marks calls of operators that the broker left undecided. What waits in the client is
evaluated again when handed out, which only removes pairs.

Duplicates: events of a publisher arrive in order (`watermarks.py`). Only a subscription that was updated
without gaps gets replays, out of order, so its recent events are stored (`Recent`). Invariant: every id that
events may come for, several under static routing, maps to the id its user has (`WireIds`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.matcher.events.event_type import EventType
from covey.overlay.core.client.actions import Matches
from covey.overlay.core.client.strictness import ClientSubscription, Strictness
from covey.overlay.core.matching.interest_matching import opened
from covey.overlay.core.watermarks import Watermarks

if TYPE_CHECKING:
    from covey.matcher.evaluation.evaluator import Evaluator
    from covey.matcher.events.batch import EventBatch
    from covey.overlay.core.messages import Deliver


Int64s = npt.NDArray[np.int64]


class WireIds:
    """The ids of users by the ids on the wire. `retired` has the epochs of their Unsubscribes."""

    def __init__(self) -> None:
        self.by_wire: dict[int, int] = {}
        self.retired: dict[int, int] = {}
        self._array: Int64s | None = None
        """`by_wire` as an array, -1 for none, None after a change; used only for dense ids."""

    def add(self, wire_id: int, uid: int) -> None:
        self.by_wire[wire_id] = uid
        self._array = None

    def retire(self, wire_id: int, epoch: int) -> None:
        self.retired[wire_id] = epoch

    def settle(self, epoch: int) -> None:
        for wire_id in [w for w, retired_at in self.retired.items() if retired_at <= epoch]:
            del self.retired[wire_id], self.by_wire[wire_id]
            self._array = None

    def discard(self, wire_id: int) -> None:
        """Drop an id, and the retired ones of its subscription."""
        uid = self.by_wire.pop(wire_id)
        for retired in [w for w in self.retired if self.by_wire[w] == uid]:
            del self.retired[retired], self.by_wire[retired]
        self._array = None

    def uid(self, wire_id: int) -> int | None:
        return self.by_wire.get(wire_id)

    def uids(self, wire_ids: Int64s) -> Int64s:
        """The users' ids, -1 for cancelled ones."""
        if self._array is None:
            size = max(self.by_wire, default=0) + 1
            if size > 64 + 4 * len(self.by_wire):
                distinct, where = np.unique(wire_ids, return_inverse=True)
                return np.array([self.by_wire.get(w, -1) for w in distinct.tolist()], dtype=np.int64)[where]
            self._array = np.full(size, -1, dtype=np.int64)
            self._array[list(self.by_wire)] = list(self.by_wire.values())
        within = wire_ids < len(self._array)
        if within.all():
            return self._array[wire_ids]
        return np.where(within, self._array[np.where(within, wire_ids, 0)], -1)


KEPT = 65_536


class Recent:
    """`seen` has the highest sequence numbers, by publisher, that the client received before."""

    def __init__(self, seen: Mapping[str, int] | None = None) -> None:
        self._seen = dict(seen or {})
        self._new: dict[str, list[Int64s]] = {}
        self._old: dict[str, list[Int64s]] = {}
        self._count = 0

    def fresh(self, publisher: str, sequences: Int64s) -> npt.NDArray[np.bool_]:
        """bool[events]: new ones, each once; stores them. One pass over the publisher's stored events."""
        fresh = self.unseen(publisher, sequences)
        first = np.zeros(len(sequences), np.bool_)
        first[np.unique(sequences, return_index=True)[1]] = True
        fresh &= first
        self._new.setdefault(publisher, []).append(sequences[fresh])
        self._count += int(fresh.sum())
        if self._count > KEPT:
            self._old, self._new, self._count = self._new, {}, 0
        return fresh

    def unseen(self, publisher: str, sequences: Int64s) -> npt.NDArray[np.bool_]:
        fresh = sequences > self._seen.get(publisher, -1)
        for generation in (self._new, self._old):
            chunks = generation.get(publisher)
            if chunks:
                if len(chunks) > 8:
                    chunks[:] = [np.concatenate(chunks)]
                for chunk in chunks:
                    if len(chunk) and len(sequences) and sequences.min() <= chunk.max():
                        fresh &= ~np.isin(sequences, chunk)
        return fresh


_ID_BITS = 40
_ID_MASK = (1 << _ID_BITS) - 1
_NO_IDS = np.zeros(0, np.int64)


class SubscribedType:
    """`newest` is the epoch of the last change of a subscription; `widened` are further schemas."""

    def __init__(self, event_type: EventType, engine: str, evaluator: Evaluator) -> None:
        self.event_type = event_type
        self.strictness = Strictness(event_type, engine, evaluator)
        self.watermarks = Watermarks()
        self.newest = 0
        self.widened: list[EventType] = []

    def widen(self, schema: EventType) -> None:
        """Hand out the attributes of this schema as well. `EventTypeError` if one has another kind."""
        self._set(self.event_type.union(schema))

    def narrow(self, schemas: Iterable[EventType]) -> None:
        """After a refused schema, go back to these and those in `widened`."""
        self._set(reduce(EventType.union, [*schemas, *self.widened]))

    def _set(self, event_type: EventType) -> None:
        if event_type != self.event_type:
            self.event_type = event_type
            self.strictness.widen(event_type)

    def own(self, batch: EventBatch) -> EventBatch:
        """With the attributes that this client has declared, null if of another kind; results may be added to
        it."""
        own = batch.with_schema(self.event_type, other_kinds=True)
        return opened(own) if self.strictness.has_calls else own


class Reception:
    def __init__(self, engine: str, evaluator: Evaluator) -> None:
        self._engine, self._evaluator = engine, evaluator
        self.types: dict[str, SubscribedType] = {}
        self.wire_ids = WireIds()
        self.recent: dict[int, Recent] = {}
        """Of subscriptions that were updated without gaps."""
        self.in_views: dict[int, int] = {}
        """Subscriptions of views, with the epochs of their last requests."""
        self.expired: dict[int, ClientSubscription] = {}
        """Subscriptions whose period has ended, while earlier events wait to be handed out."""

    # --- subscriptions --------------------------------------------------------------------------------------

    def declare(self, event_type: EventType) -> SubscribedType:
        """A subscribed type with the attributes of this schema, created if new. `EventTypeError` if an
        attribute has another kind."""
        subscribed = self.types.get(event_type.name)
        if subscribed is None:
            subscribed = self.types[event_type.name] = SubscribedType(
                event_type, self._engine, self._evaluator
            )
        else:
            subscribed.widen(event_type)
        return subscribed

    def put(self, subscription: ClientSubscription, epoch: int) -> None:
        """Add a subscription, or apply its new values, as of `epoch`."""
        subscribed = self.types[subscription.filter.event_type.name]
        subscribed.newest = subscription.changed = epoch
        subscribed.strictness.put(subscription)
        if subscription.strictness is not None:
            subscription.strictness.put(subscription)
        enters = subscription.enters
        if enters is not None:
            enters.values = {name: subscription.values[name] for name in enters.filter.variables}
            if enters.strictness is not None:
                enters.strictness.put(enters)

    def discard(self, subscription: ClientSubscription, epoch: int) -> None:
        self.wire_ids.discard(subscription.wire_id)
        self.recent.pop(subscription.uid, None)
        self.in_views.pop(subscription.uid, None)
        name = subscription.filter.event_type.name
        subscribed = self.types[name]
        subscribed.strictness.discard(subscription)
        subscribed.newest = epoch
        if not len(subscribed.strictness):
            del self.types[name]

    def resynchronise(self, epoch: int) -> None:
        """Matches of the broker before `epoch` may be by subscriptions that are not repeated."""
        for subscribed in self.types.values():
            subscribed.newest = epoch

    # --- events ---------------------------------------------------------------------------------------------

    def lone(self, message: Deliver) -> int | None:
        """The subscription of the only event of a Deliver, 0 for none, if the broker's match stands; None if
        `matches` has to decide."""
        batch = message.batch
        if batch.count != 1 or len(message.ids) != 1 or message.replayed or message.for_views:
            return None
        subscribed = self.types.get(batch.event_type.name)
        if subscribed is None or self.recent or self.in_views or message.epoch < subscribed.newest:
            return None
        strictness, own = subscribed.strictness, subscribed.event_type
        if strictness.moving or strictness.has_calls:
            return None
        if batch.event_type is not own and batch.event_type != own:
            return None
        uid = self.wire_ids.by_wire.get(int(message.ids[0]))
        return uid if subscribed.watermarks.is_fresh(batch) and uid is not None else 0

    def matches(self, message: Deliver, epoch: int) -> Matches | None:
        """What to hand out of a Deliver as of `epoch`; None if no subscription has its event type any more.
        The cost does not grow with the subscriptions it is for."""
        subscribed = self.types.get(message.batch.event_type.name)
        if subscribed is None:
            return None
        lone = self.lone(message)
        if lone is not None:
            count = min(lone, 1)
            rows, ids = np.zeros(count, np.int64), np.full(count, lone, np.int64)
            return Matches(message.batch, rows, ids, {}, epoch=epoch)
        batch = subscribed.own(message.batch)
        broker_pairs = rows, ids = self._pairs(message)
        if message.for_views:
            return Matches(batch, rows, ids, {}, message.replayed, epoch, for_views=not message.live)
        fresh: npt.NDArray[np.bool_] | None = None
        if message.replayed:
            gapless = np.isin(ids, np.fromiter(self.recent, np.int64, len(self.recent)))
            broker_pairs = rows, ids = rows[gapless], ids[gapless]
        else:
            fresh = subscribed.watermarks.fresh(batch)
            if fresh is not None:
                rows, ids = _at_rows(fresh, rows, ids)
                if not self.in_views:
                    rows, batch, fresh = (np.cumsum(fresh) - 1)[rows], batch.filter(fresh), None
        spurious: dict[int, int] = {}
        if message.epoch < subscribed.newest or subscribed.strictness.moving:
            among = self._unseen(batch, rows, ids) if message.replayed else None
            newest_rows, newest_ids = subscribed.strictness.match(batch, among)
            keys, newest = _keys(rows, ids), _keys(newest_rows, newest_ids)
            spurious = _counts(keys, newest)
            if message.replayed:
                matching = np.isin(keys, newest)
                rows, ids = rows[matching], ids[matching]
            else:
                rows, ids = newest_rows, newest_ids
                if fresh is not None:
                    rows, ids = _at_rows(fresh, rows, ids)
        if self.recent:
            rows, ids = self._once(batch, rows, ids)
        if self.in_views:
            spurious = {uid: count for uid, count in spurious.items() if uid not in self.in_views}
            rows, ids = self._for_views((rows, ids), broker_pairs)
        return Matches(batch, rows, ids, spurious, message.replayed, epoch)

    def strict(self, matches: Matches, epoch: int) -> Matches:
        """Of waiting matches, the pairs that match the newest values, the last ones if a period is over."""
        batch, rows, ids = matches.batch, matches.rows, matches.ids
        subscribed = self.types.get(batch.event_type.name)
        if subscribed is not None and matches.epoch >= subscribed.newest:
            return matches
        keys = _keys(rows, ids)
        newest = _NO_IDS if subscribed is None else _keys(*subscribed.strictness.match(batch, (rows, ids)))
        matching = np.isin(keys, newest)
        for uid, subscription in self.expired.items():
            own = np.flatnonzero(ids == uid)
            if len(own):
                unchanged = matches.epoch >= subscription.changed
                matching[own] = unchanged or np.isin(rows[own], self.strict_rows(subscription, batch))
        spurious = {**matches.spurious}
        for uid, count in _counts(keys, keys[matching]).items():
            spurious[uid] = spurious.get(uid, 0) + count
        return Matches(
            matches.batch, matches.rows[matching], matches.ids[matching], spurious, matches.replayed, epoch
        )

    def strict_rows(self, subscription: ClientSubscription, batch: EventBatch) -> Int64s:
        """The rows of a batch that match the newest values of one subscription, at a cost that does not grow
        with the others."""
        if subscription.strictness is None:
            event_type = subscription.filter.event_type
            subscription.strictness = Strictness(event_type, self._engine, self._evaluator)
            subscription.strictness.put(subscription)
        return subscription.strictness.rows(batch)

    def _pairs(self, message: Deliver) -> tuple[Int64s, Int64s]:
        """The pairs of a Deliver under the users' ids, without cancelled subscriptions."""
        ids, count = message.ids, len(message.batch)
        if 0 < len(ids) == count and (ids == ids[0]).all():  # common: all for one
            uid = self.wire_ids.uid(int(ids[0]))
            return (_NO_IDS, _NO_IDS) if uid is None else (np.arange(count), np.full(count, uid))
        rows = np.repeat(np.arange(count), np.diff(message.offsets))
        uids = self.wire_ids.uids(np.asarray(ids, dtype=np.int64))
        if (uids < 0).any():
            rows, uids = rows[uids >= 0], uids[uids >= 0]
        return rows, uids

    def _for_views(self, pairs: tuple[Int64s, Int64s], named: tuple[Int64s, Int64s]) -> tuple[Int64s, Int64s]:
        """The pairs, of views exactly the broker's, which relies on a view having what it sent. They may be
        repetitions: a view may have lost a key with a broker."""
        in_views = list(self.in_views)
        others, own = ~np.isin(pairs[1], in_views), np.isin(named[1], in_views)
        keys = np.union1d(_keys(pairs[0][others], pairs[1][others]), _keys(named[0][own], named[1][own]))
        return keys >> _ID_BITS, keys & _ID_MASK

    def _unseen(self, batch: EventBatch, rows: Int64s, ids: Int64s) -> tuple[Int64s, Int64s]:
        sequences = batch.sequences()
        unseen = np.ones(len(rows), np.bool_)
        for uid in np.unique(ids).tolist():
            own = np.flatnonzero(ids == uid)
            unseen[own] = self.recent[uid].unseen(batch.publisher, sequences[rows[own]])
        return rows[unseen], ids[unseen]

    def _once(self, batch: EventBatch, rows: Int64s, ids: Int64s) -> tuple[Int64s, Int64s]:
        """The pairs not handed out before. One pass per subscription that was updated without gaps."""
        if not batch.publisher:
            return rows, ids
        sequences = batch.sequences()
        keep = np.ones(len(rows), np.bool_)
        for uid in np.unique(ids).tolist():
            recent = self.recent.get(uid)
            if recent is not None:
                own = np.flatnonzero(ids == uid)
                keep[own] = recent.fresh(batch.publisher, sequences[rows[own]])
        return rows[keep], ids[keep]


def _at_rows(selected: npt.NDArray[np.bool_], rows: Int64s, ids: Int64s) -> tuple[Int64s, Int64s]:
    pairs = selected[rows]
    return rows[pairs], ids[pairs]


def _keys(rows: Int64s, ids: Int64s) -> Int64s:
    """One number for each (row, subscription) pair; a session counts its subscriptions from 1."""
    return (rows << _ID_BITS) | ids


def _counts(keys: Int64s, newest: Int64s) -> dict[int, int]:
    distinct, counts = np.unique(np.setdiff1d(keys, newest) & _ID_MASK, return_counts=True)
    return dict(zip(distinct.tolist(), counts.tolist(), strict=True))
