"""What browsers may cost a gateway. Every bound has a default; a refusal names its bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address, ip_network

from covey.matcher.errors import InputError

_MOST = 1 << 40


class Overflow(StrEnum):
    """A full queue's policy, as at brokers for slow consumers."""

    DROP_OLDEST = "drop_oldest"
    DROP_NEWEST = "drop_newest"
    DISCONNECT = "disconnect"
    BLOCK = "block"
    CONFLATE = "conflate"


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one gateway: sizes in bytes, times in seconds. `InputError` for a value out of range."""

    max_connections: int = 10_000
    max_connections_per_address: int = 100
    max_sessions: int = 10_000
    """Connected ones, and those away for less than `lease_s`."""
    max_message_bytes: int = 65_536
    max_messages_per_s: int = 200
    """Of one browser, after a burst of a second's worth; the gateway reads no faster. Each KiB of a message
    counts as one; pings and fragments have a budget of the same size."""
    max_filter_bytes: int = 4_096
    """Parsing takes 3 ms per KiB, here and in brokers."""
    max_requests: int = 64
    """Unanswered ones of one browser; over it, the gateway stops reading."""
    max_subscriptions: int = 100
    """Of one browser, views included."""
    max_views: int = 10
    """Of one browser, within `max_subscriptions`."""
    max_view_keys: int = 50_000
    """Inside one view, which ends beyond it."""
    queue_bytes: int = 1 << 20
    """Not yet sent to one browser; over it, `Overflow` decides."""
    max_pending_bytes: int = 1 << 30
    """Not yet sent to all browsers; over it, `Overflow` decides from 64 KiB per browser on."""
    window_bytes: int = 1 << 18
    """Sent to one browser and not acknowledged; retained for its next connection."""
    lease_s: int = 30
    """How long a session outlives its connection."""
    timeout_s: int = 10
    """For a connection's first message, and for the answer to a request."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or not 1 <= value <= _MOST:
                raise InputError(f"{field.name} is {value!r}: expected an integer from 1 to {_MOST}")


Network = IPv4Network | IPv6Network
_MOST_CHARACTERS = 64
_IPV6_PREFIX = 64
"""The network of one customer, within which addresses cost nothing."""


def networks(proxies: Iterable[str]) -> tuple[Network | str, ...]:
    """Parse addresses, networks, and "unix" for a socket of this machine. `InputError` for other texts."""
    found: list[Network | str] = []
    for each in proxies:
        try:
            found.append(each if each == "unix" else ip_network(each))
        except ValueError:
            expected = "expected an IP address, a network such as 10.0.0.0/8, or unix"
            raise InputError(f"--proxy {each!r}: {expected}") from None
    return tuple(found)


def prefix(address: str) -> str:
    """The unit by which connections are counted: an IPv4 address, or an IPv6 network."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address[:_MOST_CHARACTERS]
    if isinstance(parsed, IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ip_network((parsed, _IPV6_PREFIX), strict=False))


class Addresses:
    """Counts connections by address and in total; addresses in `exempt` count in the total alone."""

    def __init__(self, limits: Limits, exempt: tuple[Network | str, ...] = ()) -> None:
        self._limits = limits
        self._exempt = exempt
        self._counts: Counter[str] = Counter()
        self.total = 0
        self.refused = 0

    def enter(self, address: str) -> str | None:
        """Count a connection, or return a sentence on why it is refused."""
        limits, most = self._limits, self._limits.max_connections_per_address
        exempt = self._is_exempt(address)
        address = prefix(address)
        if self._counts[address] >= most and not exempt:
            why = f"max_connections_per_address is {most}, and {address} has them"
        elif self.total >= limits.max_connections:
            why = f"max_connections is {limits.max_connections}, and the gateway has them"
        else:
            self._counts[address] += 1
            self.total += 1
            return None
        if not self._counts[address]:
            del self._counts[address]
        self.refused += 1
        return why

    def _is_exempt(self, address: str) -> bool:
        try:
            parsed = ip_address(address)
        except ValueError:
            return address in self._exempt
        return any(not isinstance(each, str) and parsed in each for each in self._exempt)

    def of(self, address: str) -> int:
        return self._counts[prefix(address)]

    def leave(self, address: str) -> None:
        address = prefix(address)
        self.total -= 1
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]


class Pace:
    """A browser's message rate: a bucket that holds a second's worth."""

    def __init__(self, rate: int, now: float) -> None:
        self._rate = rate
        self._level = float(rate)
        self._since = now

    def pause_s(self, now: float, cost: int = 1) -> float:
        """Count a message; returns the seconds to wait before the next read."""
        self._level = min(self._rate, self._level + max(0.0, now - self._since) * self._rate) - cost
        self._since = now
        return max(0.0, -self._level / self._rate)
