"""How a gRPC call ends without success. Loads nothing: `covey health` starts with it, every few seconds in a
container.
"""

from __future__ import annotations


class CallError(Exception):
    """A gRPC call that ends without success; `status` is the name of a gRPC status."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
