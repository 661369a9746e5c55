"""What a bridge has done, as counters that only grow."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counts:
    """First messages of the other system, then events for it."""

    received: int = 0  # messages that rules or variables are for
    published: int = 0  # events that Covey was given, and has not refused
    malformed: int = 0  # no events of the type of a rule, or no values of a variable: once for each
    ignored: int = 0  # messages of a bridge, or of topics that no rule is for
    dropped: int = 0  # messages of QoS 0 for which there was no room, since Covey was away or slow
    refusals: int = 0  # batches of which Covey has refused events
    delivered: int = 0  # events of Covey's subscriptions
    missed: int = 0  # events that Covey has dropped, since the other side was away or slow
    unfit: int = 0  # events with values that cannot be in a topic
    sent: int = 0  # messages that were acknowledged; of QoS 0, that were written
    rejected: int = 0  # messages that the other side has refused

    def __str__(self) -> str:
        return ", ".join(f"{field.name} {getattr(self, field.name):,}" for field in fields(self))
