"""`covey health`: whether a broker serves; the health check of the container image."""

from __future__ import annotations

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
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    status = health_pb2.HealthCheckResponse
    with grpc.insecure_channel(broker, options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            reply = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout)
            kernels = stub.Check(health_pb2.HealthCheckRequest(service="covey.kernels"), timeout=timeout)
        except grpc.RpcError as error:
            typer.echo(f"covey: broker {broker}: {error.code().name}: {error.details()}", err=True)
            raise typer.Exit(1) from None
    typer.echo(f"{broker} {status.ServingStatus.Name(reply.status)}")
    typer.echo(f"kernels: {_KERNELS.get(status.ServingStatus.Name(kernels.status), 'unknown')}")
    raise typer.Exit(0 if reply.status == status.SERVING else 1)
