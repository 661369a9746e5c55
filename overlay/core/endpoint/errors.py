"""The error of a call that the other end of a link, or this one on its behalf, refuses."""

from __future__ import annotations

from covey.matcher.errors import CoveyError


class RefusedError(CoveyError):
    """The broker refused a call, and nothing changed. `status` is the name of a gRPC status."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
