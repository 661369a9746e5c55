"""Single calls to a broker, without a session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from covey.overlay.client.errors import ConnectError
from covey.overlay.core.endpoint.errors import RefusedError
from covey.overlay.transport.address import CallError
from covey.overlay.transport.channel import Channel
from covey.overlay.transport.credentials import PLAIN, Credentials, Token, credentials
from covey.overlay.transport.packets import INSPECT, decode_inspection, encode_inspect
from covey.overlay.transport.tls import Tls

_ANSWER_WITHIN_S = 5.0


async def call_broker(
    address: str,
    method: str,
    request: bytes,
    credentials: Credentials = PLAIN,
    within_s: float = _ANSWER_WITHIN_S,
) -> bytes:
    """The reply of a broker. `ConnectError` if none answers there, `RefusedError` for an error status."""
    try:
        async with Channel(address, credentials=credentials) as channel:
            return await channel.unary(method, request, within_s)
    except CallError as error:
        if error.status in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
            raise ConnectError(str(error)) from None
        raise RefusedError(error.status, str(error)) from None


async def inspect_broker(
    address: str,
    *,
    listed: int | None = None,
    tls: Tls | str | Path | None = None,
    token: Token | None = None,
) -> tuple[str, dict[str, Any]]:
    """The state of the broker at an address: as text for people, and as plain values. `tls` and `token` as
    for `Client`.

    It has `listed` items of each list (types, clients, subscriptions and slots), 100 if it is None, 1,000 at
    most, and the numbers of those left off. `ConnectError` if none answers there.
    """
    return await inspect_as(address, credentials(tls, token), listed)


async def inspect_as(
    address: str, credentials: Credentials, listed: int | None
) -> tuple[str, dict[str, Any]]:
    """As `inspect_broker`."""
    if listed is not None and listed < 0:
        raise ValueError(f"listed is {listed}: expected 0 to 1,000")
    reply = await call_broker(address, INSPECT, encode_inspect(listed), credentials)
    text, as_json = decode_inspection(reply)
    return text, json.loads(as_json)
