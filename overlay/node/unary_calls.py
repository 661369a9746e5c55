"""Answers the single calls of a broker: Describe, Explain, Follow, Inspect and Reload.

All but Reload change nothing, and what they list is bounded, so that none delays events. A call that cannot
be answered ends with a status and one sentence.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import NoReturn

from covey.matcher.errors import EventError, SubscriptionError
from covey.overlay.core.access.identity import DeniedError
from covey.overlay.core.access.rights import Action, Rights
from covey.overlay.core.introspection.listing import DEFAULT_LISTED, MAX_LISTED
from covey.overlay.node.config import ConfigError
from covey.overlay.node.node import Node
from covey.overlay.node.state import explain_at, follow_at, inspect_node, render_node
from covey.overlay.transport.address import CallError
from covey.overlay.transport.packets import (
    Reloaded,
    decode_describe,
    decode_explain,
    decode_follow,
    decode_inspect,
    decode_reload,
    encode_explanation,
    encode_inspection,
    encode_reloaded,
)
from covey.overlay.transport.wire_values import MalformedPacketError, UnknownTypeError, encode_event_type

_Answer = Callable[["Calls", bytes, Rights | None], bytes]
Reload = Callable[[bool], Awaitable[Reloaded]]
"""Reads the overlay file again; with true the broker leaves, if the file names it no more. `ConfigError`."""


def _handler(answer: _Answer) -> _Answer:
    """As `answer`, but raises `CallError`."""

    def handle(calls: Calls, request: bytes, rights: Rights | None) -> bytes:
        try:
            return answer(calls, request, rights)
        except (SubscriptionError, UnknownTypeError) as error:
            raise CallError("NOT_FOUND", str(error)) from None
        except (MalformedPacketError, EventError) as error:
            raise CallError("INVALID_ARGUMENT", str(error)) from None

    return handle


class Calls:
    """The handlers, on one node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.reload: Reload | None = None
        """Reads the overlay file again, once the broker can."""

    @_handler
    def describe(self, request: bytes, rights: Rights | None) -> bytes:
        name = decode_describe(request)
        if rights is not None and not rights.may(Action.PUBLISH, name):
            self._require(rights, Action.SUBSCRIBE, name)
        event_type = self._node.core.event_type(name)
        if event_type is None:
            raise UnknownTypeError(self._node.unknown_type(name))
        return encode_event_type(event_type)

    @_handler
    def explain(self, request: bytes, rights: Rights | None) -> bytes:
        interface, subscription_id, text = decode_explain(request)
        peer = self._node.core.tables.peers.get(interface)
        subscription = None if peer is None else peer.subscriptions.get(subscription_id)
        if rights is not None and not rights.may_all(Action.ADMINISTER):
            name = None if subscription is None else subscription.filter.event_type.name
            if name is None or not rights.may(Action.ADMINISTER, name):
                what = f"subscription {subscription_id} of {interface}"
                self._deny(f"{rights.subject!r} may not explain {what}")
        answer = explain_at(self._node, interface, subscription_id, _event_of(text))
        return encode_explanation(json.dumps(answer))

    @_handler
    def follow(self, request: bytes, rights: Rights | None) -> bytes:
        type_name, publisher, sequence = decode_follow(request)
        self._require(rights, Action.ADMINISTER, type_name)
        return encode_explanation(json.dumps(follow_at(self._node, type_name, publisher, sequence)))

    @_handler
    def inspect(self, request: bytes, rights: Rights | None) -> bytes:
        if rights is not None and not rights.may_all(Action.ADMINISTER):
            self._deny(f"{rights.subject!r} may not inspect the broker")
        requested = decode_inspect(request)
        listed = DEFAULT_LISTED if requested is None else min(requested, MAX_LISTED)
        return encode_inspection(
            render_node(self._node, listed), json.dumps(inspect_node(self._node, listed))
        )

    async def reload_file(self, request: bytes, rights: Rights | None) -> bytes:
        if rights is not None and not rights.may_all(Action.ADMINISTER):
            self._deny(f"{rights.subject!r} may not have the broker reload its overlay file")
        try:
            leave = decode_reload(request)
        except MalformedPacketError as error:
            raise CallError("INVALID_ARGUMENT", str(error)) from None
        if self.reload is None or self._node.draining:
            raise CallError("UNAVAILABLE", f"broker {self._node.name} starts or stops")
        try:
            return encode_reloaded(await self.reload(leave))
        except ConfigError as error:
            raise CallError("FAILED_PRECONDITION", str(error)) from None

    def _require(self, rights: Rights | None, action: Action, type_name: str) -> None:
        if rights is not None and not rights.may(action, type_name):
            self._node.denials[action.value] += 1
            rights.require(action, type_name)

    def _deny(self, reason: str) -> NoReturn:
        self._node.denials[Action.ADMINISTER.value] += 1
        raise DeniedError("PERMISSION_DENIED", reason)


def _event_of(text: str) -> dict[str, object]:
    """The event that a text describes. `EventError` for one that is no JSON object."""
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise EventError(f"event {text[:60]!r}: expected a JSON object")
    return event
