"""What can go wrong for a client beyond what it says itself: the broker refuses, or is out of reach, or too
slow."""

from __future__ import annotations

from covey.matcher.errors import CoveyError


class RefusedError(CoveyError):
    """The broker refused what was asked, and nothing changed. `status` is the name of a gRPC status."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ConnectError(CoveyError, ConnectionError):
    """No broker answers, or what answers will not have this client."""

    def __init__(self, reason: str, status: str = "UNAVAILABLE") -> None:
        super().__init__(reason)
        self.status = status


class ClosedError(CoveyError):
    """The client is closed."""


class NotSettledError(CoveyError, TimeoutError):
    """A change has not taken effect everywhere within the time given. It stands, and will take effect; only a
    new subscription is taken back, as nobody would hold it."""
