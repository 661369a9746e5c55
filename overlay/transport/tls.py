"""TLS without I/O (`TlsLayer`), and contexts made of files.

TLS 1.2 or newer, ALPN h2, without session resumption. A server accepts a missing certificate, but none that
the authority has not signed. Changed files are read again; if unusable, or if peers would refuse them, the
old contexts stay.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from covey.overlay.core.access.identity import Certified, broker_uri, neighbour_denial

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
_PROTOCOL_VERSION = b"\x15\x03\x01\x00\x02\x02\x46"
NOT_TLS = "the peer does not speak TLS"
EXPECTS_TLS = "it expects TLS: give its authority"
log = logging.getLogger("covey.tls")
RETRY_S = 60.0
"""When to retry unusable files: a certificate may have become valid."""
_Stamp = tuple[tuple[int, int, int], ...]


def is_alert(data: bytes) -> bool:
    """Whether a peer answers plain text with a TLS alert."""
    return data.startswith(_ALERT)


class TlsLayer:
    """Decrypts bytes of the transport, encrypts bytes of the connection. `certified` is the content of the
    peer's verified certificate, once `established`. After a `failure`, one sentence, `take_output` has the
    alert."""

    def __init__(self, context: ssl.SSLContext, *, server: bool, host: str | None = None) -> None:
        self._arrived, self._output = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._arrived, self._output, server_side=server, server_hostname=host)
        self._host = host
        self.established = False
        self.ended = False
        self.failure = ""
        self.certified: Certified | None = None

    def start(self) -> None:
        self._handshake()

    def receive(self, data: bytes) -> bytes:
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
        """Only once `established`."""
        if not self.failure:
            self._ssl.write(data)

    def take_output(self) -> bytes:
        return self._output.read()

    def end(self) -> None:
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


class TlsError(ValueError):
    """A file of TLS is missing, or is not what it should be."""


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: the `authority` that verifies peers, and this side's `certificate` (followed by intermediate
    ones) and `key`, which a client may omit together. `TlsError` for other values."""

    authority: str | Path
    certificate: str | Path | None = None
    key: str | Path | None = None

    def __post_init__(self) -> None:
        for field, path in (
            ("authority", self.authority),
            ("certificate", self.certificate),
            ("key", self.key),
        ):
            if not isinstance(path, str | Path) and not (field != "authority" and path is None):
                raise TlsError(f"tls: {field} is {path!r}: expected the path of a PEM file")
        if (self.certificate is None) is not (self.key is None):
            present, absent = ("key", "certificate") if self.certificate is None else ("certificate", "key")
            raise TlsError(f"tls: {present} without {absent}: expected both or neither")

    @property
    def paths(self) -> list[tuple[str, Path]]:
        fields = (("authority", self.authority), ("certificate", self.certificate), ("key", self.key))
        return [(field, Path(path)) for field, path in fields if path is not None]


class TlsContexts:
    """`TlsError`, one sentence, if the first files cannot be used. `check` raises it for unusable changed
    ones."""

    def __init__(self, tls: Tls, check: Callable[[Tls], object] = lambda _: None) -> None:
        self.tls = tls
        self._check = check
        self._retry_s = 0.0
        self._stamp: _Stamp | None = None
        self._failed: _Stamp | None = None
        self._server: ssl.SSLContext | None = None
        self._client: ssl.SSLContext | None = None
        self._by_name: ssl.SSLContext | None = None

    def server(self) -> ssl.SSLContext:
        """Needs certificate and key."""
        self._refresh()
        assert self._server is not None
        return self._server

    def client(self, *, check_host: bool = True) -> ssl.SSLContext:
        """Without `check_host` the caller verifies the peer's name."""
        self._refresh()
        context = self._by_name if check_host else self._client
        assert context is not None
        return context

    def _refresh(self) -> None:
        try:
            stamp = _stamp(self.tls)
            if stamp == self._stamp or (stamp == self._failed and time.monotonic() < self._retry_s):
                return
        except TlsError:
            if self._stamp is None:
                raise
            return  # a file is being replaced
        try:
            server = _context(self.tls, server=True) if self.tls.certificate is not None else None
            client = _context(self.tls, server=False)
            by_name = _context(self.tls, server=False)
            if self._stamp is not None:
                self._check(self.tls)
        except TlsError as error:
            if self._stamp is None:
                raise
            if stamp != self._failed:
                log.warning("%s: the files read before stay in use", error)
            self._failed, self._retry_s = stamp, time.monotonic() + RETRY_S
            return
        by_name.check_hostname = True
        if self._stamp is not None:
            log.info("read the changed files of TLS, %s", ", ".join(str(path) for _, path in self.tls.paths))
        self._server, self._client, self._by_name = server, client, by_name
        self._stamp, self._failed = stamp, None


