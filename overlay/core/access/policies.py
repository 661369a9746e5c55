"""Permissions by content: a policy such as `region == $tenant`, with claims for its variables, as a filter.

The policy of a subscriber is joined by *and* to each of its filters before the routing core has it, as
constants: no update reaches them, and matching costs what the filter costs. That of a publisher selects its
events. What cannot be decided is denied: a claim that is missing, an attribute that the type lacks, a call of
a named operator, since brokers pass on what an operator leaves undecided.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from covey.matcher.errors import CoveyError
from covey.matcher.expressions.expression import all_of, any_of
from covey.matcher.filters.filter import Filter, parse
from covey.overlay.core.access.rights import Action, Rights

if TYPE_CHECKING:
    from covey.matcher.events.event_type import EventType


def policy_of(
    rights: Rights, action: Action, event_type: EventType, warn: Callable[[str], None]
) -> Filter | None:
    """What the events of a type must match for this client, None for every event. A policy that cannot be
    decided permits none, and `warn` gets a sentence for the operator.
    """
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
    """The filter and the policy, over the schema of the policy, which includes the filter's."""
    both = all_of([filter.expression, policy.expression])
    return Filter(policy.event_type, both, unknown_operators=True)
