"""The event types of random histories."""

from __future__ import annotations

from covey.matcher import EventType

TYPES = (
    EventType("T", {"x": "int64", "y": "float64", "s": "string"}),
    EventType("U", {"x": "int64", "flag": "bool"}),
)
KEYED = (
    EventType("T", {"x": "int64", "y": "float64", "s": "string", "id": "string"}, key="id"),
    EventType("U", {"id": "int64", "x": "int64", "flag": "bool"}, key="id"),
)
"""The same with keys, for views."""
WIDER = (
    EventType("T", {"x": "int64", "y": "float64", "s": "string", "v": "int64"}),
    EventType("T", {"w": "float64", "s": "string", "x": "int64"}),
    EventType("T", {"f": "bool", "w": "float64", "v": "int64", "r": "string"}),
)
"""Other schemas of the first type, with which it is widened: attributes in another order, or without some."""
