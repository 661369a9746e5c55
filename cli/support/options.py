"""Options that several commands have, and what stands in those that take several values."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
_DIGITS = 18
"""Every number of so many digits is one that brokers can have given."""

Seed = Annotated[int, typer.Option(help="What everything is drawn from.")]


def words(text: str, mark: str = ",") -> tuple[str, ...]:
    """Values with a mark between, and blanks where there are some."""
    return tuple(word.strip() for word in text.split(mark))


def numbered(what: str, text: str, form: str, example: str) -> tuple[str, int]:
    """A name and a number with a mark between, as in `form`: CLIENT#NUMBER. `CoveyError` for what is none."""
    from covey.matcher.errors import CoveyError

    mark = next(sign for sign in form if not sign.isalpha())
    name, found, number = text.rpartition(mark)
    if not found or not name or not number.isdecimal() or len(number) > _DIGITS:
        raise CoveyError(f"{what} {text!r}: expected {form}, such as {example}")
    return name, int(number)


def counts(name: str, text: str) -> tuple[int, ...]:
    """Whole numbers from 1 up with commas between; `CoveyError` naming the option for what is none."""
    from covey.matcher.errors import CoveyError

    try:
        found = tuple(int(word.replace("_", "")) for word in words(text))
    except ValueError:
        found = (0,)
    if min(found) < 1:
        raise CoveyError(f"{name} {text!r}: expected numbers from 1 up, with commas between")
    return found
