"""Answers the single calls of a broker: Describe, Explain, Follow and Inspect.

They change nothing, and what they list is bounded, so that none delays events. A call that cannot be answered
ends with a status and one sentence.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from covey.matcher.errors import EventError, SubscriptionError
from covey.overlay.core.introspection.listing import DEFAULT_LISTED, MAX_LISTED
from covey.overlay.node.node import Node
from covey.overlay.node.state import explain_at, follow_at, inspect_node, render_node
from covey.overlay.transport.call_error import CallError
from covey.overlay.transport.calls import (
    decode_describe,
    decode_explain,
    decode_follow,
    decode_inspect,
    encode_explanation,
    encode_inspection,
)
from covey.overlay.transport.errors import MalformedPacketError, UnknownTypeError
from covey.overlay.transport.wire_values import encode_event_type


def _handler(answer: Callable[[Calls, bytes], bytes]) -> Callable[[Calls, bytes], bytes]:
    """As `answer`, but raises `CallError`."""

    def handle(calls: Calls, request: bytes) -> bytes:
        try:
            return answer(calls, request)
        except (SubscriptionError, UnknownTypeError) as error:
            raise CallError("NOT_FOUND", str(error)) from None
        except (MalformedPacketError, EventError) as error:
            raise CallError("INVALID_ARGUMENT", str(error)) from None

    return handle


class Calls:
    """The handlers, on one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @_handler
    def describe(self, request: bytes) -> bytes:
        name = decode_describe(request)
        event_type = self._node.core.event_type(name)
        if event_type is None:
            raise UnknownTypeError(self._node.unknown_type(name))
        return encode_event_type(event_type)

    @_handler
    def explain(self, request: bytes) -> bytes:
        interface, subscription_id, text = decode_explain(request)
        answer = explain_at(self._node, interface, subscription_id, _event_of(text))
        return encode_explanation(json.dumps(answer))

    @_handler
    def follow(self, request: bytes) -> bytes:
        return encode_explanation(json.dumps(follow_at(self._node, *decode_follow(request))))

    @_handler
    def inspect(self, request: bytes) -> bytes:
        requested = decode_inspect(request)
        listed = DEFAULT_LISTED if requested is None else min(requested, MAX_LISTED)
        return encode_inspection(
            render_node(self._node, listed), json.dumps(inspect_node(self._node, listed))
        )


def _event_of(text: str) -> dict[str, object]:
    """The event that a text describes. `EventError` for one that is no JSON object."""
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise EventError(f"event {text[:60]!r}: expected a JSON object")
    return event
