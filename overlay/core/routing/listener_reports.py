"""Listeners: a publisher may ask for reports of whether its events have any (quenching in Elvin).

Interest in a type flows to where it is published, so the publisher's broker has it. Invariant: after each
call the last report to every publisher is up to date. Cost: none where no publisher asks; else a change of
interest visits the roots of its type, up to the first that the publisher's promise admits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from covey.overlay.core.messages import Interface, ListenersReport

if TYPE_CHECKING:
    from covey.overlay.core.routing.peers import Peer
    from covey.overlay.core.routing.type_state import TypeState


class ListenerReports:
    """Which publishers get reports, and the last report to each."""

    def __init__(self) -> None:
        self._reported: dict[str, dict[Interface, bool | None]] = {}
        """By type and publisher; None before the first report."""
        self.touched: dict[str, None] = {}
        """Types whose reports may be out of date."""

    def set(self, peer: Peer, type_name: str, *, report: bool) -> None:
        """An interface has advertised a type, and asks for reports or does not."""
        if report and not peer.is_broker:
            self._reported.setdefault(type_name, {})[peer.name] = None
            self.touched[type_name] = None
        else:
            self.remove(peer, type_name)

    def remove(self, peer: Peer, type_name: str | None = None) -> None:
        """End an interface's reports, of one type or of all."""
        for name in [type_name] if type_name is not None else list(self._reported):
            publishers = self._reported.get(name, {})
            publishers.pop(peer.name, None)
            if not publishers:
                self._reported.pop(name, None)

    def touch(self, type_name: str) -> None:
        """Interest in a type has changed."""
        if type_name in self._reported:
            self.touched[type_name] = None

    def drain(self, types: Mapping[str, TypeState]) -> Iterator[tuple[Interface, ListenersReport]]:
        """The reports to send now, in the order in which publishers asked."""
        touched, self.touched = self.touched, {}
        for name in touched:
            for interface, reported in self._reported.get(name, {}).items():
                present = _any_listener(types[name], interface)
                if present is not reported:
                    self._reported[name][interface] = present
                    yield interface, ListenersReport(name, present)


def _any_listener(state: TypeState, publisher: Interface) -> bool:
    promise = state.promises.get(publisher)
    return any(
        promise is None or promise.admits(root) for poset in state.groups.values() for root in poset.roots()
    )
