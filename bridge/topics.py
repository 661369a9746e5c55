"""Topic filters of MQTT 5 (section 4.7), and templates, topics in which `{name}` stands for the value of an
attribute. Invariant: a value fills a level or a part of one, and adds neither levels nor wildcards.
`Template.topic` returns only text that every MQTT broker accepts, since anything else breaks the connection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_SHARED = re.compile(r"\$share/[^/+#]+/(?=.)")
_RESERVED = frozenset("/+#")
_LONGEST = 65_535


def levels_of(topic_filter: str) -> list[str]:
    """The levels of a filter, without a shared subscription's group (`$share/group/filter`)."""
    return _SHARED.sub("", topic_filter, count=1).split("/")


def check_filter(text: str) -> str:
    """`ValueError` for text that is no topic filter."""
    levels = levels_of(text)
    wildcards = any(len(level) > 1 and {"+", "#"} & {*level} for level in levels) or "#" in levels[:-1]
    if not _is_sound(text) or wildcards or levels[0] == "$share":
        raise ValueError("expected a topic filter of MQTT, such as plant/+/temperature or plant/#")
    return text


def check_topic(text: str) -> str:
    """`ValueError` for text that is no topic to publish to."""
    if not _is_sound(text) or {"+", "#"} & {*text} or text.startswith("$"):
        raise ValueError("expected a topic of MQTT, such as plant/limit, without + and #")
    return text


def _is_sound(text: str) -> bool:
    return text.isprintable() and 0 < len(text.encode()) <= _LONGEST


def matches(levels: Sequence[str], topic: Sequence[str | None]) -> bool:
    """Whether a filter matches a topic, both as levels; a topic's level None may be any."""
    if levels[0] in ("+", "#") and (topic[0] or "").startswith("$"):
        return False
    for place, level in enumerate(levels):
        if level == "#":
            return True
        if place == len(topic) or (level != "+" and topic[place] not in (level, None)):
            return False
    return len(levels) == len(topic)


class Template:
    """`names` are its attributes, `levels` those of its topics, None where a level contains an attribute."""

    def __init__(self, text: str) -> None:
        """`ValueError` for an invalid template."""
        plain = _PLACEHOLDER.sub("a", text)
        if "{" in plain or "}" in plain:
            raise ValueError("expected the name of an attribute in braces, such as alarms/{sensor}")
        check_topic(plain)
        self.text = text
        self.names: list[str] = _PLACEHOLDER.findall(text)
        self.levels = [None if "{" in level else level for level in text.split("/")]

    def topic(self, event: Mapping[str, object]) -> str:
        """The topic of an event. `ValueError` for a value that no topic can contain."""
        topic = _PLACEHOLDER.sub(lambda found: _part(found[1], event[found[1]]), self.text)
        if topic.startswith("$") or len(topic.encode()) > _LONGEST:
            raise ValueError(f"the topic {topic[:80]!r}: expected at most {_LONGEST} bytes, and no $ first")
        return topic


def _part(name: str, value: object) -> str:
    text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    if not text or not text.isprintable() or not _RESERVED.isdisjoint(text):
        raise ValueError(f"{name} is {text[:80]!r}: expected text for a topic, without /, + and #")
    return text
