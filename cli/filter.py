"""`covey filter`: filters of other systems; `covey operators`: the named operators of filters."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from covey.cli.support.options import Json, Modules, import_modules
from covey.cli.support.output import console, print_json
from covey.matcher import dialects
from covey.matcher.operators.named_operator import Takes
from covey.matcher.operators.table import find, names, why_missing

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
    print(dialects.translate(text, language))


def operators(modules: Modules = None, json_output: Json = False) -> None:
    """List the named operators that a filter may call here: those of installed packages, and of modules.

    A broker has those of its own machine (docs/operators.md).

    Example: covey operators --json
    """
    import_modules(modules or ())
    entries = [_entry(name) for name in names()]
    if json_output:
        print_json(entries)
        return
    _print(entries)
    for entry in entries:
        if not entry["usable"]:
            print(f"{entry['name']}: {entry['reason']}")


def _entry(name: str) -> dict[str, Any]:
    operator = find(name)
    if operator is None:
        return {"name": name, "usable": False, "reason": why_missing(name)}
    words = {
        Takes.ATTRIBUTE: "attribute",
        Takes.CONSTANT: "constant or variable",
        Takes.FREE: "free variable",
    }
    return {
        "name": name,
        "usable": True,
        "signature": operator.signature,
        "summary": operator.summary,
        "parameters": [
            {
                "name": parameter.name,
                "kinds": sorted(parameter.kinds),
                "takes": [word for takes, word in words.items() if takes in parameter.takes],
            }
            for parameter in operator.parameters
        ],
        "optional": operator.optional,
        "variadic": operator.variadic,
        "version": operator.version,
        "cost_us": operator.cost_us,
        "bounded": operator.bounded,
        "stateful": operator.stateful,
        "covers": operator.covers is not None,
        "bounds": operator.bounds is not None,
        "package": operator.package,
    }


def _print(entries: list[dict[str, Any]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("Call", "Summary", "Needs", "Cost", "Covers", "State"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "Cost" else "left")
    for entry in entries:
        if not entry["usable"]:
            table.add_row(entry["name"], "[dim]not usable here[/dim]", "", "", "", "")
            continue
        cost = entry["cost_us"]
        table.add_row(
            escape(entry["signature"]),
            escape(entry["summary"]),
            escape(entry["package"]),
            "measured" if cost is None else f"{cost:g} µs",
            "wider arguments" if entry["covers"] else "equal arguments",
            "earlier events" if entry["stateful"] else "none",
        )
    console().print(table)
