"""Addresses of brokers: "host:port" for TCP, "unix:path" for a socket file of this machine."""

from __future__ import annotations

from typing import NamedTuple

_UNIX = "unix:"


def split_addresses(text: str) -> list[str]:
    """The addresses of a text with commas between them."""
    return [address.strip() for address in text.split(",")]


class TcpAddress(NamedTuple):
    host: str
    port: int


class UnixAddress(NamedTuple):
    path: str


def parse_address(text: str) -> TcpAddress | UnixAddress:
    """`ValueError`, with what was expected, for a text that is no address."""
    if text.startswith(_UNIX):
        path = text.removeprefix(_UNIX)
        path = path[2:] if path.startswith("///") else path
        if not path:
            raise ValueError('expected a path behind "unix:"')
        return UnixAddress(path)
    host, colon, port = text.rpartition(":")
    if not host or not colon or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
        raise ValueError('expected "host:port" with a port from 1 to 65535, or "unix:path"')
    return TcpAddress(host.removeprefix("[").removesuffix("]"), int(port))
