"""Patterns of Amazon EventBridge, JSON, translated to the filter language.

A pattern gives for each field a list of values and matchers: any of the list suffices, and all fields are
needed. `$or` has a list of patterns. A nested field is one attribute, its names joined by `_`, which also
replaces `-` and `.`: `detail-type` is `detail_type`, and `{"detail": {"state": …}}` is `detail_state`. A
field that is null is absent here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from covey.matcher.dialects.wildcards import Wildcard, joined, like
from covey.matcher.errors import FilterSyntaxError
from covey.matcher.expressions.writing import write_value

_MOST_NESTED = 200
_COMPARISONS = {"=": "==", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _PatternError(Exception):
    """What is wrong, and the field."""


def translate_event_pattern(text: str) -> str:
    """The filter of a pattern."""
    try:
        pattern = json.loads(text)
    except json.JSONDecodeError as error:
        raise FilterSyntaxError(f"event pattern: no JSON, {error.msg}", text, error.pos) from None
    except RecursionError:
        raise FilterSyntaxError("event pattern: expected less deep JSON", text, 0) from None
    try:
        return _pattern(pattern, "", 0)
    except _PatternError as error:
        raise FilterSyntaxError(f"event pattern: {error}", text, 0) from None


def _pattern(pattern: object, path: str, depth: int) -> str:
    where = path or "the pattern"
    if not isinstance(pattern, dict) or not pattern:
        raise _PatternError(f"{where}: expected an object with at least one field")
    if depth > _MOST_NESTED:
        raise _PatternError(f"{where}: expected at most {_MOST_NESTED} objects inside each other")
    parts = []
    for name, wanted in pattern.items():
        if name == "$or":
            if not isinstance(wanted, list) or not wanted:
                raise _PatternError("$or: expected a list of patterns")
            parts.append(_any([_pattern(each, path, depth + 1) for each in wanted]))
        elif isinstance(wanted, dict):
            parts.append(_pattern(wanted, _joined(path, name), depth + 1))
        else:
            parts.append(_field(_joined(path, name), wanted))
    return " and ".join(parts)


def _joined(path: str, name: str) -> str:
    attribute = "_".join(filter(None, (path, re.sub(r"[-.]", "_", name))))
    if not _NAME.fullmatch(attribute):
        raise _PatternError(f"field {name!r}: expected letters, digits, _, - and .")
    return attribute


def _any(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({' or '.join(parts)})"


def _field(attribute: str, wanted: object) -> str:
    if not isinstance(wanted, list) or not wanted:
        raise _PatternError(f"{attribute}: expected a list of what matches, or an object")
    values = [each for each in wanted if each is not None and not isinstance(each, dict | list)]
    parts = []
    if len(values) == 1 or any(isinstance(value, bool) for value in values):
        parts += [f"{attribute} == {write_value(_value(attribute, value))}" for value in values]
    elif values:
        listed = ", ".join([write_value(_value(attribute, value)) for value in values])
        parts.append(f"{attribute} in ({listed})")
    for each in wanted:
        if each is None:
            parts.append(f"not exists({attribute})")
        elif isinstance(each, list):
            raise _PatternError(f"{attribute}: a list in the list, expected values and matchers")
        elif isinstance(each, dict):
            parts.append(_matcher(attribute, each))
    return _any(parts)


def _matcher(attribute: str, matcher: Mapping[str, Any]) -> str:
    if len(matcher) != 1:
        raise _PatternError(f"{attribute}: expected one matcher in an object, not {len(matcher)}")
    ((kind, argument),) = matcher.items()
    translated = _MATCHERS.get(kind)
    if translated is None:
        raise _PatternError(f"{attribute}: matcher {kind!r}, expected one of {', '.join(sorted(_MATCHERS))}")
    return translated(attribute, argument)


def _value(attribute: str, value: object) -> str | int | float | bool:
    if isinstance(value, str | int | float):
        return value
    raise _PatternError(f"{attribute}: {json.dumps(value)}, expected a text, a number or a bool")


def _text(attribute: str, kind: str, argument: object) -> str:
    if not isinstance(argument, str):
        raise _PatternError(f"{attribute}: {kind} {json.dumps(argument)}, expected a text")
    return argument


def _affix(kind: str, *, negated: bool = False) -> Callable[[str, Any], str]:
    """`prefix` or `suffix`, also without regard to case."""
    before = "not " if negated else ""

    def translate(attribute: str, argument: Any) -> str:
        if isinstance(argument, dict) and list(argument) == ["equals-ignore-case"]:
            text = re.escape(_text(attribute, kind, argument["equals-ignore-case"]))
            anchored = rf"\A{text}" if kind == "prefix" else rf"{text}\z"
            return f"{before}matches({attribute}, {write_value(f'(?is){anchored}')})"
        return f"{attribute} {before}{kind} {write_value(_text(attribute, kind, argument))}"

    return translate


def _ignoring_case(*, negated: bool = False) -> Callable[[str, Any], str]:
    def translate(attribute: str, argument: Any) -> str:
        text = re.escape(_text(attribute, "equals-ignore-case", argument))
        expression = write_value(rf"(?is)\A{text}\z")
        return f"{'not ' if negated else ''}matches({attribute}, {expression})"

    return translate


def _wildcard(*, negated: bool = False) -> Callable[[str, Any], str]:
    def translate(attribute: str, argument: Any) -> str:
        pieces: list[str | Wildcard] = []
        characters = iter(_text(attribute, "wildcard", argument))
        for character in characters:
            if character == "\\":
                following = next(characters, "")
                if following not in ("*", "\\"):
                    raise _PatternError(f"{attribute}: wildcard, expected * or \\ behind \\")
                pieces.append(following)
            else:
                pieces.append(Wildcard.ANY if character == "*" else character)
        return like(attribute, joined(pieces), negated=negated)

    return translate


def _numeric(attribute: str, argument: Any) -> str:
    if not isinstance(argument, list) or len(argument) not in (2, 4):
        raise _PatternError(f"{attribute}: numeric, expected one or two comparisons with their numbers")
    parts = []
    for comparison, number in zip(argument[::2], argument[1::2], strict=True):
        if comparison not in _COMPARISONS:
            raise _PatternError(f"{attribute}: numeric {comparison!r}, expected = < <= > or >=")
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise _PatternError(f"{attribute}: numeric {json.dumps(number)}, expected a number")
        parts.append(f"{attribute} {_COMPARISONS[comparison]} {write_value(number)}")
    return parts[0] if len(parts) == 1 else f"({' and '.join(parts)})"


def _exists(attribute: str, argument: Any) -> str:
    if not isinstance(argument, bool):
        raise _PatternError(f"{attribute}: exists {json.dumps(argument)}, expected true or false")
    return f"{'' if argument else 'not '}exists({attribute})"


def _anything_but(attribute: str, argument: Any) -> str:
    """Of values, or of a matcher with one text or a list of texts: the field is present, and none matches."""
    if isinstance(argument, dict):
        ((kind, texts),) = argument.items() if len(argument) == 1 else (("", None),)
        if kind not in _NEGATED:
            raise _PatternError(f"{attribute}: anything-but, expected values or one of {', '.join(_NEGATED)}")
        each = texts if isinstance(texts, list) and texts else [texts]
        return " and ".join([_NEGATED[kind](attribute, text) for text in each])
    values = argument if isinstance(argument, list) and argument else [argument]
    if len(values) == 1 or any(isinstance(value, bool) for value in values):
        return " and ".join([f"{attribute} != {write_value(_value(attribute, value))}" for value in values])
    return f"{attribute} not in ({', '.join([write_value(_value(attribute, value)) for value in values])})"


_NEGATED: dict[str, Callable[[str, Any], str]] = {
    "prefix": _affix("prefix", negated=True),
    "suffix": _affix("suffix", negated=True),
    "equals-ignore-case": _ignoring_case(negated=True),
    "wildcard": _wildcard(negated=True),
}
_MATCHERS: dict[str, Callable[[str, Any], str]] = {
    "prefix": _affix("prefix"),
    "suffix": _affix("suffix"),
    "equals-ignore-case": _ignoring_case(),
    "wildcard": _wildcard(),
    "numeric": _numeric,
    "exists": _exists,
    "anything-but": _anything_but,
}
