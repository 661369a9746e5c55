"""Checks what clients send before the core gets it: denies and counts what their rights do not permit, and
joins policies to filters.

A policy, such as `region == $tenant` with claims for its variables, is a permission by content. A
subscriber's is joined by *and* to each of its filters, as constants, so no update reaches it. A publisher's
selects its events. What cannot be decided is denied: a missing claim or attribute, and a call of a named
operator, since brokers pass on what an operator leaves undecided."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from covey.matcher.errors import CoveyError, EventTypeError
from covey.matcher.expressions.expression import FALSE, all_of, any_of
from covey.matcher.filters.filter import Filter, parse
from covey.overlay.core.access.identity import Denials
from covey.overlay.core.access.rights import PUBLISHER, Action, Rights, denial, owner_of
from covey.overlay.core.messages import Advertise, Interface, Message, Publish, Refuse, Subscribe
from covey.overlay.core.moving.motion import moves
from covey.overlay.core.routing.promises import Promise
from covey.overlay.core.routing.tables import Tables
from covey.overlay.core.warnings import Warn, WarningKind

if TYPE_CHECKING:
    from covey.matcher.events.batch import EventBatch
    from covey.matcher.events.event_type import EventType


def policy_of(
    rights: Rights, action: Action, event_type: EventType, warn: Callable[[str], None]
) -> Filter | None:
    """None permits every event. A policy that cannot be decided permits none; `warn` gets a sentence."""
    texts = rights.policies(action, event_type.name)
    if texts is None:
        return None
    parts = []
    for text in texts:
        try:
            policy = parse(text, event_type)
            if policy.calls:
                raise CoveyError("it calls a named operator")
            policy = policy.substitute({name: rights.claims.get(name) for name in policy.variables})
            parts.append(policy.expression)
        except CoveyError as error:
            warn(f"policy {text!r} of {event_type.name} permits nothing: {str(error).partition(chr(10))[0]}")
    return Filter(event_type, any_of(parts))


def joined(filter: Filter, policy: Filter) -> Filter:
    """Both, over the policy's schema, which includes the filter's."""
    both = all_of([filter.expression, policy.expression])
    return Filter(policy.event_type, both, unknown_operators=True)


_PROMISES = 4_096


class Guard:
    """A client without `Rights` may do all but publish under another's name. `warn` gets a sentence for the
    operator."""

    def __init__(self, tables: Tables, warn: Warn) -> None:
        self.denials: Denials = Denials()
        self._tables = tables
        self._warn = warn
        self._promises: OrderedDict[tuple[Interface, EventType], Promise] = OrderedDict()

    def refusal(self, message: Message, interface: Interface, rights: Rights | None) -> Refuse | None:
        """The refusal of a client's message, None if it is permitted."""
        if isinstance(message, Publish):
            return self._of_events(message, interface, rights)
        if rights is None:
            return None
        if isinstance(message, Subscribe):
            name = message.filter.event_type.name
            refuse = Refuse(message.epoch, "", "", message.subscription_id, name)
            return self._unless_permitted(refuse, Action.SUBSCRIBE, rights)
        if isinstance(message, Advertise):
            refuse = Refuse(message.epoch, "", "", 0, message.event_type.name)
            return self._unless_permitted(refuse, Action.PUBLISH, rights)
        return None

    def restricted(self, message: Subscribe, interface: Interface, rights: Rights) -> Subscribe | Refuse:
        """The subscription with the client's policy joined, or a refusal where the core's would quote the
        policy."""
        name = message.filter.event_type.name
        if rights.policies(Action.SUBSCRIBE, name) is None:
            return message
        epoch, number = message.epoch, message.subscription_id
        try:
            unmoving = {each: 0.0 if moves({each: v}) else v for each, v in message.values.items()}
            message.filter.check_values(unmoving)
            policy = self._policy(interface, rights, Action.SUBSCRIBE, message.filter.event_type)
            if policy is None:
                return message
            if message.for_views:  # a view also gets what leaves it, which is outside of the policy
                reason = f"a view of {name}: expected a client whose subscriptions to it no policy limits"
                return Refuse(epoch, "PERMISSION_DENIED", reason, number, name)
            if policy.expression == FALSE:
                return self._denied(Refuse(epoch, "", "", number, name), Action.SUBSCRIBE, rights)
            return replace(message, filter=joined(message.filter, policy))
        except EventTypeError as error:
            return Refuse(epoch, "ALREADY_EXISTS", f"subscription {number}: {error}", number, name)
        except CoveyError as error:
            return Refuse(epoch, "INVALID_ARGUMENT", f"subscription {number}: {error}", number, name)

    def without_policy(self, refuse: Refuse, rights: Rights | None) -> Refuse:
        """The core's refusal, without the filter if a policy was joined to it."""
        if rights is None or not refuse.subscription_id or not refuse.type_name:
            return refuse
        if rights.policies(Action.SUBSCRIBE, refuse.type_name) is None:
            return refuse
        reason = f"subscription {refuse.subscription_id}: expected values of its variables, within the limits"
        return replace(refuse, reason=reason)

    def select(
        self, batch: EventBatch, interface: Interface, rights: Rights | None
    ) -> tuple[EventBatch | None, list[Refuse]]:
        """The events that the client's policy permits, None for no event, and the refusals of the others."""
        if rights is None or rights.policies(Action.PUBLISH, batch.event_type.name) is None:
            return batch, []
        promise = self._promise(interface, rights, batch.event_type)
        selected = promise.select(batch)
        if selected is None:
            return batch, []
        outside = batch.sequences()[~selected]
        name = batch.event_type.name
        self.denials[Action.PUBLISH.value] += len(outside)
        denied = denial(rights.subject, Action.PUBLISH, name)
        refusals = []
        for run in np.split(outside, np.flatnonzero(np.diff(outside) != 1) + 1):
            first, count = int(run[0]), len(run)
            reason = f"{count} events from number {first} on: {denied} with this content"
            refusals.append(Refuse(0, "PERMISSION_DENIED", reason, 0, name, first, count))
        return (batch.filter(selected) if selected.any() else None), refusals

    def durable_refusal(self, rights: Rights | None) -> str | None:
        """Why a client gets no durable session: its stored filters would keep the policies of today."""
        if rights is None or rights.whole(Action.SUBSCRIBE):
            return None
        return f"a durable session of {rights.subject!r}: expected permissions to subscribe without policies"

    def session_denial(self, rights: Rights | None) -> str:
        """Why a client may not resume its durable session, which is kept until it may; counted."""
        self.denials[Action.SUBSCRIBE.value] += 1
        subject = "" if rights is None else rights.subject
        return (
            f"{subject!r} may not have all that its durable session has subscribed to: expected those "
            "permissions, or a client that is not durable, which ends the session"
        )

    def permits_session(self, interface: Interface, rights: Rights | None) -> bool:
        """Whether the client may subscribe to all types of its session, without policies."""
        peer = self._tables.peers.get(interface)
        if rights is None or peer is None:
            return rights is None
        names = {each.filter.event_type.name for each in peer.subscriptions.values()}
        return all(rights.policies(Action.SUBSCRIBE, name) is None for name in names)

    def forget(self, interface: Interface) -> None:
        """Call when a client's session ends or its rights change."""
        for key in [key for key in self._promises if key[0] == interface]:
            del self._promises[key]

    def _promise(self, interface: Interface, rights: Rights, event_type: EventType) -> Promise:
        key = (interface, event_type)
        promise = self._promises.pop(key, None)
        if promise is None:
            try:
                promise = Promise(self._policy(interface, rights, Action.PUBLISH, event_type))
            except EventTypeError:
                promise = Promise(Filter(event_type, FALSE))  # the core refuses the batch anyway
        self._promises[key] = promise
        if len(self._promises) > _PROMISES:
            self._promises.popitem(last=False)
        return promise

    def _policy(
        self, interface: Interface, rights: Rights, action: Action, event_type: EventType
    ) -> Filter | None:
        """Over all attributes that the type has here or in the message; `EventTypeError` if they differ."""
        state = self._tables.types.get(event_type.name)
        whole = event_type if state is None else event_type.union(state.event_type)
        return policy_of(rights, action, whole, partial(self._warn, interface, WarningKind.POLICY_UNDECIDED))

    def instead(self, refuse: Refuse, rights: Rights | None) -> Refuse:
        """Replaces the refusal of an invalid message by a denial if the client may not learn of the event
        type."""
        if rights is None or not refuse.type_name:
            return refuse
        action = Action.SUBSCRIBE if refuse.subscription_id and not refuse.count else Action.PUBLISH
        return self._unless_permitted(refuse, action, rights) or refuse

    def _of_events(self, message: Publish, interface: Interface, rights: Rights | None) -> Refuse | None:
        batch = message.batch
        own = interface.partition("/")[2]
        foreign = batch.publisher and owner_of(batch.publisher) != owner_of(own)
        if not foreign and (rights is None or rights.may(Action.PUBLISH, batch.event_type.name)):
            return None
        count = len(batch)
        first = int(batch.sequences()[0]) if count else batch.first_sequence
        refuse = Refuse(0, "PERMISSION_DENIED", "", 0, batch.event_type.name, first, count)
        if foreign or rights is None:
            self.denials[PUBLISHER] += 1
            wrong, right = batch.publisher[:200], owner_of(own)
            reason = f"{count} events of publisher {wrong!r}: expected {right!r} or {right + '/...'!r}"
            return replace(refuse, reason=f"{reason}, from client {own!r}")
        return self._denied(refuse, Action.PUBLISH, rights)

    def _unless_permitted(self, refuse: Refuse, action: Action, rights: Rights) -> Refuse | None:
        return None if rights.may(action, refuse.type_name) else self._denied(refuse, action, rights)

    def _denied(self, refuse: Refuse, action: Action, rights: Rights) -> Refuse:
        self.denials[action.value] += 1
        reason = denial(rights.subject, action, refuse.type_name)
        return replace(refuse, status="PERMISSION_DENIED", reason=reason)
