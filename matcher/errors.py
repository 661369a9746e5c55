"""What can be wrong with an event type, a filter, a value or a batch.

Every error names the field, the value and what was expected. `CoveyError` is the root of all errors that users of
the library see; the overlay maps each class to one gRPC status.
"""


class CoveyError(Exception):
    """Root of every error that Covey raises on purpose."""


class EventTypeError(CoveyError, ValueError):
    """An event type's name or attributes are not acceptable, or two types of one name differ."""


class EventError(CoveyError, ValueError):
    """An event, or a batch of events, does not fit its event type."""


class FilterError(CoveyError, ValueError):
    """A filter does not fit its event type: unknown attribute, operator or operand of the wrong kind."""


class FilterSyntaxError(FilterError):
    """Text that is no filter.

    `text` is the whole input, `column` the offending position in it, counted from 0. `str(error)` shows three lines:
    the sentence, the text, and a caret below the column.
    """

    def __init__(self, message: str, text: str, column: int) -> None:
        super().__init__(f"{message}\n  {text}\n  {' ' * column}^")
        self.message = message
        self.text = text
        self.column = column


class VariableError(FilterError):
    """A variable is unbound, unknown, or given a value of the wrong kind."""


class SubscriptionError(CoveyError, KeyError):
    """A subscription id is unknown, or already taken."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""
