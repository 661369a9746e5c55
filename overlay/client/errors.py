"""Errors of a client whose broker is out of reach or too slow, and of a closed one."""

from __future__ import annotations

from covey.matcher.errors import CoveyError


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
