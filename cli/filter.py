"""`covey filter`: filters of other systems."""

from __future__ import annotations

from typing import Annotated

import typer

filter_ = typer.Typer(no_args_is_help=True)


@filter_.callback()
def group() -> None:
    """Translate filters of other systems.

    Example: covey filter translate "firm LIKE 'I%' AND price < :limit"
    """


@filter_.command("translate")
def translate(
    text: Annotated[str, typer.Argument(metavar="FILTER", help="A selector, or a pattern as JSON.")],
    language: Annotated[str, typer.Option("--from", help="Its language: sql or eventbridge.")] = "sql",
) -> None:
    """Print a filter of another system in Covey's language (docs/dialects.md).

    Example: covey filter translate --from eventbridge '{"firm": [{"prefix": "I"}]}'
    """
    from covey.matcher.dialects import translate as translated

    print(translated(text, language))
