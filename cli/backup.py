"""`covey backup`: a copy of what brokers have stored, while they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def backup(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A broker's directory, or the one above it.")
    ],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="A new or an empty directory.")],
) -> None:
    """Copy what brokers have stored, while they run.

    The copy is checked as by covey verify. To go back to it, stop the broker, put the copy in the place of
    its directory, and start it: events that had come since are not in it.

    Example: covey backup /var/lib/covey/b1 --to /backup/b1
    """
    from covey.cli.administration.backing_up import back_up
    from covey.cli.administration.verifying import verify_directory
    from covey.cli.support.progress import progress

    with progress() as on_progress:
        copied = back_up(directory, to, on_progress)
        reports = list(verify_directory(to, on_progress))
    for report in reports:
        print(report.line())
    print(f"{to}: {copied:,} bytes copied")
    raise typer.Exit(0 if all(report.sound for report in reports) else 1)
