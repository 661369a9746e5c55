"""Counts the messages without events that cross links between brokers."""

from __future__ import annotations

from collections import Counter

from covey.overlay.core.messages import Message, Publish
from covey.sim.simulator.observer import Observer


class LinkControl(Observer):
    """`by_kind` has their number; `clear` it when the set-up is over."""

    def __init__(self) -> None:
        self.by_kind: Counter[str] = Counter()

    def received(self, source: str, target: str, message: Message) -> None:
        if source.startswith("broker/") and target.startswith("broker/") and type(message) is not Publish:
            self.by_kind[type(message).__name__] += 1
