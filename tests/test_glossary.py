"""docs/glossary.md: the names that it gives exist, and the words that it rules out are in no name."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("bridge", "cli", "gateway", "matcher", "overlay", "sim", "spark", "testing")
SOURCES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def rows() -> Iterator[tuple[str, list[str], list[str]]]:
    """Each line of the tables: its term, its names in the code, and the words that it rules out."""
    for line in (ROOT / "docs" / "glossary.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == 4 and cells[0] not in ("term", "---"):
            ruled_out = cells[3].strip("| ").split(", ")
            yield cells[0], re.findall(r"`(\w+)`", cells[1]), [word for word in ruled_out if word]


def names_of(path: Path) -> Iterator[str]:
    yield path.stem
    yield path.parent.name
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr


def words_of(name: str) -> str:
    """A name as words between underscores: `SlotContent` and `slot_content` are both `_slot_content_`."""
    return f"_{re.sub(r'(?<=[a-z0-9])(?=[A-Z])', '_', name).lower().strip('_')}_"


@cache
def all_names() -> dict[str, Path]:
    return {name: path for path in SOURCES for name in names_of(path)}


def test_the_names_of_the_glossary_exist() -> None:
    missing = [f"{term}: {name}" for term, names, _ in rows() for name in names if name not in all_names()]
    assert missing == []


def test_no_name_has_a_word_that_the_glossary_rules_out() -> None:
    words = {name: words_of(name) for name in all_names()}
    wrong = [
        f"{all_names()[name].relative_to(ROOT)}: {name}, see {term}"
        for term, _, ruled_out in rows()
        for word in ruled_out
        for name, spelled in words.items()
        if f"_{word}_" in spelled
    ]
    assert wrong == []
