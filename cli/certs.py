"""`covey certs`: a development authority and the certificates of an overlay."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covey.cli.support.options import words
from covey.matcher.errors import InputError
from covey.overlay.node.config import load_overlay
from covey.overlay.node.overlay import Overlay
from covey.overlay.transport.address import TcpAddress, parse_address, split_addresses


def certs(
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="The folder of the certificates.")],
    config: Annotated[
        Path | None, typer.Option(help="The overlay file: its name, brokers and hosts.", show_default=False)
    ] = None,
    brokers: Annotated[
        str | None, typer.Option(help="Names of brokers instead: b1,b2.", show_default=False)
    ] = None,
    overlay: Annotated[
        str | None, typer.Option(help="Name of the overlay, with --brokers.", show_default=False)
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(help="More hosts at which clients reach the brokers: h1,10.0.0.7.", show_default=False),
    ] = None,
    clients: Annotated[
        str | None, typer.Option(help="Names of clients that get certificates: a,b.", show_default=False)
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3_650, help="How long they are valid.")] = 365,
) -> None:
    """Make an authority for development, and a certificate for each broker and client.

    OUT/authority.pem is what brokers and clients verify by, OUT/NAME.pem and OUT/NAME.key are a broker's, and
    OUT/clients/NAME.pem a client's. A second call uses the authority again and renews the certificates:
    running brokers read them at the next handshake. Keep authority.key where no broker can read it.

    Example: covey certs certs --config overlay.yaml --clients trader-1
    """
    if (config is None) == (brokers is None):
        raise InputError("expected --config with an overlay file, or --brokers with names, not both")
    if brokers is not None and not overlay:
        raise InputError("--brokers without --overlay: expected the name that the overlay file has")
    more = _names("--hosts", hosts)
    if config is not None:
        loaded = load_overlay(config)
        name, hosts_of = loaded.name, _hosts(loaded)
    else:
        name, hosts_of = overlay or "", {each: [] for each in _names("--brokers", brokers)}
    try:
        from covey.cli.administration.certificates import make_certificates
    except ModuleNotFoundError as error:
        raise InputError(f"covey certs needs {error.name}: `pip install 'covey[security]'`") from None
    wanted = {broker: [*found, *more] for broker, found in hosts_of.items()}
    made = make_certificates(folder, name, wanted, _names("--clients", clients), days)
    print(f"{folder / 'authority.pem'}: the authority")
    for path in made:
        print(path)


def _names(option: str, text: str | None) -> list[str]:
    names = [] if text is None else list(words(text))
    if not all(names):
        raise InputError(f"{option} {text!r}: expected names separated by commas")
    return names


def _hosts(overlay: Overlay) -> dict[str, list[str]]:
    """Hosts by broker, without addresses that stand for every host."""
    hosts: dict[str, list[str]] = {}
    for name, broker in overlay.brokers.items():
        where = [parse_address(each) for each in (broker.address, *split_addresses(broker.listen))]
        named = [each.host for each in where if isinstance(each, TcpAddress)]
        hosts[name] = [host for host in named if host not in ("0.0.0.0", "::")]
    return hosts
