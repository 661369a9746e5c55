"""The standard gRPC services health (grpc.health.v1) and reflection (grpc.reflection.v1alpha). One timer
computes the statuses for all watchers, since the core does not report changes."""

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
"""Interval while there are watchers. A broker that stops leaves calls open for longer."""

HEALTH_SERVICE: str = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
REFLECTION_SERVICE: str = reflection.SERVICE_NAME


class Status(IntEnum):
    """`HealthCheckResponse.ServingStatus`."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


class Health:
    def __init__(self, statuses: Mapping[str, Callable[[], Status]]) -> None:
        self._statuses = statuses
        self._watchers: dict[RpcCall, str] = {}
        self._known: dict[str, Status] = {}
        """Last sent to watchers; empty while the timer is off."""

    def handlers(self) -> dict[str, Handler]:
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
        return _response(self._statuses[name]())

    def _list(self, request: bytes) -> bytes:
        reply = health_pb2.HealthListResponse()
        for name, status in self._statuses.items():
            reply.statuses[name].status = status()
        return bytes(reply.SerializeToString())

    async def _watch(self, call: RpcCall) -> None:
        name = _service_of(await call.read() or b"")
        if not self._known:
            self._compute()
        call.send(_response(self._known.get(name, Status.SERVICE_UNKNOWN)))
        self._watchers[call] = name
        try:
            await call.ended()
        finally:
            del self._watchers[call]

    def _compute(self) -> None:
        """Repeats while there are watchers."""
        before, self._known = self._known, {name: status() for name, status in self._statuses.items()}
        if before != self._known:
            for call, name in self._watchers.items():
                if before.get(name) != self._known.get(name):
                    call.send(_response(self._known[name]))
        asyncio.get_running_loop().call_later(_POLL_S, self._again)

    def _again(self) -> None:
        if self._watchers:
            self._compute()
        else:
            self._known = {}


def is_serving(reply: bytes) -> bool:
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
    """By path; the one call describes `services`."""
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
