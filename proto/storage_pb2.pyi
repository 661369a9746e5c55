import builtins as _builtins
from covey.proto import broker_pb2 as _broker_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StoredBatch(_message.Message):
    __slots__ = ("event_type", "events", "receivers")
    EVENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    RECEIVERS_FIELD_NUMBER: _ClassVar[int]
    event_type: _broker_pb2.EventType
    events: _broker_pb2.Events
    receivers: _containers.RepeatedCompositeFieldContainer[StoredReceiver]
    def __init__(self, event_type: _Optional[_Union[_broker_pb2.EventType, _Mapping]] = ..., events: _Optional[_Union[_broker_pb2.Events, _Mapping]] = ..., receivers: _Optional[_Iterable[_Union[StoredReceiver, _Mapping]]] = ...) -> None: ...

class StoredReceiver(_message.Message):
    __slots__ = ("interface", "all", "rows", "session", "offsets", "ids")
    INTERFACE_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    interface: str
    all: _builtins.bool
    rows: bytes
    session: _builtins.bool
    offsets: bytes
    ids: bytes
    def __init__(self, interface: _Optional[str] = ..., all: _builtins.bool = ..., rows: _Optional[bytes] = ..., session: _builtins.bool = ..., offsets: _Optional[bytes] = ..., ids: _Optional[bytes] = ...) -> None: ...
