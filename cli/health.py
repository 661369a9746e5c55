"""`covey health`: whether a broker serves; the health check of the container image."""

from __future__ import annotations

from typing import Annotated

import typer


def health(
    broker: Annotated[str, typer.Option(help="Address of the broker, HOST:PORT.")] = "localhost:7001",
    timeout: Annotated[float, typer.Option(help="Seconds to wait for its answer.")] = 3.0,
) -> None:
    """Ask a broker for its health, by the standard gRPC health service; ends with 0 if it serves.

    Example: covey health --broker localhost:7001
    """
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(broker, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            reply = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=timeout
            )
        except grpc.RpcError as error:
            typer.echo(f"covey: broker {broker}: {error.code().name}: {error.details()}", err=True)
            raise typer.Exit(1) from None
    state = health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)
    typer.echo(f"{broker} {state}")
    raise typer.Exit(0 if reply.status == health_pb2.HealthCheckResponse.SERVING else 1)
