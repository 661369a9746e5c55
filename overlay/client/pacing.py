"""A subscription with a maximal rate: what has arrived waits here until it may leave.

What waits here, an event per key, has given its credit back, up to a bound; beyond it parts keep theirs. So
who reads slowly gets the newest of each key, and one with more keys than fit holds its broker as without a
rate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from covey.overlay.client.inbox import Inbox
from covey.overlay.client.part import Claim, Part
from covey.overlay.core.client.rate_gate import RateGate
from covey.overlay.core.link.event_queue import key_codes, last_of_each
from covey.overlay.core.messages import Gap

_MOST_BYTES = 1 << 20
"""Of events that wait without credit."""


class Pacer:
    """Fills the inbox of a subscription. `on_lost` is called with what was superseded."""

    def __init__(self, rate: float, key: str, inbox: Inbox[Part], on_lost: Callable[[Gap], None]) -> None:
        self._gate: RateGate[Part] = RateGate(rate, lambda parts: _conflated(parts, key), _size)
        self._key = key
        self._inbox = inbox
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def arrived(self, part: Part) -> None:
        """Events that are out of their order pass at once: they supersede nothing."""
        if part.replayed or self._key not in part.batch.event_type.attributes:
            self._inbox.put(part)
            return
        if self._gate.pending_bytes <= _MOST_BYTES:
            part.claim.done()
            part.claim = _FREE
        self._gate.put(part)
        self.let_go()

    def let_go(self) -> None:
        """Let what waits leave if it is time and the reader has taken what left before."""
        if self._inbox.items:
            return
        if self._gate.pending_bytes > _MOST_BYTES:
            self._depart(self._gate.flush())
            return
        self._depart(self._gate.take(self._loop.time()))
        due_s = self._gate.due_s()
        if due_s is not None and self._timer is None:
            self._timer = self._loop.call_at(due_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self.let_go()

    def end(self) -> None:
        """Nothing more arrives: what waits leaves."""
        if self._timer is not None:
            self._timer.cancel()
        self._depart(self._gate.flush())

    def discard(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for part in self._gate.flush():
            part.claim.done()
        self._gate.lost = []

    def _depart(self, parts: list[Part]) -> None:
        lost, self._gate.lost = self._gate.lost, []
        for part, count in lost:
            at_ns = part.batch.ingress_ns
            self._on_lost(Gap(part.batch.event_type.name, at_ns, at_ns, count, conflated=True))
        for part in parts:
            self._inbox.put(part)


def _conflated(parts: Sequence[Part], key: str) -> tuple[list[Part], list[tuple[Part, int]]]:
    """The parts without events that later ones of their key supersede."""
    codes = key_codes([part.batch for part in parts], key)
    count = len(codes)
    stays = last_of_each(codes, np.zeros(count, np.int64), np.arange(count), count) | (codes < 0)
    kept, lost = [], []
    ends = np.cumsum([len(part.batch) for part in parts])[:-1]
    for part, mask in zip(parts, np.split(stays, ends), strict=True):
        rows = np.flatnonzero(mask)
        if len(rows) < len(mask):
            lost.append((part, len(mask) - len(rows)))
        if len(rows) == len(mask):
            kept.append(part)
        elif len(rows):
            kept.append(Part(replace(part.share, batch=part.batch.take(rows)), part.epoch, part.claim))
        else:
            part.claim.done()
    return kept, lost


def _size(part: Part) -> int:
    return part.batch.nbytes


def _nothing() -> None:
    pass


class _Free(Claim):
    """Of what waits without credit."""

    def done(self) -> None:
        pass


_FREE = _Free(0, 0, _nothing)
