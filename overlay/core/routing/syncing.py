"""Interfaces that come, come back without their memory, and go; resynchronisation.

A neighbour that comes is told everything between SyncBegin and SyncEnd, in ordinary messages. What it said
before stays until its own SyncEnd, and what it has not repeated by then is void.
"""

from __future__ import annotations

from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.messages import (
    Acknowledge,
    Advertise,
    Disconnect,
    Interface,
    SyncBegin,
    SyncEnd,
)
from covey.overlay.core.routing.advertisements import Advertisements
from covey.overlay.core.routing.peers import Peer


class Syncing(Advertisements):
    """Handlers of interfaces."""

    def _on_acknowledge(self, message: Acknowledge, peer: Peer) -> None:
        self.acks.acknowledged(peer.name, message.epoch)

    def _on_connect(self, name: Interface) -> None:
        """An interface is there, perhaps again and without its memory: a neighbour is told everything."""
        peer = self.peers.get(name)
        if peer is None:
            peer = self.peers.add(name)
        else:
            peer.received = peer.answered = 0
            self.acks.forget_source(name)
        if not peer.is_broker:
            return
        self._send(peer, SyncBegin())
        for state in self.types.values():
            if any(publisher != name for publisher in state.publishers):
                state.refused.pop(name, None)
                epoch = state.told[name] = self._next_epoch(peer)
                state.promised.pop(name, None)
                state.promised[name] = state.promise_to(name)
                self._send(peer, Advertise(epoch, state.event_type, state.promised[name]))
        for state in self.types.values():
            if name in state.outgoing:
                for message in state.outgoing[name].slots.resend():
                    self._send(peer, message)
        self._unended[name] = None
        self._end_syncs()
        self.acks.defer(name, peer.epoch)

    def _end_syncs(self) -> None:
        """Send the SyncEnds that are due.

        What a starting broker has not repeated is void for its neighbours from its SyncEnd on: so each hears
        it only after the others have told theirs. In an overlay without cycles that waiting ends.
        """
        for name in list(self._unended):
            if all(other == name for other in self._unheard):
                del self._unended[name]
                peer = self.peers[name]
                self._send(peer, SyncEnd(self._next_epoch(peer)))

    def _on_disconnect(self, message: Disconnect, peer: Peer) -> None:
        """An interface is gone for good: what it said is void, and nothing waits for it."""
        self.peers.remove(peer)
        self._quench.forget(peer)
        self.acks.forget_source(peer.name)
        for state in self.types.values():
            state.told.pop(peer.name, None)
            state.promised.pop(peer.name, None)
            state.refused.pop(peer.name, None)
        self._revoke(peer, list(peer.subscriptions), list(peer.advertised))
        if peer.is_broker:
            self.acks.forget_neighbour(peer.name)
            self._unended.pop(peer.name, None)
            self._unheard.pop(peer.name, None)
            self._end_syncs()

    def _on_sync_begin(self, message: SyncBegin, peer: Peer) -> None:
        """What was said before is set aside until SyncEnd.

        The ids of a neighbour's slots begin anew when it does: so that no new slot takes the place of an old
        one that is wanted still, the old ones go by other ids meanwhile. A client keeps its ids.
        """
        if peer.is_broker:
            for interest in peer.subscriptions.values():
                if interest.subscription_id > 0:
                    self.registry.rename(interest, peer.next_aside())
            peer.subscriptions = {i.subscription_id: i for i in peer.subscriptions.values()}
        peer.stale_subscriptions = dict.fromkeys(peer.subscriptions)
        peer.stale_types = dict.fromkeys(peer.advertised)

    def _on_sync_end(self, message: SyncEnd, peer: Peer) -> None:
        """What was not repeated since SyncBegin is void."""
        subscriptions, types = list(peer.stale_subscriptions), list(peer.stale_types)
        peer.stale_subscriptions, peer.stale_types = {}, {}
        self._revoke(peer, subscriptions, types)
        if peer.name in self._unheard:
            del self._unheard[peer.name]
            self.acks.release(peer.name, peer.epoch)
            self._end_syncs()

    def _revoke(self, peer: Peer, subscriptions: list[int], types: list[str]) -> None:
        """Take back several subscriptions, those of one type in one change, and several advertisements."""
        by_type: dict[str, list[Interest]] = {}
        for subscription_id in subscriptions:
            interest = peer.subscriptions[subscription_id]
            by_type.setdefault(interest.filter.event_type.name, []).append(interest)
        for name, interests in by_type.items():
            self._exchange(self.types[name], peer, [], interests)
        for name in types:
            self._withdraw(self.types[name], peer)
