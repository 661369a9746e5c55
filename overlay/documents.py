"""YAML documents of users. Invariant: every mistake, a repeated key included, is one sentence with the file,
the field, the value and what was expected."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from covey.matcher.errors import CoveyError, EventTypeError, closest_of
from covey.matcher.events.event_type import EventType, Kind


class ConfigError(CoveyError, ValueError):
    """The overlay file, what it names, or the environment is wrong."""


class _UniqueKeys(yaml.SafeLoader):
    """Refuses repeated keys, of which PyYAML would keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                what = "list" if isinstance(key, yaml.SequenceNode) else "mapping"
                raise yaml.MarkedYAMLError(
                    problem=f"a key is a {what}: expected text", problem_mark=key.start_mark
                )
            if key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"{key.value} is there twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_document(path: str | Path, wrong: type[CoveyError]) -> Any:
    """`wrong`, naming the file and why, if it cannot be read or parsed."""
    return parse_document(read_text(path, wrong), path, wrong)


def read_text(path: str | Path, wrong: type[CoveyError]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise wrong(f"{path}: cannot be read: {reason}") from None


def parse_document(text: str, path: str | Path, wrong: type[CoveyError]) -> Any:
    """`path` is for messages. `wrong` if `text` is no YAML."""
    try:
        return yaml.load(text, Loader=_UniqueKeys)  # a SafeLoader
    except (TypeError, LookupError, AttributeError, RecursionError):  # of PyYAML's constructors
        raise wrong(f"{path}: no YAML: a value does not fit its tag, or is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that is none
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        reason = getattr(error, "problem", None) or str(error)
        raise wrong(f"{path}: no YAML{place}: {' '.join(reason.split())}") from None


class Section(BaseModel):
    """A mapping that refuses unknown keys. A key without a value counts as absent."""

    model_config = ConfigDict(strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: object) -> object:
        mapping = text_keys(value)
        for key in mapping:
            if key not in cls.model_fields:
                raise complaint(f"is unknown{closest_of(key, cls.model_fields)}", key)
        return {key: each for key, each in mapping.items() if each is not None}


def text_keys(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("expected a mapping")
    for key in value:
        if not isinstance(key, str):
            raise complaint(f"has the key {key!r}: expected text (quote it)")
    return value


def one_of(*names: str) -> AfterValidator:
    def check(value: str) -> str:
        if value not in names:
            raise ValueError(f"expected one of {', '.join(names)}")
        return value

    return AfterValidator(check)


def complaint(text: str, *at: str | int) -> PydanticCustomError:
    """An error of the field at path `at` below the validated field; `text` follows the field's name."""
    return PydanticCustomError("complaint", "{text}", {"text": text, "at": at})


def _event_types(value: object) -> tuple[EventType, ...]:
    event_types = []
    for name, declared in text_keys(value).items():
        if not isinstance(declared, dict):
            raise complaint(f"is {declared!r}: expected a mapping from attribute to kind", name)
        attributes = text_keys(declared)
        key = None if attributes.get("key") in list(Kind) else attributes.pop("key", None)
        try:
            event_types.append(EventType(name, attributes, key))
        except EventTypeError as error:
            raise complaint(f"is wrong: {error}", name) from None
    return tuple(event_types)


EventTypes = Annotated[Any, AfterValidator(_event_types)]
"""By name, attributes and their kinds. `key` names the key attribute, unless its value is a kind."""

M = TypeVar("M", bound=Section)


def validated(section: type[M], document: object, path: str | Path, wrong: type[CoveyError]) -> M:
    try:
        return section.model_validate(document)
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
    path_below = details.get("ctx", {}).get("at", ())
    field = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in (*details["loc"], *path_below)
    )
    text = details["msg"]
    if details["type"] == "missing":
        text = "is missing"
    elif details["type"] != "complaint":
        expected = text.removeprefix("Value error, expected ").removeprefix("Input should be ")
        if expected.startswith(("greater", "less")):
            expected = f"a number {expected}"
        text = f"is {details['input']!r}: expected {expected}"
    raise wrong(f"{path}: {field.lstrip('.') or 'the document'} {text}")
