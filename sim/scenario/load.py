"""A load: which publishers and subscribers there are, their brokers, events, subscriptions and updates."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from covey.matcher import EventBatch, EventType, Filter
from covey.matcher.errors import CoveyError


class LoadError(CoveyError, ValueError):
    """The load does not fit the topology or its input files."""


@dataclass(slots=True)
class SubscriberState:
    """The one subscription of a subscriber: filter, current values, and the broker that it belongs at."""

    filter: Filter
    values: dict[str, Any]
    broker: str


class Load(ABC):
    """Draws everything from one generator, so that the same seed gives the same load.

    Events may be drawn from another: where publishers wait, when events are drawn depends on the system, and
    all other draws must not.
    """

    @abstractmethod
    def publisher(self, number: int) -> tuple[str, list[EventType]]:
        """A publisher's broker and the types that it advertises."""

    @abstractmethod
    def events(self, number: int, count: int, draw: random.Random | None = None) -> EventBatch:
        """Events of one type from a publisher, drawn from `draw` if that is given."""

    @abstractmethod
    def subscriber(self, number: int) -> SubscriberState:
        """A subscriber's initial state."""

    @abstractmethod
    def next_values(self, number: int, subscriber: SubscriberState) -> tuple[dict[str, Any], str]:
        """A subscriber's next values, and the broker that it belongs at then."""
