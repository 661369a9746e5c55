"""The sentence of a refusal of a schema that does not agree with its event type."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from covey.matcher import EventType


def difference(known: EventType, other: EventType, broker_id: str) -> str:
    """One sentence on the first attribute of a schema that a known one has not, or has of another kind, or on
    its other key.
    """
    for name, kind in other.attributes.items():
        known_kind = known.attributes.get(name, kind)
        if known_kind != kind:
            reason = f"attribute {name} is {known_kind}, not {kind}"
            break
    else:
        unknown = next((name for name in other.names if name not in known.attributes), None)
        if unknown is not None and known.agrees(other):
            reason = f"attribute {unknown} is not known"
        else:
            reason = f"its key is {known.key or 'not known'}, not {other.key}"
    return f"event type {known.name} exists with other attributes: at broker {broker_id}, {reason}"
