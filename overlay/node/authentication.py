"""Identifies clients by token or certificate, and gives them their rights.

Tokens are JWT with an expiry and a subject. A PEM key file is a public key, JSON a set of keys (JWKS),
anything else an HMAC secret; changed files are read again. The kind of key decides the algorithms, never the
token, since a public key is no secret. No error contains a token or key.
"""

from __future__ import annotations

import json
import logging
import os
from base64 import b64decode
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from covey.matcher.errors import EventError, SubscriptionError
from covey.overlay.core.access.identity import Denials, DeniedError
from covey.overlay.core.access.rights import AUTHENTICATION, Rights, Rule, all_rights, check_name, rights_of
from covey.overlay.documents import ConfigError
from covey.overlay.transport.address import CallError
from covey.overlay.transport.calls import RpcCall
from covey.overlay.transport.rpc_server import Handler, answer_with
from covey.overlay.transport.wire_values import MalformedPacketError, UnknownTypeError

log = logging.getLogger("covey.broker")

_LEAST_SECRET_BYTES = 32
_HMAC = ("HS256", "HS384", "HS512")
_OF_KIND = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
    "oct": _HMAC,
}
_MOST_BYTES = 8_192
_MOST_KEY_BYTES = 1 << 20
_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
"""Byte order marks of UTF-8 and UTF-16."""
_OPENSSH = (b"ssh-", b"ecdsa-", b"sk-")
"""Prefixes of OpenSSH key types; options and comments may precede them."""
_LAST_S = 1 << 33
LEAST_BYTES = 32
_BEARER = b"bearer "


@dataclass(frozen=True, slots=True)
class TokenOptions:
    """`subject` names the claim of the client's name; tokens need `issuer` and `audience` unless these are
    empty."""

    key: str
    subject: str = "sub"
    issuer: str = ""
    audience: str = ""


class TokenVerifier:
    """`ConfigError`, one sentence, if the first file cannot be used."""

    def __init__(self, options: TokenOptions) -> None:
        self._options = options
        self._stamp: tuple[int, int, int] | None = None
        self._keys: list[tuple[str | None, Any, tuple[str, ...]]] = []
        self._refresh()

    def verify(self, token: str) -> dict[str, Any]:
        """The claims of a valid token; else `DeniedError` (UNAUTHENTICATED)."""
        import jwt

        self._refresh()
        if len(token) > _MOST_BYTES:
            raise _refusal(f"it has {len(token)} bytes, expected at most {_MOST_BYTES}")
        options = self._options
        try:
            head = jwt.get_unverified_header(token)
            claims: dict[str, Any] = {}
            for key, algorithms in self._candidates(head.get("kid"), head.get("alg")):
                try:
                    claims = jwt.decode(
                        token,
                        key,
                        algorithms=algorithms,
                        audience=options.audience or None,
                        issuer=options.issuer or None,
                        options={
                            "require": ["exp", options.subject],
                            "verify_aud": bool(options.audience),
                            "verify_sub": False,
                        },
                    )
                    break
                except jwt.InvalidSignatureError:
                    continue
            else:
                raise _refusal("no key of this broker has signed it")
        except jwt.ExpiredSignatureError:
            raise _refusal("it has expired") from None
        except jwt.ImmatureSignatureError:
            raise _refusal("it is not valid yet") from None
        except jwt.MissingRequiredClaimError as error:
            raise _refusal(f"it has no claim {error.claim!r}") from None
        except jwt.InvalidAudienceError:
            raise _refusal("it is for another audience") from None
        except jwt.InvalidIssuerError:
            raise _refusal("it is of another issuer") from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            raise _refusal("it is no JWT that this broker accepts") from None
        end = claims["exp"]
        if isinstance(end, bool) or not isinstance(end, int | float) or not 0 < end < _LAST_S:
            raise _refusal("its claim 'exp' is no time in seconds")
        subject = claims.get(options.subject)
        if not isinstance(subject, str) or not subject.isprintable() or not 0 < len(subject) <= 100:
            raise _refusal(f"its claim {options.subject!r} is no name of 1 to 100 printable characters")
        return claims

    def subject(self, claims: dict[str, Any]) -> str:
        return str(claims[self._options.subject])

    def _candidates(self, key_id: object, algorithm: object) -> list[tuple[Any, list[str]]]:
        """The key with this id, else all keys of the algorithm."""
        fitting = [(name, key, found) for name, key, found in self._keys if algorithm in found]
        named = [each for each in fitting if key_id is not None and each[0] == key_id]
        return [(key, list(found)) for _, key, found in named or fitting]

    def _refresh(self) -> None:
        path = Path(self._options.key)
        try:
            status = os.stat(path)
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp == self._stamp:
                return
            keys = _read_keys(path)
        except OSError as error:
            if self._stamp is None:
                raise ConfigError(f"clients.tokens.key {path} cannot be read: {error.strerror}") from None
            return  # it is being replaced
        except ConfigError as error:
            if self._stamp is None:
                raise
            self._stamp = stamp
            log.warning("%s: the keys read before stay in use", error)
            return
        if self._stamp is not None:
            log.info("read the changed key of tokens, %s", path)
        self._stamp, self._keys = stamp, keys


