"""`covey inspect`: the state of a broker; `covey health`: the health check of the container image."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import typer

from covey.cli.support.options import BROKER, NO_ACCESS, Access, Broker, Json, with_access

_KERNELS = {
    "SERVING": "ready",
    "NOT_SERVING": "compiling or loading; filters are evaluated without them until then",
    "UNKNOWN": "failed (see the broker's log); filters are evaluated without them",
}
_NOT_READY = 3


@with_access
def health(
    broker: Broker = BROKER,
    ready: Annotated[
        bool, typer.Option("--ready", help="Whether every neighbour is linked and synchronised, too.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds to wait for its answer.")] = 3.0,
    access: Access = NO_ACCESS,
) -> None:
    """Check the health of a broker, by the standard gRPC health service; ends with 0 if it serves.

    With --ready it ends with 3 if the broker serves but is not ready, and prints what is missing and for how
    long. It ends with 1 if the broker does not serve or does not answer. Restart a broker for 1, never for 3:
    it may wait for a neighbour. A broker serves while its matching kernels are compiled, which takes about a
    minute once per user. Where links move, it prints the broker's upward link and why it is that one.

    Example: covey health --broker localhost:7001 --ready
    """
    from covey.overlay.transport.address import CallError

    services = ("", "covey.kernels", *(("covey.ready",) if ready else ()))
    try:
        status, kernels, *readiness = asyncio.run(_check(broker, services, timeout, access))
    except CallError as error:
        typer.echo(f"covey: broker {broker}: {error.status}: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{broker} {status}")
    typer.echo(f"kernels: {_KERNELS.get(kernels, 'unknown')}")
    state = asyncio.run(_state(broker, timeout, access))
    upward = state.get("upward_link")
    if upward is not None:
        typer.echo(f"upward link: {upward['broker'] or 'none'}, {upward['why']}")
    if status == "SERVING" and readiness:
        # By the state alone where it can be read: it is newer than the answer of the health service.
        missing = state.get("missing")
        is_ready = readiness == ["SERVING"] if missing is None else not missing
        typer.echo("ready" if is_ready else "not ready")
        if not is_ready:
            if missing is None:
                typer.echo("  what is missing is in the broker's state: not readable here")
            for each in missing or ():
                typer.echo(f"  {each['what']}: {each['why']}, for {each['seconds']:.0f} s")
            raise typer.Exit(_NOT_READY)
    raise typer.Exit(0 if status == "SERVING" else 1)


async def _check(
    address: str, services: tuple[str, ...], timeout_s: float, access: Access = NO_ACCESS
) -> list[str]:
    """The status of each service. `CallError` after `timeout_s` seconds without an answer."""
    from grpc_health.v1 import health_pb2

    from covey.overlay.transport.address import CallError
    from covey.overlay.transport.channel import Channel

    replies = []
    try:
        async with asyncio.timeout(timeout_s), Channel(address, credentials=access.credentials) as channel:
            for name in services:
                request = health_pb2.HealthCheckRequest(service=name).SerializeToString()
                replies.append(await channel.unary("/grpc.health.v1.Health/Check", request))
    except TimeoutError:
        raise CallError("DEADLINE_EXCEEDED", f"no answer within {timeout_s:g} s") from None
    statuses = health_pb2.HealthCheckResponse.ServingStatus
    return [statuses.Name(health_pb2.HealthCheckResponse.FromString(reply).status) for reply in replies]


async def _state(address: str, timeout_s: float, access: Access = NO_ACCESS) -> dict[str, Any]:
    """The broker's state; empty where it may not be inspected or does not answer."""
    from covey.matcher.errors import CoveyError
    from covey.overlay.client import inspect_broker

    try:
        async with asyncio.timeout(timeout_s):
            _, state = await inspect_broker(address, listed=0, tls=access.tls, token=access.token)
    except (TimeoutError, CoveyError):
        return {}
    return state


_MAX_LISTED = 1_000
"""`MAX_LISTED` of brokers, whose module takes a second to import."""


@with_access
def inspect(
    broker: Broker = BROKER,
    limit: Annotated[
        int,
        typer.Option(
            min=0, max=_MAX_LISTED, help="Items of each list: clients, types, subscriptions and slots."
        ),
    ] = 100,
    json_output: Json = False,
    access: Access = NO_ACCESS,
) -> None:
    """Show a broker's routing state: publishers, subscriptions, slots at neighbours, and its counters.

    It says how many items of a list it leaves off, and delays no event.

    Example: covey inspect --broker localhost:7001 --json
    """
    from covey.overlay.client import inspect_broker

    text, state = asyncio.run(inspect_broker(broker, listed=limit, tls=access.tls, token=access.token))
    typer.echo(json.dumps(state, indent=2) if json_output else text.rstrip())
