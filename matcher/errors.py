"""The errors of event types, filters, values and batches. Each names the field, the value and what was
expected."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class CoveyError(Exception):
    """The base of all errors that Covey raises on purpose; the overlay maps each class to one gRPC status."""


class InputError(CoveyError, ValueError):
    """An option or a document of a user is wrong; a command exits with 2, as for every `ValueError`."""


def closest_of(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the closest known name, else all of them."""
    names = list(known)
    close = get_close_matches(name, names, n=1)
    return f": did you mean {close[0]}?" if close else f": expected one of {', '.join(names)}"


class EventTypeError(CoveyError, ValueError):
    """An event type's name or attributes are not acceptable, or two types of one name differ."""


class EventError(CoveyError, ValueError):
    """An event, or a batch of events, does not fit its event type."""


class FilterError(CoveyError, ValueError):
    """A filter does not fit its event type: unknown attribute, operator or operand of the wrong kind."""


_EXCERPT = 100


def _excerpt(text: str, column: int) -> tuple[str, int]:
    """The line of the text at the column, cut to a readable length, and the column in that line."""
    start = text.rfind("\n", 0, column) + 1
    end = text.find("\n", column)
    line, caret = text[start : len(text) if end < 0 else end], column - start
    if len(line) > _EXCERPT:
        cut = max(0, min(caret - _EXCERPT // 2, len(line) - _EXCERPT))
        before, after = "..." if cut else "", "..." if cut + _EXCERPT < len(line) else ""
        line, caret = before + line[cut : cut + _EXCERPT] + after, caret - cut + len(before)
    return "".join(character if character.isprintable() else " " for character in line), caret


class FilterSyntaxError(FilterError):
    """Text that is no filter. `text` is the whole input, `column` the offending position in it, from 0.
    `str(error)` has three lines: the sentence, the text (shortened around the column), and a caret below the
    column."""

    def __init__(self, message: str, text: str, column: int) -> None:
        line, caret = _excerpt(text, column)
        super().__init__(f"{message}\n  {line}\n  {' ' * caret}^")
        self.message = message
        self.text = text
        self.column = column

    def __reduce__(self) -> tuple[type[FilterSyntaxError], tuple[str, str, int]]:
        return FilterSyntaxError, (self.message, self.text, self.column)


class VariableError(FilterError):
    """A variable is unbound, unknown, or given a value of the wrong kind."""


class CapacityError(FilterError):
    """An engine has no room for a filter or its values beside those of other subscriptions."""


class OperatorError(CoveyError, ValueError):
    """The function of a named operator returned something its declaration excludes."""


class SubscriptionError(CoveyError, KeyError):
    """A subscription id is unknown, or already taken."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class StaleMatchesError(CoveyError, RuntimeError):
    """A result of `Matches` is read after the engine's subscriptions have changed."""


class SnapshotError(CoveyError, ValueError):
    """A file is no snapshot of a matcher, an incomplete one, or of another version."""
