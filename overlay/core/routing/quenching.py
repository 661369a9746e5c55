"""Quenching (Elvin): a publisher that asks is told whether anyone wants what it advertises, and of changes.

What an overlay wants of a type flows to where it is published, so the broker of the publisher knows.
Invariant after each message: everyone who asked has been told the present answer. Cost: nothing where nobody
asked; a change of interest looks at the roots of its type, up to the first that the promise admits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from covey.overlay.core.messages import Interface, Listeners

if TYPE_CHECKING:
    from covey.overlay.core.routing.peers import Peer
    from covey.overlay.core.routing.type_state import TypeState


class Quench:
    """Who asked, and what they were told last."""

    def __init__(self) -> None:
        self._told: dict[str, dict[Interface, bool | None]] = {}
        self.touched: dict[str, None] = {}
        """Types in which the answer may be another one now."""

    def watch(self, peer: Peer, type_name: str, *, wanted: bool) -> None:
        """An interface has advertised, and asks to be told, or does not."""
        if wanted and not peer.is_broker:
            self._told.setdefault(type_name, {})[peer.name] = None
            self.touched[type_name] = None
        else:
            self.forget(peer, type_name)

    def forget(self, peer: Peer, type_name: str | None = None) -> None:
        """An interface publishes a type, or anything, no more."""
        for name in [type_name] if type_name is not None else list(self._told):
            watching = self._told.get(name, {})
            watching.pop(peer.name, None)
            if not watching:
                self._told.pop(name, None)

    def touch(self, type_name: str) -> None:
        """Interest in a type has changed."""
        if type_name in self._told:
            self.touched[type_name] = None

    def drain(self, types: Mapping[str, TypeState]) -> Iterator[tuple[Interface, Listeners]]:
        """Whom to tell what, in the order in which they asked."""
        touched, self.touched = self.touched, {}
        for name in touched:
            for interface, told in self._told.get(name, {}).items():
                listening = _anyone(types[name], interface)
                if listening is not told:
                    self._told[name][interface] = listening
                    yield interface, Listeners(name, listening)


def _anyone(state: TypeState, publisher: Interface) -> bool:
    promise = state.promises.get(publisher)
    return any(
        promise is None or promise.admits(root) for poset in state.groups.values() for root in poset.roots()
    )
