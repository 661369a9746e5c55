"""Who a peer is: by its certificate, or by the ticket of its durable session.

*Certificates*, already verified, have URIs among their names (SAN): `covey://OVERLAY/broker/NAME` or
`covey://OVERLAY/client/NAME`, percent-encoded. Invariant: a connection is a neighbour's only if
`neighbour_denial` has no objection.

*Tickets* (Liu et al., section 5.1) name the broker of a durable session, and prove that their holder opened
it. A broker issues one in its answer to a hello. The proof is an HMAC over the client's interface, the broker
and the session's identity, with a key that all brokers share; the first of several valid keys signs. Without
a key a ticket proves nothing."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from covey.overlay.core.messages import Interface

NEIGHBOUR = "neighbour"
"""A peer that claims to be a neighbour, without a certificate that names it."""
HANDSHAKE = "handshake"


class DeniedError(Exception):
    """`status` is the name of a gRPC status."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class Certified:
    """The URIs of a verified certificate; `expires_ns` is since the epoch."""

    uris: frozenset[str]
    expires_ns: int

    def client(self, overlay: str) -> str | None:
        """The name of the one client of the overlay in its URIs, None for no client or several."""
        return self._only(f"covey://{quote(overlay, safe='')}/client/")

    def any_client(self) -> str | None:
        """As `client`, of any overlay."""
        parts = [uri.removeprefix("covey://").split("/") for uri in self.uris if uri.startswith("covey://")]
        names = [unquote(each[2]) for each in parts if len(each) == 3 and each[1] == "client"]
        return names[0] if len(names) == 1 else None

    def broker(self, overlay: str) -> str | None:
        """The name of the one broker of the overlay in its URIs, None for no broker or several."""
        return self._only(f"covey://{quote(overlay, safe='')}/broker/")

    def _only(self, prefix: str) -> str | None:
        names = [unquote(uri.removeprefix(prefix)) for uri in self.uris if uri.startswith(prefix)]
        return names[0] if len(names) == 1 else None


def broker_uri(overlay: str, broker: str) -> str:
    return f"covey://{quote(overlay, safe='')}/broker/{quote(broker, safe='')}"


def client_uri(overlay: str, client: str) -> str:
    return f"covey://{quote(overlay, safe='')}/client/{quote(client, safe='')}"


def file_name(broker: str) -> str:
    """The broker's name without slashes and "..", for use as a file name."""
    return quote(broker, safe=" ").replace("..", "%2E%2E")


def neighbour_denial(overlay: str, broker: str, certified: Certified | None) -> DeniedError | None:
    """Why a peer that claims to be this broker is refused; None if its certificate names it."""
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
"""The number of denials by kind."""


TICKET = "ticket"
"""Tickets that are forged, of another client or session, of a retired key, or missing."""
MAX_BYTES = 1_000


@dataclass(frozen=True, slots=True)
class Ticket:
    """The broker that issued it, and the identity of the session."""

    broker: str
    identity: str


class Tickets:
    def __init__(self, overlay: str, keys: Sequence[bytes] = ()) -> None:
        self._overlay = overlay
        self.keys = tuple(keys)

    def issue(self, interface: Interface, ticket: Ticket) -> str:
        body = json.dumps([ticket.broker, ticket.identity]).encode()
        proof = self._proof(self.keys[0], interface, body) if self.keys else b""
        return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (body, proof))

    def read(self, interface: Interface, text: str) -> Ticket | None:
        """The client's ticket, None for "". `DeniedError` (UNAUTHENTICATED) if malformed or unproven."""
        if not text:
            return None
        try:
            if len(text) > MAX_BYTES:
                raise ValueError(text[:20])
            body, proof = (base64.urlsafe_b64decode(f"{part}==") for part in text.split("."))
            broker, identity = json.loads(body)
            if not (isinstance(broker, str) and isinstance(identity, str)):
                raise TypeError(identity)
            if not (broker.isprintable() and identity.isprintable()):  # they go into messages and logs
                raise ValueError(identity)
        except (ValueError, TypeError, binascii.Error, RecursionError):
            raise DeniedError("UNAUTHENTICATED", f"the ticket of {interface} is none") from None
        proofs = [self._proof(key, interface, body) for key in self.keys]
        if proofs and not any(hmac.compare_digest(proof, each) for each in proofs):
            reason = f"the ticket of {interface} is refused: no key of this overlay has signed it for it"
            raise DeniedError("UNAUTHENTICATED", reason)
        return Ticket(broker, identity)

    def _proof(self, key: bytes, interface: Interface, body: bytes) -> bytes:
        signed = json.dumps([self._overlay, interface]).encode() + body
        return hmac.digest(key, signed, "sha256")
