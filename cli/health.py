"""`covey health`: whether a broker serves; the health check of the container image."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

_KERNELS = {
    "SERVING": "ready",
    "NOT_SERVING": "compiling or loading; filters are evaluated without them until then",
    "UNKNOWN": "failed (see the broker's log); filters are evaluated without them",
}


def health(
    broker: Annotated[
        str, typer.Option(help="Address of the broker, HOST:PORT or unix:PATH.")
    ] = "localhost:7001",
    timeout: Annotated[float, typer.Option(help="Seconds to wait for its answer.")] = 3.0,
) -> None:
    """Check the health of a broker, by the standard gRPC health service; ends with 0 if it serves.

    A broker serves while its matching kernels are compiled, which takes about a minute once per machine.

    Example: covey health --broker localhost:7001
    """
    from covey.overlay.transport.call_error import CallError

    try:
        status, kernels = asyncio.run(_check(broker, ("", "covey.kernels"), timeout))
    except CallError as error:
        typer.echo(f"covey: broker {broker}: {error.status}: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{broker} {status}")
    typer.echo(f"kernels: {_KERNELS.get(kernels, 'unknown')}")
    raise typer.Exit(0 if status == "SERVING" else 1)


async def _check(address: str, services: tuple[str, ...], timeout_s: float) -> list[str]:
    """The status of each service. `CallError` if the broker does not answer within `timeout_s` seconds."""
    from grpc_health.v1 import health_pb2

    from covey.overlay.transport.call_error import CallError
    from covey.overlay.transport.channel import Channel

    replies = []
    try:
        async with asyncio.timeout(timeout_s), Channel(address) as channel:
            for name in services:
                request = health_pb2.HealthCheckRequest(service=name).SerializeToString()
                replies.append(await channel.unary("/grpc.health.v1.Health/Check", request))
    except TimeoutError:
        raise CallError("DEADLINE_EXCEEDED", f"no answer within {timeout_s:g} s") from None
    statuses = health_pb2.HealthCheckResponse.ServingStatus
    return [statuses.Name(health_pb2.HealthCheckResponse.FromString(reply).status) for reply in replies]
