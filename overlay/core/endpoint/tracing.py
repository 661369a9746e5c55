"""Spans of what a broker does, as its endpoint reports it; `overlay/node/node_tracing.py` has them."""

from __future__ import annotations

from typing import Protocol

from covey.overlay.core.messages import Interface, Message


class Tracing(Protocol):
    """Gets messages with their trace contexts, once per batch and never per event."""

    def arrived(self, interface: Interface, messages: list[Message]) -> list[Message]:
        """Messages that arrived together: the same, those that are traced as part of this broker's spans."""

    def handled(self) -> None:
        """The events that arrived last are on their way to all that get them."""

    def settled(self, interface: Interface, epoch: int) -> None:
        """All control messages of an interface up to an epoch have taken effect."""

    def forget(self, interface: Interface) -> None:
        """An interface has ended, or has lost its state."""
