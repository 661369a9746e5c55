"""Compares the event types in the overlay files of two linked brokers. More attributes in one file widen a
type. Where kinds or keys differ, each broker refuses what the other advertises. The link opens all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from covey.matcher.events.event_type import EventType

_PREFIX = "event_types."
_MOST_CHARACTERS = 16_384
_MOST_CONFLICTS = 20
_LONGEST_WORD = 100
_KEY = "*"


def as_options(event_types: Iterable[EventType]) -> dict[str, str]:
    """For a hello: `event_types.Quote` is `firm:string* price:float64`, a star marks the key. Types beyond
    16,384 characters are left out."""
    options: dict[str, str] = {}
    room = _MOST_CHARACTERS
    for event_type in sorted(event_types, key=lambda each: each.name):
        words = [
            f"{name}:{kind}{_KEY if name == event_type.key else ''}"
            for name, kind in event_type.attributes.items()
        ]
        name, text = f"{_PREFIX}{event_type.name}", " ".join(words)
        if len(name) + len(text) <= room:
            room -= len(name) + len(text)
            options[name] = text
    return options


def conflicts(
    own: str, event_types: Iterable[EventType], neighbour: str, options: Mapping[str, str]
) -> list[str]:
    """One sentence per type, at most 20, the same at both brokers. `options` are from the neighbour's
    hello."""
    found = []
    for event_type in sorted(event_types, key=lambda each: each.name):
        text = options.get(f"{_PREFIX}{event_type.name}")
        if text is None:
            continue
        kinds, key = _parsed(text)
        mine = {name: str(kind) for name, kind in event_type.attributes.items()}
        for name in sorted(mine):
            if kinds.get(name, mine[name]) != mine[name]:
                what = _at_both(f"attribute {name}", (own, mine[name]), (neighbour, kinds[name]))
                found.append(
                    f"event type {event_type.name}: {what}; events with {name} do not pass their link"
                )
                break
        else:
            if event_type.key and key and event_type.key != key:
                what = _at_both("the key", (own, event_type.key), (neighbour, key))
                found.append(f"event type {event_type.name}: {what}; its events do not pass their link")
    return found[:_MOST_CONFLICTS]


def _at_both(what: str, *values: tuple[str, str]) -> str:
    (first, its), (second, other) = sorted(values)
    return f"{what} is {its} in the file of broker {first} and {other} in that of broker {second}"


def _parsed(text: str) -> tuple[dict[str, str], str]:
    """Kinds by attribute, and the key ("": none)."""
    kinds, key = {}, ""
    for word in text.split():
        name, _, kind = word.partition(":")
        if kind.endswith(_KEY):
            kind, key = kind.removesuffix(_KEY), name[:_LONGEST_WORD]
        kinds[name] = kind[:_LONGEST_WORD]
    return kinds, key
