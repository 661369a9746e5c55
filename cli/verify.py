"""`covey verify`: whether what a broker has stored is sound."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covey.cli.support.options import Json


def verify(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A broker's directory, or the one above it.")
    ],
    json_output: Json = False,
) -> None:
    """Read all that brokers have stored in a directory, and report what is damaged.

    Changes nothing, and may run beside the broker: then the last segment may end in a record that is being
    written (torn), which is no damage. Exits with 1 if anything is damaged.

    Example: covey verify /var/lib/covey/b1
    """
    from covey.cli.administration.verifying import verify_directory
    from covey.cli.support.output import print_json
    from covey.cli.support.progress import progress

    with progress() as on_progress:
        reports = list(verify_directory(directory, on_progress))
    if json_output:
        print_json([report.as_dict() for report in reports])
    else:
        for report in reports:
            print(report.line())
    raise typer.Exit(0 if all(report.sound for report in reports) else 1)
