"""What the handlers of a broker's calls use of gRPC."""

from __future__ import annotations

from typing import Protocol

import grpc
import grpc.aio


class Context(Protocol):
    """What the handlers use of gRPC's context of a call."""

    def peer(self) -> str: ...
    async def read(self) -> bytes: ...
    async def write(self, data: bytes) -> None: ...
    async def abort(self, code: grpc.StatusCode, details: str) -> None: ...


async def abort(context: Context, status: str, reason: str) -> None:
    await context.abort(grpc.StatusCode[status], reason)
