"""`covey broker`: one broker of an overlay, in this process; brokers that join and leave."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from covey.cli.support.options import NO_ACCESS, Access, with_access

if TYPE_CHECKING:
    from covey.cli.administration.membership import Change
    from covey.overlay.client.unary import OverviewReader
    from covey.overlay.transport.credentials import Credentials

broker = typer.Typer(help="Run one broker of an overlay; let one join or leave.")

Name = Annotated[str, typer.Argument(help="Name of the broker.", show_default=False)]
File = Annotated[
    Path, typer.Option("--overlay", help="The overlay file, which is changed.", show_default=False)
]
Skip = Annotated[
    list[str] | None,
    typer.Option(help="A broker that does not run: it reads the file when it starts. May be repeated."),
]
Wait = Annotated[float, typer.Option(min=0, help="Seconds to wait for the new links; 0: not at all.")]


@broker.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option(help="The overlay file; default COVEY_CONFIG.", show_default=False)
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the broker; default COVEY_BROKER.", show_default=False)
    ] = None,
    parent: Annotated[int | None, typer.Option(hidden=True, help="Stop when this parent is gone.")] = None,
) -> None:
    """Run one broker of an overlay until SIGTERM or Ctrl-C, which drain it. SIGHUP reloads the overlay file.

    Environment variables: COVEY_LISTEN (addresses to listen at), COVEY_ROUTING (parametric or static),
    COVEY_LOG (DEBUG, INFO, WARNING or ERROR; overrides log_level of the file) and COVEY_LOG_FORMAT (plain or
    json). Exits with 2 if the configuration is wrong, and with 1 if an address cannot be bound.

    Example: covey broker --config examples/five.yaml --name b1
    """
    if context.invoked_subcommand is not None:
        return
    from covey.overlay.node.main import run_broker

    raise typer.Exit(run_broker(config, name, parent, _overview))


def _overview(address: str, credentials: Credentials) -> OverviewReader:
    """For the status page of a broker; the import waits until a page is served."""
    from covey.overlay.client.unary import OverviewReader

    return OverviewReader(address, credentials)


@broker.command()
@with_access
def join(
    name: Name,
    overlay: File,
    link: Annotated[list[str], typer.Option(help="The broker to link it to.", show_default=False)],
    address: Annotated[str, typer.Option(help="Its address, HOST:PORT or unix:PATH.", show_default=False)],
    listen: Annotated[str, typer.Option(help="Where it listens, if elsewhere.", show_default=False)] = "",
    skip: Skip = None,
    wait: Wait = 60.0,
    access: Access = NO_ACCESS,
) -> None:
    """Add a broker to a running overlay, without a restart of the others.

    Adds it to the overlay file, keeping comments, has the running brokers reload that, and waits until the
    new broker, which is started by covey broker, is linked. Nothing is changed if the file would be wrong, or
    a broker does not answer. It needs the right to administer. Ends with 1 if the broker is not linked in
    time.

    Example: covey broker join b6 --overlay five.yaml --link b2 --address 127.0.0.1:7006
    """
    from covey.cli.administration.membership import Change, OverlayEdit

    with OverlayEdit(overlay) as edit:
        edit.add(name, address, link, listen)
        _make(Change(edit, name, skip or (), access), wait)


@broker.command()
@with_access
def leave(
    name: Name, overlay: File, skip: Skip = None, wait: Wait = 60.0, access: Access = NO_ACCESS
) -> None:
    """Take a broker out of a running overlay, without a restart of the others.

    Takes it out of the overlay file, keeping comments; its neighbours are linked to one of them. The broker
    sends on what it has, disconnects its clients and ends; then the others reload the file. It needs the
    right to administer. Ends with 1 if the links are not there in time.

    Example: covey broker leave b2 --overlay five.yaml
    """
    from covey.cli.administration.membership import Change, OverlayEdit

    with OverlayEdit(overlay) as edit:
        edit.remove(name)
        _make(Change(edit, name, skip or (), access), wait)


def _make(change: Change, wait_s: float) -> None:
    from covey.cli.support.waiting import run_until_signal

    run_until_signal(change.make(wait_s))