def _refusal(why: str) -> DeniedError:
    return DeniedError("UNAUTHENTICATED", f"the token is refused: {why}")


def _read_keys(path: Path) -> list[tuple[str | None, Any, tuple[str, ...]]]:
    try:
        import jwt
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ModuleNotFoundError as error:
        raise ConfigError(f"clients.tokens needs {error.name}: `pip install 'covey[security]'`") from None

    with path.open("rb") as file:
        content = file.read(_MOST_KEY_BYTES + 1)
    if len(content) > _MOST_KEY_BYTES:
        raise ConfigError(f"clients.tokens.key {path} has more than {_MOST_KEY_BYTES:,} bytes")
    for mark in _MARKS:
        content = content.removeprefix(mark)
    if b"PRIVATE KEY-----" in content:
        raise ConfigError(f"clients.tokens.key {path} is a private key: expected its public key")
    text = content.replace(b"\0", b"")  # also of UTF-16
    if b"---- BEGIN" in text or b"-----BEGIN" in text:
        try:
            public = load_pem_public_key(content)
        except (ValueError, UnsupportedAlgorithm):
            public = None
        kinds = {rsa.RSAPublicKey: "RSA", ec.EllipticCurvePublicKey: "EC"}
        kinds |= {ed25519.Ed25519PublicKey: "OKP", ed448.Ed448PublicKey: "OKP"}
        kind = next((kind for of, kind in kinds.items() if isinstance(public, of)), None)
        if kind is None:
            raise ConfigError(f"clients.tokens.key {path} is no PEM file of a public key")
        return [(None, public, _OF_KIND[kind])]
    if text.lstrip().startswith((b"{", b"[")):
        try:
            keys = jwt.PyJWKSet.from_dict(json.loads(content)).keys
        except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError, RuntimeError):
            keys = []  # RuntimeError: nested too deeply, or with the algorithm "none"
        if not keys:
            raise ConfigError(f"clients.tokens.key {path} is no set of keys (JWKS)")
        if any(isinstance(key.key, bytes) and len(key.key) < _LEAST_SECRET_BYTES for key in keys):
            least = _LEAST_SECRET_BYTES
            raise ConfigError(f"clients.tokens.key {path} has a secret of less than {least} bytes")
        return [(key.key_id, key.key, _OF_KIND.get(key.key_type or "", ())) for key in keys]
    if _is_public(content):
        raise ConfigError(f"clients.tokens.key {path} is no secret: expected PEM for a public key")
    secret = content.strip()
    if len(secret) < _LEAST_SECRET_BYTES:
        raise ConfigError(
            f"clients.tokens.key {path} is a secret of {len(secret)} bytes: expected "
            f"{_LEAST_SECRET_BYTES} or more, or a public key"
        )
    return [(None, secret, _HMAC)]


