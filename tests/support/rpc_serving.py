"""A server of calls on the event loop of a test."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from running import free_ports

from covey.overlay.transport.rpc_server import Handler, RpcServer


@asynccontextmanager
async def serving(
    handlers: Mapping[str, Handler], address: str = "", *, max_message_bytes: int = 8 << 20, **options: Any
) -> AsyncIterator[tuple[RpcServer, str]]:
    """A server, and its address, by default at a free port."""
    address = address or f"127.0.0.1:{free_ports(1)[0]}"
    server = RpcServer(handlers, max_message_bytes=max_message_bytes, faults=Counter(), **options)
    await server.listen(address)
    try:
        yield server, address
    finally:
        await server.stop(0.0)
