"""Who a peer is: by its certificate, or by the ticket of its durable session.

*Certificates* have URIs among their names (SAN), `covey://OVERLAY/broker/NAME` for a broker and
`covey://OVERLAY/client/NAME` for a client, percent-encoded. Invariant: a connection is a neighbour's only if
`neighbour_denial` has no objection. The signature of a certificate was verified before.

*Tickets* (Liu et al., section 5.1) name the broker of a durable session, and prove that who shows one opened
the session. A broker gives a ticket in its answer to a hello; the client shows it when it comes again, at
this broker or at another. The proof is an HMAC over the client's interface, the broker and the identity of
the session, with a key that all brokers share; of several valid keys the first signs. Without a key a ticket
proves nothing.
"""

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


TICKET = "ticket"
"""Tickets that are forged, of another client or session, of a retired key, or missing."""
MAX_BYTES = 1_000


@dataclass(frozen=True, slots=True)
class Ticket:
    """The broker that had the session when it was issued, and the identity of the session."""

    broker: str
    identity: str


class Tickets:
    """Issues and reads the tickets of an overlay; `keys` may be set anew."""

    def __init__(self, overlay: str, keys: Sequence[bytes] = ()) -> None:
        self._overlay = overlay
        self.keys = tuple(keys)

    def issue(self, interface: Interface, ticket: Ticket) -> str:
        """The ticket as text."""
        body = json.dumps([ticket.broker, ticket.identity]).encode()
        proof = self._proof(self.keys[0], interface, body) if self.keys else b""
        return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (body, proof))

    def read(self, interface: Interface, text: str) -> Ticket | None:
        """What a client shows, None if nothing. `DeniedError` (UNAUTHENTICATED) if it proves nothing."""
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