def _is_public(content: bytes) -> bool:
    """Whether it is a public key or certificate in DER, bare base64 or OpenSSH form. As an HMAC secret, it
    would let anybody sign."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_public_key, load_ssh_public_key
    from cryptography.x509 import load_der_x509_certificate

    text = content.replace(b"\0", b"")
    words = text.split()
    base64 = b"".join(words).translate(bytes.maketrans(b"-_", b"+/")).rstrip(b"=")
    forms = [content, *(content.removesuffix(end) for end in (b"\n", b"\r\n"))]  # as editors end lines
    forms += [b" ".join(words[at : at + 2]) for at, word in enumerate(words) if word.startswith(_OPENSSH)]
    with suppress(ValueError):
        forms.append(b64decode(base64 + b"=" * (-len(base64) % 4), validate=True))
    for form in forms:
        for load in (load_der_public_key, load_ssh_public_key, load_der_x509_certificate):
            try:
                load(form)
            except (ValueError, UnsupportedAlgorithm):
                continue
            return True
    return False


def read_ticket_keys(paths: Sequence[str]) -> tuple[bytes, ...]:
    """White space around text is ignored. `ConfigError`, one sentence, for an unusable file."""
    keys = []
    for path in paths:
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise ConfigError(f"tickets: {path} cannot be read: {error.strerror}") from None
        key = content.strip() if content.isascii() else content
        if len(key) < LEAST_BYTES:
            raise ConfigError(
                f"tickets: {path} has a key of {len(key)} bytes: expected at least {LEAST_BYTES}"
            )
        keys.append(key)
    return tuple(keys)


@dataclass(frozen=True, slots=True)
class ClientRules:
    """How clients are identified, besides certificates. The first `rules` that apply count together."""

    tokens: TokenOptions | None = None
    rules: tuple[Rule, ...] = ()


class Authentication:
    """Of one broker; without `ClientRules` every client has all rights. `ConfigError` for an unusable key."""

    def __init__(self, overlay: str, clients: ClientRules | None, denials: Denials) -> None:
        self._overlay = overlay
        self._denials = denials
        self.set_clients(clients)

    def set_clients(self, clients: ClientRules | None) -> None:
        """`ConfigError`, without a change, for an unusable key."""
        tokens = None if clients is None else clients.tokens
        self._verifier = None if tokens is None else TokenVerifier(tokens)
        self._clients = clients

    @property
    def open(self) -> bool:
        return self._clients is None

    def rights(self, call: RpcCall, name: str | None = None) -> Rights | None:
        """A client's rights, None for all; `name` is its session's. `CallError`: UNAUTHENTICATED, or
        PERMISSION_DENIED for the name of another client."""
        if self._clients is None:
            return None
        try:
            rights = self._rights(call, self._clients)
            if name is not None:
                check_name(name, rights.subject)
        except DeniedError as error:
            self._denials[AUTHENTICATION] += 1
            raise CallError(error.status, str(error)) from None
        return rights

    def _rights(self, call: RpcCall, clients: ClientRules) -> Rights:
        if call.authorization:
            value = bytes(call.authorization)
            if self._verifier is None or not value.lower().startswith(_BEARER):
                raise DeniedError("UNAUTHENTICATED", "the metadata authorization is not accepted here")
            claims = self._verifier.verify(value[len(_BEARER) :].decode("latin-1").strip())
            subject = self._verifier.subject(claims)
            return rights_of(subject, claims, clients.rules, int(claims["exp"] * 1e9))
        certified = call.certified
        if certified is not None:
            broker = certified.broker(self._overlay)
            if broker is not None:
                return all_rights(broker)
            client = certified.client(self._overlay)
            if client is not None:
                return rights_of(client, {}, clients.rules, certified.expires_ns)
        expected = "a client's certificate" if self._verifier is None else "a token or a client's certificate"
        raise DeniedError("UNAUTHENTICATED", f"expected {expected}")

    def answer_with(self, answer: Callable[[bytes, Rights | None], bytes | Awaitable[bytes]]) -> Handler:
        """A handler for one request and reply. Errors of `answer` about a request become a status."""

        async def handle(call: RpcCall) -> None:
            rights = self.rights(call)
            call.trust()
            try:
                await answer_with(lambda request: answer(request, rights))(call)
            except DeniedError as error:
                raise CallError(error.status, str(error)) from None
            except (SubscriptionError, UnknownTypeError) as error:
                raise CallError("NOT_FOUND", str(error)) from None
            except (MalformedPacketError, EventError) as error:
                raise CallError("INVALID_ARGUMENT", str(error)) from None
            except ConfigError as error:
                raise CallError("FAILED_PRECONDITION", str(error)) from None

        return handle