def certified(tls: Tls) -> Certified:
    """This side's certificate, verified by its authority in a handshake in memory. `TlsError`, one sentence,
    if refused."""
    if tls.certificate is None:
        raise TlsError("tls: no certificate: expected one with its key")
    server, client = _context(tls, server=True), _context(tls, server=False)
    server.verify_mode = ssl.CERT_REQUIRED
    client.verify_mode = ssl.CERT_NONE
    ends = _handshake(client, server)
    own = ends[1]
    if own.failure or own.certified is None:
        reason = own.failure.removeprefix("the peer's certificate ") or "cannot be used"
        raise TlsError(
            f"certificate {tls.certificate} {reason}: expected one that {tls.authority} has signed and "
            "that is valid now"
        )
    return own.certified


def is_for(tls: Tls, host: str) -> bool:
    """Whether clients that dial `host` accept the certificate, which `certified` has accepted."""
    server, client = _context(tls, server=True), _context(tls, server=False)
    client.check_hostname = True
    return not _handshake(client, server, host)[0].failure


def _handshake(
    client: ssl.SSLContext, server: ssl.SSLContext, host: str | None = None
) -> tuple[TlsLayer, TlsLayer]:
    ends = (TlsLayer(client, server=False, host=host), TlsLayer(server, server=True))
    ends[0].start()
    for turn in range(6):
        sender, receiver = ends[turn % 2], ends[(turn + 1) % 2]
        receiver.receive(sender.take_output())
    return ends


def check_broker(tls: Tls, overlay: str, broker: str) -> None:
    """`TlsError` unless neighbours accept the certificate: signed, valid now, with its key and the broker's
    name."""
    if neighbour_denial(overlay, broker, certified(tls)) is not None:
        raise TlsError(
            f"certificate {tls.certificate} does not name broker {broker}: expected "
            f"{broker_uri(overlay, broker)} among its names (SAN)"
        )


def _stamp(tls: Tls) -> _Stamp:
    stamps = []
    for field, path in tls.paths:
        try:
            status = os.stat(path)
        except OSError as error:
            raise TlsError(f"tls: {field} {path} cannot be read: {error.strerror}") from None
        stamps.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(stamps)


def _context(tls: Tls, *, server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.set_alpn_protocols(["h2"])
    context.check_hostname = False
    context.verify_mode = ssl.CERT_OPTIONAL if server else ssl.CERT_REQUIRED
    if server:
        context.num_tickets = 0
    load_files(context, dict(tls.paths))
    return context


def load_files(context: ssl.SSLContext, files: Mapping[str, Path]) -> None:
    """Load PEM files by fields of `Tls`; without `key`, the certificate's file has it. `TlsError` names the
    file."""
    for field, path in files.items():
        try:
            path.read_bytes()
        except OSError as error:
            raise TlsError(f"tls: {field} {path} cannot be read: {error.strerror}") from None
    if "authority" in files:
        try:
            context.load_verify_locations(files["authority"])
        except ssl.SSLError:
            raise TlsError(f"tls: authority {files['authority']} is no PEM file with certificates") from None
        except OSError as error:  # it has changed since it was read
            raise TlsError(f"tls: authority {files['authority']} cannot be read: {error.strerror}") from None
    if "certificate" in files:
        certificate = files["certificate"]
        key = files.get("key", certificate)
        try:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(certificate, key, password=lambda: "")
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise TlsError(f"tls: key {key} does not fit certificate {certificate}") from None
            raise TlsError(
                f"tls: certificate {certificate} and key {key} cannot be used: expected PEM files, "
                "the key without a passphrase"
            ) from None
        except OSError as error:
            raise TlsError(
                f"tls: certificate {certificate} and key {key} cannot be read: {error.strerror}"
            ) from None
