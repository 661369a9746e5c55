"""Who a peer is by its certificate: URIs among its names (SAN), `covey://OVERLAY/broker/NAME` for a broker
and `covey://OVERLAY/client/NAME` for a client, percent-encoded.

Invariant: a connection is a neighbour's only if `neighbour_denial` has no objection, so that what calls
itself b2 and is not touches nothing of b2. The signature of a certificate was verified before.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from urllib.parse import quote, unquote

NEIGHBOUR = "neighbour"
"""A peer that calls itself a neighbour and has no certificate that names it."""
HANDSHAKE = "handshake"
"""A connection whose TLS handshake failed."""


class DeniedError(Exception):
    """A peer may not do what it asked for; `status` is the name of a gRPC status."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class Certified:
    """What a verified certificate says: its URIs, and until when it is valid (ns since the epoch)."""

    uris: frozenset[str]
    expires_ns: int

    def client(self, overlay: str) -> str | None:
        """The name of the client of an overlay that it names; None for no client, or several."""
        return self._only(f"covey://{quote(overlay, safe='')}/client/")

    def any_client(self) -> str | None:
        """The name of the client that it names, of whatever overlay."""
        parts = [uri.removeprefix("covey://").split("/") for uri in self.uris if uri.startswith("covey://")]
        names = [unquote(each[2]) for each in parts if len(each) == 3 and each[1] == "client"]
        return names[0] if len(names) == 1 else None

    def broker(self, overlay: str) -> str | None:
        """The name of the broker of an overlay that it names; None for no broker, or several."""
        return self._only(f"covey://{quote(overlay, safe='')}/broker/")

    def _only(self, prefix: str) -> str | None:
        names = [unquote(uri.removeprefix(prefix)) for uri in self.uris if uri.startswith(prefix)]
        return names[0] if len(names) == 1 else None


def broker_uri(overlay: str, broker: str) -> str:
    return f"covey://{quote(overlay, safe='')}/broker/{quote(broker, safe='')}"


def client_uri(overlay: str, client: str) -> str:
    return f"covey://{quote(overlay, safe='')}/client/{quote(client, safe='')}"


def file_name(broker: str) -> str:
    """The name of a broker as that of a file: no slash in it, and no folder."""
    return quote(broker, safe=" ").replace("..", "%2E%2E")


def neighbour_denial(overlay: str, broker: str, certified: Certified | None) -> DeniedError | None:
    """Why a peer that calls itself this broker is not taken for it; None if its certificate names it."""
    if certified is None:
        return DeniedError("UNAUTHENTICATED", f"a peer that says it is broker {broker!r} has no certificate")
    uri = broker_uri(overlay, broker)
    if uri not in certified.uris:
        shown = ", ".join(sorted(certified.uris)) or "no URI"
        return DeniedError(
            "PERMISSION_DENIED",
            f"a peer that says it is broker {broker!r} has a certificate for {shown[:200]}: expected {uri}",
        )
    return None


Denials = Counter[str]
"""How often something was denied, by what it was."""
