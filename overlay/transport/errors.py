"""What is wrong with what a peer sent."""

from __future__ import annotations

from covey.matcher.errors import CoveyError
from covey.overlay.core.messages import Refuse


class MalformedPacketError(CoveyError):
    """Bytes that are no packet of this protocol."""


class MessageError(CoveyError):
    """A message that cannot be taken; `refuse` is the answer to its sender."""

    def __init__(self, refuse: Refuse) -> None:
        super().__init__(refuse.reason)
        self.refuse = refuse


class UnknownTypeError(CoveyError):
    """The name of an event type that is not known here."""
