"""`covey gateway`: WebSocket and server-sent events for browsers, in front of a broker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covey.cli.support.options import (
    BROKER,
    NO_ACCESS,
    Access,
    Broker,
    Modules,
    import_modules,
    option,
    taking,
    with_access,
)

if TYPE_CHECKING:
    from starlette.applications import Starlette

_LISTENING = "Listening"


_BOUNDS = tuple(
    option(name, int, text, default=default)
    for name, default, text in (
        ("max_connections", 10_000, "Connections of all browsers."),
        ("max_connections_per_address", 100, "Connections of one address."),
        ("max_sessions", 10_000, "Sessions, those of the last 30 s included."),
        ("max_message_bytes", 65_536, "Bytes of a message of a browser."),
        ("max_messages_per_s", 200, "Messages per second of a browser."),
        ("max_filter_bytes", 4_096, "Bytes of a filter of a browser."),
        ("max_views", 10, "Views of a browser, of its 100 subscriptions."),
        ("max_view_keys", 50_000, "Keys inside of a view, which ends beyond."),
        ("queue_bytes", 1 << 20, "Bytes that wait for a browser."),
        ("max_pending_bytes", 1 << 30, "Bytes that wait for all browsers."),
    )
)


@with_access
@taking("bounds", _BOUNDS)
def gateway(
    *,
    broker: Broker = BROKER,
    listen: Annotated[
        str, typer.Option(help="Address to listen at.", rich_help_panel=_LISTENING)
    ] = "127.0.0.1:8080",
    publish: Annotated[
        list[str] | None,
        typer.Option(help="Event types that browsers may publish, as a glob. Repeatable; none by default."),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            help="Origin of pages from elsewhere that may connect, such as https://app.example; * for all. "
            "Repeatable.",
            rich_help_panel=_LISTENING,
        ),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="Name by which pages reach this gateway, where it listens on loopback and a proxy passes "
            "theirs on; requests for other names are refused. Repeatable.",
            rich_help_panel=_LISTENING,
        ),
    ] = None,
    serve_certificate: Annotated[
        Path | None, typer.Option(help="PEM file of the gateway's certificate.", rich_help_panel=_LISTENING)
    ] = None,
    serve_key: Annotated[
        Path | None, typer.Option(help="PEM file of its key.", rich_help_panel=_LISTENING)
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Listen beyond this machine without TLS.", rich_help_panel=_LISTENING
        ),
    ] = False,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            help="Address or network of a proxy whose X-Forwarded-For names the browser; unix for one that "
            "connects to --listen unix:PATH. Repeatable.",
            rich_help_panel=_LISTENING,
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(help="HOST:PORT that serves /metrics for Prometheus.", rich_help_panel=_LISTENING),
    ] = None,
    allow_block: Annotated[
        bool,
        typer.Option("--allow-block", help="Browsers without a token may ask that publishers wait for them."),
    ] = False,
    modules: Modules = None,
    bounds: dict[str, Any],
    access: Access = NO_ACCESS,
) -> None:
    """Serve browsers until SIGTERM or Ctrl-C: WebSocket at /socket, server-sent events at /events/TYPE.

    The page's client is at /covey.js, with types at /covey.d.ts. /openapi.json and /asyncapi.json describe
    everything. The options for TLS and tokens are those of the gateway as a client of the broker: browsers
    that bring no token of their own may do what it may.

    Needs Covey's extra `gateway`. docs/how-to-browser.md has an example of a page.

    Example: covey gateway --broker localhost:7001 --listen 127.0.0.1:8080
    """
    import asyncio
    import gc

    from covey.gateway import Limits, application
    from covey.gateway.application import hosts_of
    from covey.gateway.server import bind, server
    from covey.matcher.errors import InputError
    from covey.overlay.node.server import descriptor_limit
    from covey.overlay.transport.event_loop import run

    import_modules(modules or ())
    if (serve_certificate is None) is not (serve_key is None):
        raise InputError("--serve-certificate and --serve-key: expected both or none")
    limits = Limits(**bounds)
    descriptor_limit()  # raises it as far as it may
    listener = bind(listen, tls=serve_certificate is not None, insecure=insecure)
    app = application(
        broker,
        tls=access.tls,
        token=access.token,
        publish=publish or (),
        origins=origin or (),
        hosts=hosts_of(listen, tuple(host or ())),
        allow_block=allow_block,
        limits=limits,
    )

    async def serve() -> None:
        serving = server(
            app, limits, certificate=serve_certificate, key=serve_key, proxies=tuple(proxy or ())
        )
        if metrics is not None:
            serve_metrics(app, metrics)
        done = asyncio.create_task(serving.serve(sockets=[listener]))
        while not serving.started and not done.done():
            await asyncio.sleep(0.01)
        if serving.started:
            scheme = "http" if serve_certificate is None else "https"
            print(f"gateway to {broker} at {scheme}://{listen}", flush=True)
            await warn_of(broker)
        # A full collection takes 190 ms with 1,000 browsers, in which no frame is sent. At these rates there
        # is one per million objects that stay, some 100 MB if all were garbage.
        gc.freeze()
        gc.set_threshold(5_000, 10, 20)
        await done

    run(serve())


async def warn_of(broker: str) -> None:
    """Print one line if nothing listens at the address; each session tries it again."""
    import asyncio

    from covey.overlay.transport.address import UnixAddress, parse_address

    address = parse_address(broker)
    try:
        async with asyncio.timeout(5):
            if isinstance(address, UnixAddress):
                _, writer = await asyncio.open_unix_connection(address.path)
            else:
                _, writer = await asyncio.open_connection(address.host, address.port)
        writer.close()
    except (OSError, UnicodeError) as error:  # a TimeoutError too, and a name that no host has
        why = getattr(error, "strerror", None) or str(error) or "no answer within 5 s"
        line = f"warning: no broker answers at {broker} ({why}): tried again for each browser"
        print(line, file=sys.stderr, flush=True)


def serve_metrics(app: Starlette, address: str) -> None:
    """Serve a gateway's metrics at an address of their own, until the process ends. `InputError` for a
    malformed address, `BindError` for one that cannot be bound."""
    from covey.gateway.metrics import collector
    from covey.gateway.server import BindError
    from covey.matcher.errors import InputError
    from covey.overlay.scraping import ScrapeServer
    from covey.overlay.transport.address import UnixAddress, parse_address

    try:
        where = parse_address(address)
    except ValueError as error:
        raise InputError(f"--metrics {address!r}: {error}") from None
    if isinstance(where, UnixAddress):
        raise InputError(f"--metrics {address!r}: expected HOST:PORT")
    try:
        ScrapeServer(where.host, where.port, collector(app.state.sessions))
    except OSError as error:
        raise BindError(f"{address}: cannot listen: {error.strerror or error}") from None
