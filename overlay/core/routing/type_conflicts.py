"""The sentence of a refusal of an event type whose name is in use with other attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from covey.matcher import EventType


def difference(known: EventType, other: EventType, broker_id: str) -> str:
    """One sentence on how two event types of one name differ, naming the first attribute that does."""
    for name, kind in other.attributes.items():
        known_kind = known.attributes.get(name)
        if known_kind is None:
            reason = f"attribute {name} is not known"
        elif known_kind != kind:
            reason = f"attribute {name} is {known_kind}, not {kind}"
        else:
            continue
        return f"event type {known.name} exists with other attributes: at broker {broker_id}, {reason}"
    missing = [name for name in known.names if name not in other.attributes]
    if missing:
        reason = f"attribute {missing[0]} is expected as well"
    else:
        a, b = next((a, b) for a, b in zip(known.names, other.names, strict=True) if a != b)
        reason = f"attribute {a} is expected in the place of {b}"
    return f"event type {known.name} exists with other attributes: at broker {broker_id}, {reason}"
