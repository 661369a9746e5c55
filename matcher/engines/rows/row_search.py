"""The results of a match: those of the store, of trees and of subscriptions with calls."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.keys import Keys
from covey.matcher.engine import Engine, IdArray, bits_of
from covey.matcher.engines.rows.gated import GatedSearch
from covey.matcher.engines.rows.ids import Interfaces
from covey.matcher.engines.rows.store import RowStore
from covey.matcher.matches import Matches, Search


class RowSearch(Search):
    def __init__(
        self,
        engine: Engine,
        store: RowStore,
        interfaces: Interfaces,
        keys: Keys,
        trees: Matches | None,
        gated: GatedSearch | None,
        *,
        shared: bool,
    ) -> None:
        """`shared`: an event may match several rows of a subscription."""
        super().__init__(engine, len(keys))
        self._store, self._interfaces, self._shared = store, interfaces, shared
        self._keys, self._trees, self._gated = keys, trees, gated

    def counts(self) -> IdArray:
        counts = self._store.counts(self._keys, shared=self._shared)
        counts = counts if self._trees is None else counts + self._trees.counts
        return counts if self._gated is None else counts + self._gated.counts()

    def any(self) -> npt.NDArray[np.bool_]:
        matching = self._store.counts(self._keys, shared=False, most=1) > 0
        matching = matching if self._trees is None else matching | self._trees.any()
        return matching if self._gated is None else self._gated.any(matching)

    def interfaces(self) -> npt.NDArray[np.uint64]:
        bits = np.zeros((self.events, self._interfaces.highest // 64 + 1), dtype=np.uint64)
        self._store.set_interfaces(self._keys, bits, self._interfaces.in_use)
        if self._trees is not None:
            more = self._trees.interfaces()
            bits[:, : more.shape[1]] |= more
        if self._gated is not None:
            self._gated.set_interfaces(bits)
        return bits

    def ids(self) -> tuple[IdArray, IdArray]:
        answers = self._store.ids(self._keys, shared=self._shared)
        answers = answers if self._trees is None else _merged(answers, self._trees.ids())
        return answers if self._gated is None else _merged(answers, self._gated.ids())


def ids_of_event(store: RowStore, keys: Keys, *, shared: bool) -> IdArray:
    """As `Engine.event_ids`."""
    ids = store.ids(keys, shared=shared)[1]
    ids.sort()
    return ids


def interfaces_of_event(store: RowStore, keys: Keys, interfaces: Interfaces) -> int:
    """As `Engine.event_interfaces`."""
    bits = np.zeros((1, interfaces.highest // 64 + 1), dtype=np.uint64)
    store.set_interfaces(keys, bits, interfaces.in_use)
    return bits_of(bits)


def _merged(answers: tuple[IdArray, IdArray], others: tuple[IdArray, IdArray]) -> tuple[IdArray, IdArray]:
    events = [np.repeat(np.arange(len(o) - 1, dtype=np.int64), np.diff(o)) for o, _ in (answers, others)]
    order = np.argsort(np.concatenate(events), kind="stable")
    return answers[0] + others[0], np.concatenate([answers[1], others[1]])[order]
