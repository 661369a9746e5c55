"""Filters in the languages of other systems, translated to text of the filter language (docs/filters.md)."""

from __future__ import annotations

from collections.abc import Callable

from covey.matcher.dialects.event_patterns import translate_event_pattern
from covey.matcher.dialects.sql import translate_selector
from covey.matcher.errors import FilterError

LANGUAGES: dict[str, Callable[[str], str]] = {
    "covey": str,
    "sql": translate_selector,
    "eventbridge": translate_event_pattern,
}


def translate(text: str, language: str) -> str:
    """Translate a filter to Covey's filter language.

    `language` is "sql" (selectors as in JMS: conditions of SQL-92), "eventbridge" (patterns of Amazon
    EventBridge, JSON) or "covey". Raises `FilterSyntaxError` for text that is no filter of the language or
    that Covey cannot express; `FilterError` for another language."""
    if language not in LANGUAGES:
        raise FilterError(f"language {language!r}: expected {', '.join(LANGUAGES)}")
    return LANGUAGES[language](text)
