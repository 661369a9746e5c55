"""AD and its contrary: who publishes what, who has been told, and that interest flows there."""

from __future__ import annotations

from covey.overlay.core.messages import (
    Advertise,
    Refuse,
    Unadvertise,
)
from covey.overlay.core.routing.advertising import covers
from covey.overlay.core.routing.peers import Peer
from covey.overlay.core.routing.subscribing import Subscribing
from covey.overlay.core.routing.type_state import TypeState, difference


class Advertisements(Subscribing):
    """Handlers of advertisements."""

    def _on_advertise(self, message: Advertise, peer: Peer) -> None:
        """AD (Fig. 3 lines 5-7): floods away from where it came, and draws the interest that is there."""
        event_type = message.event_type
        state = self.types.get(event_type.name)
        if state is not None and state.event_type != event_type:
            self._refuse(
                peer,
                message.epoch,
                "ALREADY_EXISTS",
                difference(state.event_type, event_type, self.broker_id),
                type_name=event_type.name,
            )
            return
        if message.filter is not None and message.filter.variables:
            reason = f"advertisement of {event_type.name} with {message.filter}: expected no variables"
            self._refuse(peer, message.epoch, "INVALID_ARGUMENT", reason, type_name=event_type.name)
            return
        state = self._type(event_type)
        state.publishers[peer.name] = peer.advertised[event_type.name] = message.epoch
        rescoped = state.promise(peer.name, message.filter)
        peer.stale_types.pop(event_type.name, None)
        self._quench.watch(peer, event_type.name, wanted=message.watch)
        for neighbour in self.peers.neighbours():
            if neighbour is peer:
                continue
            promise = state.promise_to(neighbour.name)
            known = neighbour.name in state.told and neighbour.name not in state.refused
            if known and covers(state.promised[neighbour.name], promise):
                self._wait_for(neighbour.name, state.told[neighbour.name])
            else:
                state.refused.pop(neighbour.name, None)
                epoch = state.told[neighbour.name] = self._next_epoch(neighbour)
                state.promised[neighbour.name] = promise
                self._control(neighbour, Advertise(epoch, event_type, promise))
        if not peer.is_broker:
            return
        outgoing = state.outgoing.get(peer.name)
        if outgoing is None:
            self._tell([(peer.name, state.open(peer.name, self._slots(peer)))])
        else:
            if rescoped:
                self._tell([(peer.name, state.rescope(peer.name))])
            self._tell([(peer.name, outgoing.slots.resend(refused_only=True))])

    def _on_unadvertise(self, message: Unadvertise, peer: Peer) -> None:
        """The contrary of AD. Void when the sender has advertised again since (an AD may overtake it)."""
        if message.epoch > peer.advertised.get(message.type_name, message.epoch):
            peer.stale_types.pop(message.type_name, None)
            self._withdraw(self.types[message.type_name], peer)

    def _withdraw(self, state: TypeState, peer: Peer) -> None:
        """An interface publishes this type no longer. Nobody has to know at once: no message waits for it."""
        name = state.event_type.name
        del state.publishers[peer.name], peer.advertised[name]
        state.promise(peer.name, None)
        self._quench.forget(peer, name)
        for neighbour in list(state.told):
            if not any(publisher != neighbour for publisher in state.publishers):
                del state.told[neighbour], state.promised[neighbour]
                state.refused.pop(neighbour, None)
                other = self.peers[neighbour]
                self._send(other, Unadvertise(self._next_epoch(other), name))
        if peer.name in state.outgoing:
            messages = state.close(peer.name)
            if self.peers.get(peer.name) is peer:
                self._tell([(peer.name, messages)])
        if state.idle:
            self._maybe_idle[name] = None

    def _on_refuse(self, message: Refuse, peer: Peer) -> None:
        """A neighbour refused what this broker passed on: an AD goes back to those who made it."""
        if not peer.is_broker:
            return
        state = self.types.get(message.type_name)
        if message.subscription_id:
            for outgoing in [s.outgoing[peer.name] for s in self.types.values() if peer.name in s.outgoing]:
                slot = outgoing.slots.get(message.subscription_id)
                if slot is not None:
                    slot.refused = True
        elif state is not None and state.told.get(peer.name) == message.epoch:
            state.refused[peer.name] = None
            for name, epoch in state.publishers.items():
                if name != peer.name:
                    self._refuse(
                        self.peers[name], epoch, message.status, message.reason, type_name=message.type_name
                    )
