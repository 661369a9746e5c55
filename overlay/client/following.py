"""Follows one event through an overlay, broker by broker.

Each broker reports what its ring of recent events has of the event (RPC Follow): where it came from, went,
and was delivered. A broker that does not answer ends its branch, and its step says so.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from covey.overlay.client.errors import ConnectError
from covey.overlay.client.unary import call_broker
from covey.overlay.core.endpoint.errors import RefusedError
from covey.overlay.transport.credentials import PLAIN, Credentials
from covey.overlay.transport.packets import FOLLOW, decode_explanation, encode_follow

Step = dict[str, Any]


async def follow(
    address: str,
    type_name: str,
    publisher: str,
    sequence: int,
    credentials: Credentials = PLAIN,
    *,
    seconds: float = 2.0,
) -> AsyncIterator[Step]:
    """What each broker did with an event, from the broker at `address` on, while the event travels.

    A broker that the event was sent to is polled until it has the event, for at most `seconds`; then `seen`
    of its step is false. `error` is why a broker does not answer; for the first broker that is raised, as
    `ConnectError` or `RefusedError`.
    """
    request = encode_follow(type_name, publisher, sequence)
    loop = asyncio.get_running_loop()
    todo = [("", address)]
    while todo:
        name, where = todo.pop(0)
        deadline = loop.time() + seconds
        while True:
            try:
                reply = await call_broker(where, FOLLOW, request, credentials)
                step: Step = json.loads(decode_explanation(reply))
            except (ConnectError, RefusedError) as error:
                if not name:
                    raise
                step = {"broker": name, "seen": False, "error": str(error)}
                break
            if step["seen"] or loop.time() > deadline:
                break
            await asyncio.sleep(0.02)
        yield step
        if step["seen"]:
            todo += [(name, step["neighbours"][name]["address"]) for name in step["links"]]
