"""Broker addresses: "host:port" for TCP, "unix:path" for a socket file of this machine."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

_UNIX = "unix:"
_LONGEST_LABEL = 63
_LONGEST_PATH = 107
"""`sun_path` of Linux without its final zero."""


def split_addresses(text: str) -> list[str]:
    return [address.strip() for address in text.split(",")]


class TcpAddress(NamedTuple):
    host: str
    port: int


class UnixAddress(NamedTuple):
    path: str


def is_local(address: TcpAddress | UnixAddress) -> bool:
    """Whether only this machine can reach it: loopback or a socket file. Of names, only localhost counts."""
    if isinstance(address, UnixAddress):
        return True
    try:
        host = ip_address(address.host.partition("%")[0])
    except ValueError:
        return address.host.lower() == "localhost"
    mapped = host.ipv4_mapped if isinstance(host, IPv6Address) else None
    return (mapped or host).is_loopback


def parse_address(text: str) -> TcpAddress | UnixAddress:
    """`ValueError`, with what was expected, if this is no address."""
    if "\0" in text:
        raise ValueError("expected text without null characters")
    if text.startswith(_UNIX):
        path = text.removeprefix(_UNIX)
        path = path[2:] if path.startswith("///") else path
        if not path:
            raise ValueError('expected a path behind "unix:"')
        if len(path.encode()) > _LONGEST_PATH:
            raise ValueError(f"expected a path of at most {_LONGEST_PATH} bytes, as sockets have")
        return UnixAddress(path)
    host, colon, port = text.rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() else 0
    if not host or not colon or "/" in host or not 0 < number < 65_536:
        raise ValueError('expected "host:port" with a port from 1 to 65535, or "unix:path"')
    host = host.removeprefix("[").removesuffix("]")
    if not _is_host(host):
        raise ValueError(f"expected a host's name, of labels with 1 to {_LONGEST_LABEL} characters")
    return TcpAddress(host, number)


def _is_host(host: str) -> bool:
    """Whether sockets and TLS accept the name; others raise more than `OSError`."""
    if host.isascii():
        return all(0 < len(label) <= _LONGEST_LABEL for label in host.removesuffix(".").split("."))
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


class CallError(Exception):
    """A failed gRPC call; `status` is the name of a gRPC status."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
