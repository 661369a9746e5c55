"""`covey doctor`: what is missing on this machine, and whether an overlay file can work on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from covey.cli.administration.machine_checks import Finding, State, machine_findings
from covey.cli.administration.overlay_checks import overlay_findings
from covey.cli.support.options import Json
from covey.cli.support.output import console, print_json

_STYLES = {"ok": "green", "note": "yellow", "wrong": "red"}


def doctor(
    overlay: Annotated[
        Path | None,
        typer.Argument(metavar="OVERLAY", help="An overlay file to check.", show_default=False),
    ] = None,
    json_output: Json = False,
) -> None:
    """Check what this machine has, and whether an overlay file can work, before anything starts.

    Of the file: addresses, ports, certificates and keys, the storage of this machine's brokers, the tree. A
    note costs something or concerns some commands only. Exits with 1 if anything is wrong.

    Example: covey doctor overlay.yaml
    """
    parts = {"this machine": list(machine_findings())}
    if overlay is not None:
        parts[str(overlay)] = list(overlay_findings(overlay))
    wrong = sum(each.state is State.WRONG for found in parts.values() for each in found)
    if json_output:
        print_json({part: [asdict(each) for each in found] for part, found in parts.items()})
    else:
        for part, found in parts.items():
            _print(part, found)
        print(f"wrong: {wrong}" if wrong else "nothing is wrong")
    raise typer.Exit(1 if wrong else 0)


def _print(part: str, found: Sequence[Finding]) -> None:
    table = Table(title=part, title_justify="left", box=None, show_header=False, pad_edge=False)
    for each in found:
        text = f"{each.text} (docs/{each.page})" if each.page else each.text
        style = _STYLES[each.state]
        table.add_row(Text(each.state, style=style), Text(each.subject), Text(text, overflow="fold"))
    console().print(table)
    print()
