"""Walks an overlay from a subscription to the publishers: where an event would stop on its way, and why.

Each broker evaluates the slot of the broker before it and names its neighbours (RPC Explain,
`core/introspection`). A broker that does not answer ends its branch, and the verdict says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from covey.overlay.client.errors import ConnectError
from covey.overlay.client.unary import call_broker
from covey.overlay.core.endpoint.errors import RefusedError
from covey.overlay.transport.credentials import PLAIN, Credentials
from covey.overlay.transport.packets import EXPLAIN, decode_explanation, encode_explain

Step = dict[str, Any]


async def explain(
    address: str,
    client: str,
    subscription_id: int,
    event: Mapping[str, object],
    credentials: Credentials = PLAIN,
) -> tuple[list[Step], list[str]]:
    """The answer of each broker, from the subscription to the publishers, and the verdicts: one sentence for
    each place where events enter or the walk ends.

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
            request = encode_explain(interface, number, text)
            step = json.loads(decode_explanation(await call_broker(where, EXPLAIN, request, credentials)))
        except (ConnectError, RefusedError) as error:
            if not steps:
                raise
            verdicts.append(f"upstream of {interface.removeprefix('broker/')}: {error}")
            continue
        steps.append(step)
        # The broker nearest to the publisher stops the event first.
        stops = [*_stops(step), *stops]
        for publisher in step["publishers"]:
            stop = stops[0] if stops else _delivery(steps[0])
            if publisher in step["outside"]:
                stop = f"it is refused at {step['broker']}: outside of {step['promises'][publisher]}"
            verdicts.append(f"from {publisher.removeprefix('client/')} at {step['broker']}: {stop}")
        for way in step["upstream"]:
            name, neighbour = way["neighbour"], step["neighbours"][way["neighbour"]]
            if way["slot"] is None:
                why = f"which promises {way['promised']}" if way["promised"] else "which promises nothing"
                verdicts.append(
                    f"from upstream of {name}: it stops there: {step['broker']} has no slot at {name}, {why}"
                )
                continue
            pending = []
            if not neighbour["connected"]:
                pending.append(f"it waits at {name}: the link to {step['broker']} is broken")
            if not way["acknowledged"]:
                slot = f"slot {way['slot']} (epoch {way['epoch']})"
                pending.append(f"it may stop at {name}: {slot} has not taken effect yet")
            todo.append((neighbour["address"], f"broker/{step['broker']}", way["slot"], [*pending, *stops]))
    return steps, verdicts or ["no client publishes the type"]


def _delivery(step: Step) -> str:
    if not step["undecided"]:
        return "it is delivered"
    return f"it reaches the client, which decides: {'; '.join(step['calls'])}"


def _stops(step: Step) -> list[str]:
    if step["matches"]:
        return []
    slot = f"{step['interface'].partition('/')[2]}#{step['subscription']}"
    reasons = "; ".join(step["failing"])
    return [f"it stops at {step['broker']}: {slot} (epoch {step['epoch']}) does not match, {reasons}"]
