"""Tickets of durable sessions (Liu et al., section 5.1): at which broker a session is, and a proof that who
shows it opened the session.

A broker gives a ticket in its answer to a client's hello; the client shows it when it comes again, at this
broker or at another. The proof is an HMAC over the client's interface, the broker and the identity of the
session, with a key that all brokers of an overlay share. Several keys may be valid at a time: the first
signs. Without a key a ticket proves nothing.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass

from covey.overlay.core.access.identity import DeniedError
from covey.overlay.core.messages import Interface

TICKET = "ticket"
"""Tickets that are forged, of another client or session, of a retired key, or missing."""
MAX_BYTES = 1_000


@dataclass(frozen=True, slots=True)
class Ticket:
    """The broker that had the session when it was issued, and the identity of the session."""

    broker: str
    identity: str


class Tickets:
    """Those of one overlay; `keys` may be set anew."""

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
