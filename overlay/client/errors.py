"""Errors of a client whose broker is out of reach or too slow, of a closed one, and of several changes
at once.
"""

from __future__ import annotations

from collections.abc import Mapping

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


class OutboxFullError(CoveyError):
    """The outbox has no room for another event of this type, and the call does not wait."""


class UpdateError(CoveyError):
    """Some of several updates have failed: `failed` has the error of each, by the id of its subscription. The
    others stand.
    """

    def __init__(self, failed: Mapping[int, Exception], count: int) -> None:
        reasons = "; ".join(f"subscription {number}: {error}" for number, error in failed.items())
        super().__init__(f"{len(failed)} of {count} updates failed: {reasons}")
        self.failed = dict(failed)
