"""Notices of named operators that did not answer: from a neighbour on to whoever calls them, and our own."""

from __future__ import annotations

from covey.overlay.core.messages import Notice
from covey.overlay.core.routing.call import Call
from covey.overlay.core.routing.peers import Peer
from covey.overlay.core.routing.tables import Tables


def on_notice(tables: Tables, call: Call, message: Notice, peer: Peer) -> None:
    """A neighbour's is passed on; a client has none to send."""
    if peer.is_broker:
        tables.notices.received(message, peer.name)


def send_notices(tables: Tables, call: Call) -> None:
    """Send the notices that are due."""
    for interface, notice in tables.notices.due(call.now_ns):
        peer = tables.peers.get(interface)
        if peer is not None:
            call.send(peer, notice)
