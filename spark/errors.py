"""What a user of the data source may get wrong; Spark shows the sentence at the end of its exception."""

from __future__ import annotations

from covey.matcher.errors import CoveyError


class SourceError(CoveyError, ValueError):
    """An option, a schema or a column does not fit; or events are gone that a query asks for again."""
