"""SUB, UPD and USUB: what interfaces ask for, and what is asked of neighbours in consequence.

Each change goes to the group's poset, from there to those of the neighbours that publish (`type_state.py`),
and what changes there becomes messages (`slots.py`). The message that made the change is acknowledged when
the slots that ask for its subject have been.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from covey.matcher.errors import EventTypeError, FilterError, VariableError
from covey.overlay.core.covering.interest import Interest, group_of
from covey.overlay.core.messages import (
    Interface,
    Subscribe,
    Unsubscribe,
    Update,
)
from covey.overlay.core.moving.motion import check_values, moves
from covey.overlay.core.routing.dispatch import replay
from covey.overlay.core.routing.peers import Peer
from covey.overlay.core.routing.slots import SlotMessage
from covey.overlay.core.routing.tables import Tables
from covey.overlay.core.routing.type_state import TypeState, difference

if TYPE_CHECKING:
    from covey.matcher import Filter
    from covey.matcher.expressions.expression import Scalar


class Subscribing(Tables):
    """Handlers of interest."""

    def _on_subscribe(self, message: Subscribe, peer: Peer) -> None:
        """SUB (Fig. 3 lines 13-19, Fig. 6 lines 10-19)."""
        event_type, subscription_id = message.filter.event_type, message.subscription_id
        state = self.types.get(event_type.name)
        try:
            values = self._checked(peer, message.filter, message.values)
            if state is not None and state.event_type != event_type:
                raise EventTypeError(difference(state.event_type, event_type, self.broker_id))
        except (FilterError, EventTypeError) as error:
            status = "INVALID_ARGUMENT" if isinstance(error, FilterError) else "ALREADY_EXISTS"
            self._refuse(
                peer,
                message.epoch,
                status,
                f"subscription {subscription_id} of {peer.name}: {error}",
                subscription_id=subscription_id,
                type_name=event_type.name,
            )
            return
        peer.stale_subscriptions.pop(subscription_id, None)
        old = peer.subscriptions.get(subscription_id)
        if old is not None and old.filter == message.filter:
            self._move(peer, old, values).epoch = message.epoch
            return
        state = self._type(event_type)
        new = self.registry.make(peer.name, peer.number, subscription_id, message.filter, values)
        new.epoch = message.epoch
        if old is None:
            self._exchange(state, peer, [new], [])
        elif old.filter.event_type == event_type:
            self._exchange(state, peer, [new], [old])
        else:
            self._exchange(state, peer, [new], [])
            self._exchange(self.types[old.filter.event_type.name], peer, [], [old])
            peer.subscriptions[subscription_id] = new

    def _checked(
        self, peer: Peer, filter: Filter, values: Mapping[str, Scalar], *, partial: bool = False
    ) -> dict[str, Scalar]:
        """The values, checked; motion is for clients and parametric routing."""
        try:
            return filter.check_values(values, partial=partial)
        except VariableError:
            if not moves(values):
                raise
        if peer.is_broker or self.routing == "static" or self.replaced_engine:
            raise VariableError(
                f"a variable that moves by itself: expected a number, from {peer.name} and under routing "
                f"{self.routing} with engine {self.engine}"
            )
        return check_values(filter, values, partial=partial, now_ns=self._now_ns)

    def _on_update(self, message: Update, peer: Peer) -> None:
        """UPD (Fig. 6 lines 42-47)."""
        interest = peer.subscriptions.get(message.subscription_id)
        if interest is None:
            self._refuse(
                peer,
                message.epoch,
                "NOT_FOUND",
                f"update of subscription {message.subscription_id}: {peer.name} has none of that id; "
                "it was cancelled or never made",
                subscription_id=message.subscription_id,
            )
            return
        try:
            values = self._checked(peer, interest.filter, message.values, partial=True)
        except FilterError as error:
            self._refuse(
                peer,
                message.epoch,
                "INVALID_ARGUMENT",
                f"update of subscription {message.subscription_id}: {error}",
                subscription_id=message.subscription_id,
                type_name=interest.filter.event_type.name,
            )
            return
        interest = self._move(peer, interest, values)
        interest.epoch = message.epoch
        if message.since_ns:
            self._reach_back(peer, interest, message.since_ns)

    def _reach_back(self, peer: Peer, interest: Interest, since_ns: int) -> None:
        """An update without gaps: replay what is here, and have those beyond replay what they have."""
        state = self.types[interest.filter.event_type.name]
        for neighbour, slot in state.covering_slots(interest):
            slot.epoch = self._next_epoch(self.peers[neighbour])
            self._control(self.peers[neighbour], Update(slot.epoch, slot.slot_id, {}, since_ns))
        for replayed in replay(interest, peer, state, since_ns):
            peer.counters.events_sent += len(replayed.batch)
            self._send(peer, replayed)

    def _on_tick(self) -> None:
        """Look again at what moves by itself."""
        for interest in self._movers.due(self._now_ns):
            state, peer = self.types[interest.filter.event_type.name], self.peers[interest.interface]
            self._put(state, peer, interest)
            announcement = interest.announcement
            if (
                announcement is not None
                and announcement.due(self._now_ns)
                and interest.move({}, self._now_ns)
            ):
                self._quench.touch(state.event_type.name)
                self._tell(state.change(interest.group, moved=[interest]))

    def _put(self, state: TypeState, peer: Peer, interest: Interest) -> None:
        (state.links if peer.is_broker else state.sessions).put(
            self._movers.held(interest, self._now_ns), peer.number
        )

    def _may_announce(self, peer: Peer, interest: Interest, *, moving: bool) -> None:
        """Damping and motion are an affair of a client and its broker; others hold what is announced."""
        if interest.announcement is None and not peer.is_broker and (self.damping or moving):
            interest.announce(self.damping, self._now_ns)

    def _move(self, peer: Peer, interest: Interest, values: Mapping[str, Scalar]) -> Interest:
        """New values for a subscription: an update, or in the static mode a new subscription for the old
        one. Returns the one that holds them.
        """
        state = self.types[interest.filter.event_type.name]
        if self.routing == "static" and any(interest.values[name] != value for name, value in values.items()):
            merged = {**interest.values, **values}
            new = self.registry.make(
                peer.name, peer.number, interest.subscription_id, interest.filter, merged
            )
            self._exchange(state, peer, [new], [interest])
            return new
        if moves(values):
            self._may_announce(peer, interest, moving=True)
        moved = interest.move(values, self._now_ns)
        self._put(state, peer, interest)
        if moved:
            self._quench.touch(state.event_type.name)
            self._tell(state.change(interest.group, moved=[interest]))
        self._wait_for_cover(state, interest)
        return interest

    def _on_unsubscribe(self, message: Unsubscribe, peer: Peer) -> None:
        """USUB (Fig. 3 lines 20-26, Fig. 6 lines 29-37). One that is not there, or no more, is no error."""
        interest = peer.subscriptions.get(message.subscription_id)
        if interest is not None:
            peer.stale_subscriptions.pop(message.subscription_id, None)
            self._exchange(self.types[interest.filter.event_type.name], peer, [], [interest])

    def _exchange(
        self, state: TypeState, peer: Peer, entered: Sequence[Interest], left: Sequence[Interest]
    ) -> None:
        """Some subscriptions of an interface come and some go, in one change."""
        matching = state.links if peer.is_broker else state.sessions
        self._quench.touch(state.event_type.name)
        for interest in left:
            del peer.subscriptions[interest.subscription_id]
            matching.discard(interest)
            self._movers.discard(interest)
        for interest in entered:
            peer.subscriptions[interest.subscription_id] = interest
            self._may_announce(peer, interest, moving=moves(interest.values))
            self._put(state, peer, interest)
        self._tell(state.change(group_of(peer.name), entered=entered, left=left))
        for interest in left:
            self.registry.release(interest)
        for interest in entered:
            self._wait_for_cover(state, interest)
        if left and state.idle:
            self._maybe_idle[state.event_type.name] = None

    def _tell(self, told: Iterable[tuple[Interface, list[SlotMessage]]]) -> None:
        for neighbour, messages in told:
            peer = self.peers[neighbour]
            for message in messages:
                self._control(peer, message)

    def _wait_for_cover(self, state: TypeState, interest: Interest) -> None:
        """A change that another root hides from a neighbour has taken effect there when that root has."""
        for neighbour in state.outgoing:
            if neighbour == interest.group or self.acks.settled(neighbour):
                continue
            if self._waits.get(neighbour) == self.peers[neighbour].epoch:
                continue  # already for all that it was sent
            slot = state.covering_slot(interest, neighbour)
            if slot is not None and self.acks.outstanding(neighbour, slot.epoch):
                self._wait_for(neighbour, slot.epoch)
