"""TLS between a transport and a connection, without I/O: `ssl.SSLObject` over two buffers in memory.

Bytes of the transport go in, those of the connection come out, and the other way. A failure is one sentence
about the peer or this side's certificate; what is in `take_output` then is the alert for the peer.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Any

from covey.overlay.core.access.identity import Certified

_READ_BYTES = 256 << 10
_EXPIRED, _NOT_YET, _HOST_MISMATCH, _IP_MISMATCH, _PURPOSE = 10, 9, 62, 64, 26
_UNTRUSTED = (2, 18, 19, 20, 21)
_VERIFIED = {
    _EXPIRED: "the peer's certificate has expired",
    _NOT_YET: "the peer's certificate is not valid yet",
    _PURPOSE: "the peer's certificate is not for this use (extended key usage)",
}
_ALERTS = {
    "UNKNOWN_CA": "it is not signed by the peer's authority",
    "CERTIFICATE_EXPIRED": "it has expired",
    "CERTIFICATE_REVOKED": "it was revoked",
    "BAD_CERTIFICATE": "it is malformed or not valid yet",
    "UNSUPPORTED_CERTIFICATE": "it is not for this use (extended key usage)",
    "CERTIFICATE_REQUIRED": "there is none",
    "CERTIFICATE_UNKNOWN": "it is unacceptable",
}
_PLAIN = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
_ALERT = b"\x15\x03"
"""How a TLS alert begins."""
_PROTOCOL_VERSION = b"\x15\x03\x01\x00\x02\x02\x46"
NOT_TLS = "the peer does not speak TLS"
EXPECTS_TLS = "it expects TLS: give its authority"


def is_alert(data: bytes) -> bool:
    """Whether a peer that was sent plain text answers with an alert of TLS."""
    return data.startswith(_ALERT)


class TlsLayer:
    """One end. `certified` is what the peer's verified certificate says, once `established`."""

    def __init__(self, context: ssl.SSLContext, *, server: bool, host: str | None = None) -> None:
        self._arrived, self._output = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._arrived, self._output, server_side=server, server_hostname=host)
        self._host = host
        self.established = False
        self.ended = False
        self.failure = ""
        self.certified: Certified | None = None

    def start(self) -> None:
        """A client begins."""
        self._handshake()

    def receive(self, data: bytes) -> bytes:
        """What some bytes of the transport contain for the connection."""
        if self.failure or self.ended:
            return b""
        self._arrived.write(data)
        if not self.established:
            self._handshake()
        pieces: list[bytes] = []
        while self.established and not self.ended and not self.failure:
            try:
                piece = self._ssl.read(_READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                self.ended = True
                break
            except ssl.SSLError as error:
                self._fail(error)
                break
            self.ended = not piece
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def send(self, data: bytes) -> None:
        """Encrypt bytes of the connection, once established."""
        if not self.failure:
            self._ssl.write(data)

    def take_output(self) -> bytes:
        """Bytes for the transport."""
        return self._output.read()

    def end(self) -> None:
        """Tell the peer that no more bytes come."""
        if self.established and not self.failure:
            with suppress(ssl.SSLError):  # it waits for the peer's own end
                self._ssl.unwrap()

    def _handshake(self) -> None:
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            self._fail(error)
            return
        if self._ssl.selected_alpn_protocol() != "h2":
            self.failure = "the peer does not speak HTTP/2 over TLS (ALPN h2)"
            return
        self.established = True
        self.certified = _certified(self._ssl.getpeercert())

    def _fail(self, error: ssl.SSLError) -> None:
        self.failure = self._sentence(error)
        if self.failure == NOT_TLS and not self._output.pending:
            self._output.write(_PROTOCOL_VERSION)  # OpenSSL has nothing to say to a peer in plain text

    def _sentence(self, error: ssl.SSLError) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            code = error.verify_code
            if code in _UNTRUSTED:
                return "the peer's certificate is not signed by the authority"
            if code in (_HOST_MISMATCH, _IP_MISMATCH):
                return f"the peer's certificate is not for {self._host}"
            return _VERIFIED.get(code, f"the peer's certificate is not valid: {error.verify_message}")
        reason = error.reason or "unknown reason"
        if "_ALERT_" in reason:
            alert = reason.partition("_ALERT_")[2]
            if alert in _ALERTS:
                return f"the peer refuses this side's certificate: {_ALERTS[alert]}"
            return f"the peer ended the TLS handshake: {alert.lower().replace('_', ' ')}"
        if reason in _PLAIN:
            return NOT_TLS
        return f"TLS failed: {reason.lower().replace('_', ' ')}"


def _certified(certificate: dict[str, Any] | None) -> Certified | None:
    if not certificate:
        return None
    uris = frozenset(name for kind, name in certificate.get("subjectAltName", ()) if kind == "URI")
    return Certified(uris, int(ssl.cert_time_to_seconds(certificate["notAfter"]) * 1e9))
