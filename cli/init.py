"""`covey init`: an overlay file by a few questions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from covey.cli.administration.first_overlay import Wanted, write_overlay
from covey.cli.support.options import words
from covey.matcher.errors import InputError


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The overlay file to write.")] = Path(
        "overlay.yaml"
    ),
    name: Annotated[str | None, typer.Option(help="Name of the overlay.", show_default=False)] = None,
    brokers: Annotated[int | None, typer.Option(help="How many brokers.", show_default=False)] = None,
    hosts: Annotated[
        str | None, typer.Option(help="Where they run: localhost, or h1,h2,h3.", show_default=False)
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1_024, max=60_000, help="The first port.", show_default=False)
    ] = None,
    tls: Annotated[
        bool | None, typer.Option("--tls/--no-tls", help="Encrypt connections.", show_default=False)
    ] = None,
    tokens: Annotated[
        bool | None,
        typer.Option("--tokens/--no-tokens", help="Clients need a token.", show_default=False),
    ] = None,
    durable: Annotated[
        str | None,
        typer.Option(help="Types whose events survive a crash: Quote,Order.", show_default=False),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Ask nothing: take the default of what is not given.")
    ] = False,
) -> None:
    """Write an overlay file, with the keys and certificates that it names, by a few questions.

    Each question has an option. Nothing that is there is replaced.

    Example: covey init overlay.yaml --brokers 3 --yes
    """
    if file.exists():
        raise InputError(f"{file} is there already: expected the name of a new file")

    def answer(given: Any, question: str, default: Any, ask: Callable[..., Any] = typer.prompt) -> Any:
        if given is not None:
            return given
        return default if yes else ask(question, default=default)

    overlay = answer(name, "Name of the overlay", file.resolve().parent.name or "covey")
    count = answer(brokers, "How many brokers", 3)
    where = words(answer(hosts, "Hosts, with commas between them", "localhost"))
    first = answer(port, "Their first port", 7_001)
    encrypted = answer(tls, "Encrypt connections (TLS)", False, typer.confirm)
    with_tokens = answer(tokens, "Do clients need a token", False, typer.confirm)
    stored = answer(durable, "Types whose events survive a crash, with commas between them", "")
    types = words(stored) if stored.strip() else ()
    wanted = Wanted(overlay, count, where, first, encrypted, with_tokens, types)
    for path in write_overlay(file, wanted):
        print(f"wrote {path}")
    if encrypted or with_tokens:
        print("clients connect as in docs/how-to-secure.md")
    if wanted.local:
        print(f"next: covey doctor {file}, then covey up {file}")
    else:
        print(f"next: on each machine, with these files: covey doctor {file}, then")
        print(f"      covey broker --config {file} --name {wanted.names[0]}")
