"""The wire form of the single calls: Describe, Inspect, Explain, Follow, Reload (proto/broker.proto).

Invariant: bytes that are no request raise `MalformedPacketError`, never anything else. The reply to Describe
is an event type (`wire_values.py`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from covey.overlay.transport.errors import MalformedPacketError
from covey.proto import broker_pb2 as pb

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What a broker made of its overlay file: its neighbours there, the options that have changed, and those
    that need a restart.
    """

    file: str
    neighbours: tuple[str, ...]
    changed: tuple[str, ...]
    kept: tuple[str, ...]


def _parse(kind: type[M], data: bytes) -> M:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise MalformedPacketError(f"{len(data)} bytes are no {kind.__name__}: {error}") from None


def encode_describe(type_name: str) -> bytes:
    return pb.DescribeRequest(type_name=type_name).SerializeToString()


def decode_describe(data: bytes) -> str:
    """The name of the event type."""
    return _parse(pb.DescribeRequest, data).type_name


def encode_explain(interface: str, subscription_id: int, event: str) -> bytes:
    request = pb.ExplainRequest(interface=interface, subscription_id=subscription_id, event=event)
    return request.SerializeToString()


def decode_explain(data: bytes) -> tuple[str, int, str]:
    """The interface, the subscription and the event, as JSON."""
    request = _parse(pb.ExplainRequest, data)
    return request.interface, request.subscription_id, request.event


def encode_follow(type_name: str, publisher: str, sequence: int) -> bytes:
    request = pb.FollowRequest(type_name=type_name, publisher=publisher, sequence=sequence)
    return request.SerializeToString()


def decode_follow(data: bytes) -> tuple[str, str, int]:
    """The type, publisher and sequence number of the event."""
    request = _parse(pb.FollowRequest, data)
    return request.type_name, request.publisher, request.sequence


def encode_explanation(json: str) -> bytes:
    return pb.ExplainReply(json=json).SerializeToString()


def decode_explanation(data: bytes) -> str:
    return _parse(pb.ExplainReply, data).json


def encode_reload(*, leave: bool) -> bytes:
    return pb.ReloadRequest(leave=leave).SerializeToString()


def decode_reload(data: bytes) -> bool:
    """Whether the broker is to leave."""
    return _parse(pb.ReloadRequest, data).leave


def encode_reloaded(reloaded: Reloaded) -> bytes:
    return pb.ReloadReply(**asdict(reloaded)).SerializeToString()


def decode_reloaded(data: bytes) -> Reloaded:
    reply = _parse(pb.ReloadReply, data)
    return Reloaded(reply.file, tuple(reply.neighbours), tuple(reply.changed), tuple(reply.kept))


def encode_inspect(listed: int | None) -> bytes:
    return pb.InspectRequest(listed=listed).SerializeToString()


def decode_inspect(data: bytes) -> int | None:
    """How many items of each list to show, if the request says."""
    request = _parse(pb.InspectRequest, data)
    return request.listed if request.HasField("listed") else None


def encode_inspection(text: str, json: str) -> bytes:
    return pb.InspectReply(text=text, json=json).SerializeToString()


def decode_inspection(data: bytes) -> tuple[str, str]:
    reply = _parse(pb.InspectReply, data)
    return reply.text, reply.json
