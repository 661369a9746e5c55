"""Proof of identity for a new connection: TLS and a token. Secrets are in no `repr` and no error."""

from __future__ import annotations

import inspect
import json
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from covey.overlay.core.access.rights import owner_named
from covey.overlay.transport.address import CallError, TcpAddress, UnixAddress, is_local
from covey.overlay.transport.tls import Tls, TlsContexts, TlsError, TlsLayer, certified

Token = str | Callable[[], str | Awaitable[str]]
"""A bearer token, or a function that returns one, called before each connection."""
_MOST_TOKEN_BYTES = 8_192


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A token file, read before each connection."""

    path: str | Path

    def __call__(self) -> str:
        """`CallError` if the file cannot be read."""
        try:
            return Path(self.path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise CallError("UNAUTHENTICATED", f"{self.path}: cannot be read: {reason}") from None


@dataclass(frozen=True, slots=True)
class Credentials:
    """`check_host` is off for brokers, which verify names themselves. A Unix socket has no TLS: the
    permissions of its file control access."""

    tls: TlsContexts | None = None
    token: Token | None = field(default=None, repr=False)
    check_host: bool = True

    def layer(self, address: TcpAddress | UnixAddress) -> TlsLayer | None:
        """TLS for a new connection; `TlsError` for unusable files."""
        if self.tls is None or isinstance(address, UnixAddress):
            return None
        context = self.tls.client(check_host=self.check_host)
        return TlsLayer(context, server=False, host=address.host if self.check_host else None)

    @property
    def renews(self) -> bool:
        """Whether the next connection may have another token."""
        return callable(self.token)

    async def owner(self) -> str | None:
        """The owner of this client's names (`core/access/rights.py`), from an unverified JWT or the
        certificate."""
        subject = None
        if self.token is not None:
            try:
                claims = (await self._token()).split(".")[1]
                padded = claims + "=" * (-len(claims) % 4)
                subject = json.loads(urlsafe_b64decode(padded)).get("sub")
            except (CallError, ValueError, IndexError, AttributeError):
                return None
        elif self.tls is not None and self.tls.tls.certificate is not None:
            try:
                subject = certified(self.tls.tls).any_client()
            except TlsError:
                return None  # which the connection tells
        return owner_named(subject) if isinstance(subject, str) and subject else None

    async def authorization(self, address: TcpAddress | UnixAddress) -> bytes:
        """Empty without a token. `CallError` for one that is no text, or would cross a network in the
        clear."""
        if self.token is None:
            return b""
        if self.tls is None and not is_local(address):
            raise CallError(
                "FAILED_PRECONDITION", "a token beyond this machine without TLS: expected tls=, the authority"
            )
        return b"Bearer " + (await self._token()).encode()

    async def _token(self) -> str:
        assert self.token is not None
        try:
            token = self.token if isinstance(self.token, str) else self.token()
            if inspect.isawaitable(token):
                token = await token
        except CallError:
            raise
        except Exception as error:  # where it comes from may be away, as a broker may be
            raise CallError("UNAVAILABLE", f"there is no token: {error!r}") from error
        if not isinstance(token, str) or not token.strip().isascii() or not token.strip().isprintable():
            raise CallError("UNAUTHENTICATED", "the token is no printable ASCII text")
        if not token.strip():
            raise CallError("UNAUTHENTICATED", "the token is empty")
        if len(token) > _MOST_TOKEN_BYTES:  # over the bound of a header block the broker ends the connection
            reason = f"the token has {len(token)} bytes: expected at most {_MOST_TOKEN_BYTES}"
            raise CallError("UNAUTHENTICATED", reason)
        return token.strip()


PLAIN = Credentials()


def credentials(tls: Tls | str | Path | None, token: Token | None) -> Credentials:
    """`tls` may be the authority's path alone. `TlsError` for another type."""
    if tls is not None and not isinstance(tls, Tls):
        tls = Tls(tls)
    if token is not None and not isinstance(token, str) and not callable(token):
        raise TypeError(f"token is a {type(token).__name__}: expected text, or a function that returns it")
    return Credentials(None if tls is None else TlsContexts(tls), token)
