"""Pairs of brokers that lose each other: over links that stay, or links that move (`moving_links.py`)."""

from __future__ import annotations

from itertools import combinations

from covey.sim.simulator import Simulation

Pair = tuple[str, str]


class Network:
    """The pairs that are cut now. A pair may be cut several times, and is mended by as many."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._cuts: dict[Pair, int] = {}

    def pairs(self) -> list[Pair]:
        """Those that may be cut: of links, or where links move of all brokers."""
        simulation = self._simulation
        if simulation.moving is None:
            return list(simulation.links)
        return list(combinations(simulation.brokers, 2))

    def cut(self, pair: Pair) -> None:
        self._cuts[pair] = self._cuts.get(pair, 0) + 1
        if self._cuts[pair] == 1:
            self._apply(pair, cut=True)

    def mend(self, pair: Pair) -> None:
        """Undo one cut; nothing for a pair that is not cut."""
        count = self._cuts.get(pair, 0)
        if count == 1:
            del self._cuts[pair]
            self._apply(pair, cut=False)
        elif count:
            self._cuts[pair] = count - 1

    def heal(self) -> None:
        for pair in list(self._cuts):
            self._cuts[pair] = 1
            self.mend(pair)

    def _apply(self, pair: Pair, *, cut: bool) -> None:
        moving = self._simulation.moving
        if moving is not None:
            moving.keep_apart(self._cuts)
        elif cut:
            self._simulation.block(*pair)
        else:
            self._simulation.unblock(*pair)
