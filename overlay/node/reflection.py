"""Server reflection (grpc.reflection.v1alpha): tools learn the contract from the broker."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha import reflection, reflection_pb2

from covey.overlay.transport.address import CallError
from covey.overlay.transport.rpc_call import RpcCall
from covey.overlay.transport.rpc_server import Handler

SERVICE: str = reflection.SERVICE_NAME


def reflection_handlers(services: Iterable[str]) -> dict[str, Handler]:
    """The handler of the one call, by its path; it describes these services."""
    servicer = reflection.ReflectionServicer(services)

    async def answer(call: RpcCall) -> None:
        while (data := await call.read()) is not None:
            try:
                request = reflection_pb2.ServerReflectionRequest.FromString(data)
            except DecodeError:
                raise CallError("INVALID_ARGUMENT", f"{len(data)} bytes are no {SERVICE} request") from None
            for reply in servicer.ServerReflectionInfo(iter((request,)), None):
                call.send(reply.SerializeToString())
            await call.sent()

    return {f"/{SERVICE}/ServerReflectionInfo": answer}
