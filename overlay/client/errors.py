"""Errors of a client that come from its broker: it refuses, is out of reach, or is too slow."""

from __future__ import annotations

from covey.matcher.errors import CoveyError


class RefusedError(CoveyError):
    """The broker refused a call, and nothing changed. `status` is the name of a gRPC status."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ConnectError(CoveyError, ConnectionError):
    """No broker answers, or the broker refuses this client."""

    def __init__(self, reason: str, status: str = "UNAVAILABLE") -> None:
        super().__init__(reason)
        self.status = status


class ClosedError(CoveyError):
    """The client is closed."""


class NotSettledError(CoveyError, TimeoutError):
    """A change has not taken effect everywhere within the timeout. It stands, and will take effect; only a
    new subscription is cancelled, as its caller has no handle on it.
    """
