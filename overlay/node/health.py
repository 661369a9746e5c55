"""The standard gRPC services: health (grpc.health.v1), and reflection (grpc.reflection.v1alpha), by which
tools learn the contract from the broker.

The status of a service is computed when it is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from covey.overlay.transport.address import CallError
from covey.overlay.transport.calls import RpcCall
from covey.overlay.transport.rpc_server import Handler, answer_with

_POLL_S = 0.5
"""How often a status that is watched is computed; a broker that stops leaves calls longer than that."""

HEALTH_SERVICE: str = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
REFLECTION_SERVICE: str = reflection.SERVICE_NAME


class Status(IntEnum):
    """`HealthCheckResponse.ServingStatus`."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


class Health:
    """The health of some services, by name."""

    def __init__(self, statuses: Mapping[str, Callable[[], Status]]) -> None:
        self._statuses = statuses

    def handlers(self) -> dict[str, Handler]:
        """The handlers of the calls, by path."""
        handlers: dict[str, Handler] = {
            f"/{HEALTH_SERVICE}/Check": answer_with(self._check),
            f"/{HEALTH_SERVICE}/Watch": self._watch,
        }
        if hasattr(health_pb2, "HealthListResponse"):
            handlers[f"/{HEALTH_SERVICE}/List"] = answer_with(self._list)
        return handlers

    def _check(self, request: bytes) -> bytes:
        name = _service_of(request)
        if name not in self._statuses:
            known = ", ".join(filter(None, self._statuses))
            raise CallError("NOT_FOUND", f"no service {name!r}: it has {known}")
        return _response(self._status(name))

    def _status(self, name: str) -> Status:
        computed = self._statuses.get(name)
        return Status.SERVICE_UNKNOWN if computed is None else computed()

    def _list(self, request: bytes) -> bytes:
        reply = health_pb2.HealthListResponse()
        for name in self._statuses:
            reply.statuses[name].status = self._status(name)
        return bytes(reply.SerializeToString())

    async def _watch(self, call: RpcCall) -> None:
        name = _service_of(await call.read() or b"")
        sent: Status | None = None
        ended = asyncio.ensure_future(call.ended())
        try:
            while not ended.done():
                status = self._status(name)
                if status is not sent:
                    call.send(_response(status))
                    sent = status
                await asyncio.wait({ended}, timeout=_POLL_S)
        finally:
            ended.cancel()


def is_serving(reply: bytes) -> bool:
    """Whether the reply to a Check says so."""
    try:
        status: int = health_pb2.HealthCheckResponse.FromString(reply).status
    except DecodeError:
        return False
    return status == Status.SERVING


def _service_of(request: bytes) -> str:
    try:
        name: str = health_pb2.HealthCheckRequest.FromString(request).service
    except DecodeError:
        raise CallError("INVALID_ARGUMENT", f"{len(request)} bytes are no HealthCheckRequest") from None
    return name


def _response(status: Status) -> bytes:
    return bytes(health_pb2.HealthCheckResponse(status=status).SerializeToString())


def reflection_handlers(services: Iterable[str]) -> dict[str, Handler]:
    """The handler of the one call, by its path; it describes these services."""
    servicer = reflection.ReflectionServicer(services)

    async def answer(call: RpcCall) -> None:
        while (data := await call.read()) is not None:
            try:
                request = reflection_pb2.ServerReflectionRequest.FromString(data)
            except DecodeError:
                reason = f"{len(data)} bytes are no {REFLECTION_SERVICE} request"
                raise CallError("INVALID_ARGUMENT", reason) from None
            for reply in servicer.ServerReflectionInfo(iter((request,)), None):
                call.send(reply.SerializeToString())
            await call.sent()

    return {f"/{REFLECTION_SERVICE}/ServerReflectionInfo": answer}
