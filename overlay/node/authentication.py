"""Who a client is, by the token or the certificate that its call comes with, and so what it may do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from covey.overlay.core.access.identity import Denials, DeniedError
from covey.overlay.core.access.rights import (
    AUTHENTICATION,
    Rights,
    Rule,
    all_rights,
    check_name,
    rights_of,
)
from covey.overlay.node.token_verifier import TokenOptions, TokenVerifier
from covey.overlay.transport.address import CallError
from covey.overlay.transport.rpc_call import RpcCall
from covey.overlay.transport.rpc_server import Handler, answer_with

_BEARER = b"bearer "


@dataclass(frozen=True, slots=True)
class ClientRules:
    """How clients are recognised, besides certificates, and what they may do. The first rules that apply
    count together.
    """

    tokens: TokenOptions | None = None
    rules: tuple[Rule, ...] = ()


class Authentication:
    """Of one broker; without `ClientRules` every client may do everything. `TokenKeyError` for a key that
    cannot be used.
    """

    def __init__(self, overlay: str, clients: ClientRules | None, denials: Denials) -> None:
        self._overlay = overlay
        self._denials = denials
        self.set_clients(clients)

    def set_clients(self, clients: ClientRules | None) -> None:
        """From now on other rules. `TokenKeyError`, and no change, for a key that cannot be used."""
        tokens = None if clients is None else clients.tokens
        self._verifier = None if tokens is None else TokenVerifier(tokens)
        self._clients = clients

    @property
    def open(self) -> bool:
        """Whether every client may do everything."""
        return self._clients is None

    def rights(self, call: RpcCall, name: str | None = None) -> Rights | None:
        """What the client of a call may do, None for everything; with its `name` for a session. `CallError`
        (UNAUTHENTICATED, or PERMISSION_DENIED for a name that is another's).
        """
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
        """A handler of calls with one request and one reply, which depends on the client's rights."""

        async def handle(call: RpcCall) -> None:
            rights = self.rights(call)
            call.trust()
            try:
                await answer_with(lambda request: answer(request, rights))(call)
            except DeniedError as error:
                raise CallError(error.status, str(error)) from None

        return handle
