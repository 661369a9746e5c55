"""Single calls to a broker, without a session."""

from __future__ import annotations

import json
from typing import Any

import grpc
import grpc.aio

from covey.overlay.client.errors import ConnectError, RefusedError
from covey.overlay.transport.calls import decode_inspection, encode_inspect
from covey.overlay.transport.channel import INSPECT, open_channel, reason_of

_ANSWER_WITHIN_S = 5.0


async def call_broker(address: str, method: str, request: bytes) -> bytes:
    """The reply of a broker. `ConnectError` if none answers there, `RefusedError` for an error status."""
    async with open_channel(address) as channel:
        try:
            reply: bytes = await channel.unary_unary(method)(request, timeout=_ANSWER_WITHIN_S)
        except grpc.aio.AioRpcError as error:
            reason = reason_of(error, address)
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise ConnectError(reason) from None
            raise RefusedError(error.code().name, reason) from None
    return reply


async def inspect_broker(address: str, *, listed: int | None = None) -> tuple[str, dict[str, Any]]:
    """The state of the broker at an address: as text for people, and as plain values.

    It lists `listed` subscriptions and slots of each event type, all if it is None; a hundred thousand take
    the broker seconds. `ConnectError` if none answers there.
    """
    text, as_json = decode_inspection(await call_broker(address, INSPECT, encode_inspect(listed)))
    return text, json.loads(as_json)
