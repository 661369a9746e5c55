"""Errors of the client library."""

from __future__ import annotations

from collections.abc import Mapping

from covey.matcher.errors import CoveyError


class ConnectError(CoveyError, ConnectionError):
    """No broker answers, or the broker refuses this client; `status` is the name of a gRPC status."""

    def __init__(self, reason: str, status: str = "UNAVAILABLE") -> None:
        super().__init__(reason)
        self.status = status


class ClosedError(CoveyError):
    """The client is closed."""


class NotSettledError(CoveyError, TimeoutError):
    """A change has not taken effect everywhere in time. It stands and takes effect later, except a new
    subscription, which is cancelled."""


class OutboxFullError(CoveyError):
    """The outbox has no room for an event of this type."""


class UpdateError(CoveyError):
    """Some of several updates failed: `failed` has their errors by subscription id. The others stand."""

    def __init__(self, failed: Mapping[int, Exception], count: int) -> None:
        reasons = "; ".join(f"subscription {number}: {error}" for number, error in failed.items())
        super().__init__(f"{len(failed)} of {count} updates failed: {reasons}")
        self.failed = dict(failed)
