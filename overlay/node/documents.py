"""YAML documents that users write: overlay files, scenarios, sweeps.

Invariant: a document says what its file shows: a key that stands twice is an error, in whatever mapping, and
does not take the place of the first. What a document may say is for its reader to check.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from covey.matcher.errors import CoveyError


class _UniqueKeys(yaml.SafeLoader):
    """A safe loader that does not let a second key of one name take the place of the first."""

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
    """What a YAML file says; `wrong`, naming the file and why, for one that cannot be read or is no YAML."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise wrong(f"{path}: cannot be read: {reason}") from None
    try:
        return yaml.load(text, Loader=_UniqueKeys)  # a SafeLoader
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that is none
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        reason = getattr(error, "problem", None) or str(error)
        raise wrong(f"{path}: no YAML{place}: {' '.join(reason.split())}") from None
