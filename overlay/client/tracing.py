"""Walks over an overlay: why an event would or would not reach a subscription, and where one went.

Each broker says what it knows and where its neighbours are (`core/explaining.py`); the walk goes from the
subscription over the slots to the publishers, or with an event from broker to broker. Brokers that do not
answer end a branch and are said to.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from covey.overlay.client.errors import ConnectError, RefusedError
from covey.overlay.client.unary import call_broker
from covey.overlay.transport.calls import decode_explanation, encode_explain, encode_follow
from covey.overlay.transport.channel import EXPLAIN, FOLLOW

Step = dict[str, Any]


async def explain(
    address: str, client: str, subscription_id: int, event: Mapping[str, object]
) -> tuple[list[Step], list[str]]:
    """What each broker says, from the subscription to the publishers, and what it comes to, one sentence for
    each place where events enter or the way ends.

    `RefusedError` (NOT_FOUND) if the broker at `address` has no such client or subscription, or
    INVALID_ARGUMENT for an event that does not fit its type; `ConnectError` if it does not answer.
    """
    text = json.dumps(event)
    steps: list[Step] = []
    verdicts: list[str] = []
    todo: list[tuple[str, str, int, list[str]]] = [(address, f"client/{client}", subscription_id, [])]
    while todo:
        where, interface, number, stops = todo.pop(0)
        try:
            step = json.loads(
                decode_explanation(await call_broker(where, EXPLAIN, encode_explain(interface, number, text)))
            )
        except (ConnectError, RefusedError) as error:
            if not steps:
                raise
            verdicts.append(f"beyond {interface.removeprefix('broker/')}: {error}")
            continue
        steps.append(step)
        # What is nearest to the publisher stops the event first.
        stops = [*_stops(step), *stops]
        for publisher in step["publishers"]:
            stop = stops[0] if stops else "it is delivered"
            if publisher in step["outside"]:
                stop = f"it is refused at {step['broker']}: outside of {step['promises'][publisher]}"
            verdicts.append(f"from {publisher.removeprefix('client/')} at {step['broker']}: {stop}")
        for way in step["upstream"]:
            name, place = way["neighbour"], step["neighbours"][way["neighbour"]]
            if way["slot"] is None:
                why = f"{name} promises {way['promised']}" if way["promised"] else "it is not asked for"
                verdicts.append(
                    f"from beyond {name}: it stops there, {step['broker']} asks for nothing, {why}"
                )
                continue
            late = (
                [] if place["connected"] else [f"it waits at {name}: the link to {step['broker']} is broken"]
            )
            if not way["acknowledged"]:
                slot = f"slot {way['slot']} (epoch {way['epoch']})"
                late.append(f"it may stop at {name}: {slot} has not taken effect yet")
            todo.append((place["address"], f"broker/{step['broker']}", way["slot"], [*late, *stops]))
    return steps, verdicts or ["nobody publishes the type"]


def _stops(step: Step) -> list[str]:
    if step["matches"]:
        return []
    who = f"{step['interface'].partition('/')[2]}#{step['subscription']}"
    what = "; ".join(step["failing"])
    return [f"it stops at {step['broker']}: {who} (epoch {step['epoch']}) does not match, {what}"]


async def follow(
    address: str, type_name: str, publisher: str, sequence: int, *, seconds: float = 2.0
) -> AsyncIterator[Step]:
    """What each broker did with an event, as it gets there: broker by broker from the one at `address`.

    A broker that the event was sent to is asked until it has it, `seconds` at the most; then the step says
    that it has not been `seen`. Of a broker that does not answer it says why, as `error`; where that is the
    first, `ConnectError` or `RefusedError` is raised.
    """
    request = encode_follow(type_name, publisher, sequence)
    loop = asyncio.get_running_loop()
    todo = [("", address)]
    while todo:
        name, where = todo.pop(0)
        deadline = loop.time() + seconds
        while True:
            try:
                step: Step = json.loads(decode_explanation(await call_broker(where, FOLLOW, request)))
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
