"""Options that several commands share, and parsers of their values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_DIGITS = 18
"""Every number of so many digits fits an int64."""

Master = Annotated[
    str | None,
    typer.Option(
        help="Where Spark runs: local[2], spark://HOST:PORT, yarn, sc://HOST:PORT of Spark Connect.",
        show_default="all cores of this machine",
    ),
]

Seed = Annotated[int, typer.Option(help="Seed of the random numbers.")]


def words(text: str, mark: str = ",") -> tuple[str, ...]:
    """The values of a text separated by `mark`, without surrounding blanks."""
    return tuple(word.strip() for word in text.split(mark))


def numbered(what: str, text: str, form: str, example: str) -> tuple[str, int]:
    """A name and a number, separated as in `form`, such as CLIENT#NUMBER. Raises `InputError` if `text`
    differs."""
    from covey.matcher.errors import InputError

    mark = next(sign for sign in form if not sign.isalpha())
    name, separator, number = text.rpartition(mark)
    if not separator or not name or not number.isdecimal() or len(number) > _DIGITS:
        raise InputError(f"{what} {text!r}: expected {form}, such as {example}")
    return name, int(number)


def counts(name: str, text: str) -> tuple[int, ...]:
    """Positive integers separated by commas. Raises `InputError` with the name of the option."""
    from covey.matcher.errors import InputError

    try:
        numbers = tuple(int(word.replace("_", "")) for word in words(text))
    except ValueError:
        numbers = (0,)
    if min(numbers) < 1:
        raise InputError(f"{name} {text!r}: expected positive integers separated by commas")
    return numbers


def choices(name: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Known words separated by commas. Raises `InputError` with the name of the option."""
    from covey.matcher.errors import InputError

    chosen = words(text)
    for word in chosen:
        if word not in known:
            raise InputError(f"{name} {word!r}: expected some of {', '.join(known)}, separated by commas")
    return chosen


def check_output(option: str, path: Path) -> None:
    """Raises `typer.BadParameter`, before any work is done, for a file that could not be written after it."""
    if not path.parent.is_dir():
        raise typer.BadParameter(f"{path.parent} is no folder", param_hint=option)
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder, expected a file", param_hint=option)
