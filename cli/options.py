"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Seed = Annotated[int, typer.Option(help="What everything is drawn from.")]
