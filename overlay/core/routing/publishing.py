"""PUB: events that come in, to those who asked for them; and what is refused or dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.overlay.core.messages import (
    Drop,
    Publish,
    Refuse,
)
from covey.overlay.core.routing.advertising import Promise
from covey.overlay.core.routing.dispatch import dispatch
from covey.overlay.core.routing.peers import Peer
from covey.overlay.core.routing.tables import Tables
from covey.overlay.core.routing.type_state import TypeState, difference

if TYPE_CHECKING:
    from covey.matcher import EventBatch


class Publishing(Tables):
    """Handlers of events."""

    def _on_publish(self, message: Publish, peer: Peer) -> None:
        """PUB (Fig. 3 lines 8-12, Fig. 6 lines 38-41): to each neighbour and each session that asked for
        it.
        """
        batch = message.batch
        count, name = len(batch), batch.event_type.name
        peer.counters.events_received += count
        state = self.types.get(name)
        if state is None or peer.name not in state.publishers or state.event_type != batch.event_type:
            self._turn_away(batch, state, peer)
            return
        promise = None if peer.is_broker else state.promises.get(peer.name)
        kept = None if promise is None else promise.keeps(batch)
        if promise is not None and kept is not None:
            self._refuse_outside(promise, batch, kept, peer)
            batch = batch.filter(kept)
            message, count = Publish(batch), len(batch)
        if not count:
            return
        for target, event_message in dispatch(message, peer, state, self.peers, self.registry):
            target.counters.events_sent += len(event_message.batch)
            self._send(target, event_message)

    def _refuse_outside(
        self, promise: Promise, batch: EventBatch, kept: npt.NDArray[np.bool_], peer: Peer
    ) -> None:
        """Events that their publisher has not advertised: one refusal for each run of them."""
        outside = np.flatnonzero(~kept)
        peer.counters.events_dropped += len(outside)
        sequences, name = batch.sequences()[outside], batch.event_type.name
        for run in np.split(sequences, np.flatnonzero(np.diff(sequences) != 1) + 1):
            reason = (
                f"{len(run)} events of {name} from number {int(run[0])} on not accepted: outside of what "
                f"{peer.name} advertised, {promise.filter}"
            )
            self._send(peer, Refuse(0, "FAILED_PRECONDITION", reason, 0, name, int(run[0]), len(run)))

    def _turn_away(self, batch: EventBatch, state: TypeState | None, peer: Peer) -> None:
        name = batch.event_type.name
        peer.counters.events_dropped += len(batch)
        if peer.is_broker:
            self._actions.append(Drop("not advertised", len(batch), name))
            return
        if state is None or peer.name not in state.publishers:
            status, reason = (
                "FAILED_PRECONDITION",
                f"{peer.name} has not advertised {name}; advertise it first",
            )
        else:
            status, reason = (
                "INVALID_ARGUMENT",
                difference(state.event_type, batch.event_type, self.broker_id),
            )
        reason = f"{len(batch)} events of {name} not accepted: {reason}"
        self._send(
            peer,
            Refuse(0, status, reason, type_name=name, first_sequence=batch.first_sequence, count=len(batch)),
        )
