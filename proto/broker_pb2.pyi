import builtins as _builtins
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SlowConsumer(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SLOW_CONSUMER_BLOCK: _ClassVar[SlowConsumer]
    SLOW_CONSUMER_DROP_OLDEST: _ClassVar[SlowConsumer]
    SLOW_CONSUMER_DROP_NEWEST: _ClassVar[SlowConsumer]
    SLOW_CONSUMER_DISCONNECT: _ClassVar[SlowConsumer]
    SLOW_CONSUMER_CONFLATE: _ClassVar[SlowConsumer]

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KIND_UNSPECIFIED: _ClassVar[Kind]
    KIND_INT64: _ClassVar[Kind]
    KIND_FLOAT64: _ClassVar[Kind]
    KIND_STRING: _ClassVar[Kind]
    KIND_BOOL: _ClassVar[Kind]
    KIND_TIMESTAMP: _ClassVar[Kind]
    KIND_STRINGS: _ClassVar[Kind]
SLOW_CONSUMER_BLOCK: SlowConsumer
SLOW_CONSUMER_DROP_OLDEST: SlowConsumer
SLOW_CONSUMER_DROP_NEWEST: SlowConsumer
SLOW_CONSUMER_DISCONNECT: SlowConsumer
SLOW_CONSUMER_CONFLATE: SlowConsumer
KIND_UNSPECIFIED: Kind
KIND_INT64: Kind
KIND_FLOAT64: Kind
KIND_STRING: Kind
KIND_BOOL: Kind
KIND_TIMESTAMP: Kind
KIND_STRINGS: Kind

class Packet(_message.Message):
    __slots__ = ("hello", "frame", "goodbye")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    frame: Frame
    goodbye: Goodbye
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., frame: _Optional[_Union[Frame, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("status", "reason")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    status: str
    reason: str
    def __init__(self, status: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "role", "id", "incarnation", "peer_incarnation", "received", "credit", "overlay", "slow_consumer", "limits", "options", "durable", "ticket", "oldest_protocol")
    class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ROLE_UNSPECIFIED: _ClassVar[Hello.Role]
        ROLE_BROKER: _ClassVar[Hello.Role]
        ROLE_CLIENT: _ClassVar[Hello.Role]
    ROLE_UNSPECIFIED: Hello.Role
    ROLE_BROKER: Hello.Role
    ROLE_CLIENT: Hello.Role
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PEER_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    OVERLAY_FIELD_NUMBER: _ClassVar[int]
    SLOW_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    role: Hello.Role
    id: str
    incarnation: int
    peer_incarnation: int
    received: int
    credit: int
    overlay: str
    slow_consumer: SlowConsumer
    limits: Limits
    options: _containers.ScalarMap[str, str]
    durable: _builtins.bool
    ticket: str
    oldest_protocol: int
    def __init__(self, protocol: _Optional[int] = ..., role: _Optional[_Union[Hello.Role, str]] = ..., id: _Optional[str] = ..., incarnation: _Optional[int] = ..., peer_incarnation: _Optional[int] = ..., received: _Optional[int] = ..., credit: _Optional[int] = ..., overlay: _Optional[str] = ..., slow_consumer: _Optional[_Union[SlowConsumer, str]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., options: _Optional[_Mapping[str, str]] = ..., durable: _builtins.bool = ..., ticket: _Optional[str] = ..., oldest_protocol: _Optional[int] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_event_bytes", "max_batch_events", "max_frame_bytes")
    MAX_EVENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_EVENTS_FIELD_NUMBER: _ClassVar[int]
    MAX_FRAME_BYTES_FIELD_NUMBER: _ClassVar[int]
    max_event_bytes: int
    max_batch_events: int
    max_frame_bytes: int
    def __init__(self, max_event_bytes: _Optional[int] = ..., max_batch_events: _Optional[int] = ..., max_frame_bytes: _Optional[int] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("sequence", "received", "credit", "messages", "probe", "dropped", "settled")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    received: int
    credit: int
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    probe: _builtins.bool
    dropped: int
    settled: int
    def __init__(self, sequence: _Optional[int] = ..., received: _Optional[int] = ..., credit: _Optional[int] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., probe: _builtins.bool = ..., dropped: _Optional[int] = ..., settled: _Optional[int] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("advertise", "unadvertise", "subscribe", "unsubscribe", "update", "sync_begin", "sync_end", "publish", "deliver", "refuse", "listeners_report", "hold", "gap", "notice", "session_move", "expired", "answered")
    ADVERTISE_FIELD_NUMBER: _ClassVar[int]
    UNADVERTISE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    SYNC_BEGIN_FIELD_NUMBER: _ClassVar[int]
    SYNC_END_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    DELIVER_FIELD_NUMBER: _ClassVar[int]
    REFUSE_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_REPORT_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    SESSION_MOVE_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    advertise: Advertise
    unadvertise: Unadvertise
    subscribe: Subscribe
    unsubscribe: Unsubscribe
    update: Update
    sync_begin: SyncBegin
    sync_end: SyncEnd
    publish: Publish
    deliver: Deliver
    refuse: Refuse
    listeners_report: ListenersReport
    hold: Hold
    gap: Gap
    notice: Notice
    session_move: SessionMove
    expired: Expired
    answered: Answered
    def __init__(self, advertise: _Optional[_Union[Advertise, _Mapping]] = ..., unadvertise: _Optional[_Union[Unadvertise, _Mapping]] = ..., subscribe: _Optional[_Union[Subscribe, _Mapping]] = ..., unsubscribe: _Optional[_Union[Unsubscribe, _Mapping]] = ..., update: _Optional[_Union[Update, _Mapping]] = ..., sync_begin: _Optional[_Union[SyncBegin, _Mapping]] = ..., sync_end: _Optional[_Union[SyncEnd, _Mapping]] = ..., publish: _Optional[_Union[Publish, _Mapping]] = ..., deliver: _Optional[_Union[Deliver, _Mapping]] = ..., refuse: _Optional[_Union[Refuse, _Mapping]] = ..., listeners_report: _Optional[_Union[ListenersReport, _Mapping]] = ..., hold: _Optional[_Union[Hold, _Mapping]] = ..., gap: _Optional[_Union[Gap, _Mapping]] = ..., notice: _Optional[_Union[Notice, _Mapping]] = ..., session_move: _Optional[_Union[SessionMove, _Mapping]] = ..., expired: _Optional[_Union[Expired, _Mapping]] = ..., answered: _Optional[_Union[Answered, _Mapping]] = ...) -> None: ...

class Attribute(_message.Message):
    __slots__ = ("name", "kind")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: Kind
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[Kind, str]] = ...) -> None: ...

class EventType(_message.Message):
    __slots__ = ("name", "attributes", "key")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    name: str
    attributes: _containers.RepeatedCompositeFieldContainer[Attribute]
    key: str
    def __init__(self, name: _Optional[str] = ..., attributes: _Optional[_Iterable[_Union[Attribute, _Mapping]]] = ..., key: _Optional[str] = ...) -> None: ...

class Motion(_message.Message):
    __slots__ = ("value", "rate", "since_ns")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    SINCE_NS_FIELD_NUMBER: _ClassVar[int]
    value: float
    rate: float
    since_ns: int
    def __init__(self, value: _Optional[float] = ..., rate: _Optional[float] = ..., since_ns: _Optional[int] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("int64", "float64", "string", "bool", "timestamp", "motion")
    INT64_FIELD_NUMBER: _ClassVar[int]
    FLOAT64_FIELD_NUMBER: _ClassVar[int]
    STRING_FIELD_NUMBER: _ClassVar[int]
    BOOL_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    MOTION_FIELD_NUMBER: _ClassVar[int]
    int64: int
    float64: float
    string: str
    bool: _builtins.bool
    timestamp: int
    motion: Motion
    def __init__(self, int64: _Optional[int] = ..., float64: _Optional[float] = ..., string: _Optional[str] = ..., bool: _builtins.bool = ..., timestamp: _Optional[int] = ..., motion: _Optional[_Union[Motion, _Mapping]] = ...) -> None: ...

class Advertise(_message.Message):
    __slots__ = ("epoch", "event_type", "filter", "report_listeners")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    REPORT_LISTENERS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    event_type: EventType
    filter: str
    report_listeners: _builtins.bool
    def __init__(self, epoch: _Optional[int] = ..., event_type: _Optional[_Union[EventType, _Mapping]] = ..., filter: _Optional[str] = ..., report_listeners: _builtins.bool = ...) -> None: ...

class Unadvertise(_message.Message):
    __slots__ = ("epoch", "type_name")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    type_name: str
    def __init__(self, epoch: _Optional[int] = ..., type_name: _Optional[str] = ...) -> None: ...

class Subscribe(_message.Message):
    __slots__ = ("epoch", "subscription_id", "type_name", "filter", "values", "event_type", "valid_for_ns", "for_views")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    VALID_FOR_NS_FIELD_NUMBER: _ClassVar[int]
    FOR_VIEWS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    subscription_id: int
    type_name: str
    filter: str
    values: _containers.MessageMap[str, Value]
    event_type: EventType
    valid_for_ns: int
    for_views: _builtins.bool
    def __init__(self, epoch: _Optional[int] = ..., subscription_id: _Optional[int] = ..., type_name: _Optional[str] = ..., filter: _Optional[str] = ..., values: _Optional[_Mapping[str, Value]] = ..., event_type: _Optional[_Union[EventType, _Mapping]] = ..., valid_for_ns: _Optional[int] = ..., for_views: _builtins.bool = ...) -> None: ...

class Unsubscribe(_message.Message):
    __slots__ = ("epoch", "subscription_id")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    subscription_id: int
    def __init__(self, epoch: _Optional[int] = ..., subscription_id: _Optional[int] = ...) -> None: ...

class Update(_message.Message):
    __slots__ = ("epoch", "subscription_id", "values", "since_ns", "traceparent", "valid_for_ns", "for_views", "after_epoch")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    SINCE_NS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    VALID_FOR_NS_FIELD_NUMBER: _ClassVar[int]
    FOR_VIEWS_FIELD_NUMBER: _ClassVar[int]
    AFTER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    subscription_id: int
    values: _containers.MessageMap[str, Value]
    since_ns: int
    traceparent: str
    valid_for_ns: int
    for_views: int
    after_epoch: int
    def __init__(self, epoch: _Optional[int] = ..., subscription_id: _Optional[int] = ..., values: _Optional[_Mapping[str, Value]] = ..., since_ns: _Optional[int] = ..., traceparent: _Optional[str] = ..., valid_for_ns: _Optional[int] = ..., for_views: _Optional[int] = ..., after_epoch: _Optional[int] = ...) -> None: ...

class Answered(_message.Message):
    __slots__ = ("type_name", "epoch")
    TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    type_name: str
    epoch: int
    def __init__(self, type_name: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class Expired(_message.Message):
    __slots__ = ("subscription_id", "type_name")
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    subscription_id: int
    type_name: str
    def __init__(self, subscription_id: _Optional[int] = ..., type_name: _Optional[str] = ...) -> None: ...

class Hold(_message.Message):
    __slots__ = ("type_name", "held")
    TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    type_name: str
    held: _builtins.bool
    def __init__(self, type_name: _Optional[str] = ..., held: _builtins.bool = ...) -> None: ...

class Gap(_message.Message):
    __slots__ = ("type_name", "first_ns", "last_ns", "count", "conflated")
    TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    FIRST_NS_FIELD_NUMBER: _ClassVar[int]
    LAST_NS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    CONFLATED_FIELD_NUMBER: _ClassVar[int]
    type_name: str
    first_ns: int
    last_ns: int
    count: int
    conflated: _builtins.bool
    def __init__(self, type_name: _Optional[str] = ..., first_ns: _Optional[int] = ..., last_ns: _Optional[int] = ..., count: _Optional[int] = ..., conflated: _builtins.bool = ...) -> None: ...

class Notice(_message.Message):
    __slots__ = ("operator", "broker", "reason", "count", "subscription_ids")
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_IDS_FIELD_NUMBER: _ClassVar[int]
    operator: str
    broker: str
    reason: str
    count: int
    subscription_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, operator: _Optional[str] = ..., broker: _Optional[str] = ..., reason: _Optional[str] = ..., count: _Optional[int] = ..., subscription_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class SessionMove(_message.Message):
    __slots__ = ("sender", "receiver", "interface", "number", "step", "identity", "type_name", "offset", "offsets", "subscriptions", "records", "lost", "reason", "moved_to")
    class Step(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STEP_UNSPECIFIED: _ClassVar[SessionMove.Step]
        STEP_ASK: _ClassVar[SessionMove.Step]
        STEP_STATE: _ClassVar[SessionMove.Step]
        STEP_FLUSH: _ClassVar[SessionMove.Step]
        STEP_FLUSHED: _ClassVar[SessionMove.Step]
        STEP_READ: _ClassVar[SessionMove.Step]
        STEP_RECORDS: _ClassVar[SessionMove.Step]
        STEP_COMMIT: _ClassVar[SessionMove.Step]
        STEP_COMMITTED: _ClassVar[SessionMove.Step]
        STEP_REFUSED: _ClassVar[SessionMove.Step]
    STEP_UNSPECIFIED: SessionMove.Step
    STEP_ASK: SessionMove.Step
    STEP_STATE: SessionMove.Step
    STEP_FLUSH: SessionMove.Step
    STEP_FLUSHED: SessionMove.Step
    STEP_READ: SessionMove.Step
    STEP_RECORDS: SessionMove.Step
    STEP_COMMIT: SessionMove.Step
    STEP_COMMITTED: SessionMove.Step
    STEP_REFUSED: SessionMove.Step
    class OffsetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    INTERFACE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MOVED_TO_FIELD_NUMBER: _ClassVar[int]
    sender: str
    receiver: str
    interface: str
    number: int
    step: SessionMove.Step
    identity: str
    type_name: str
    offset: int
    offsets: _containers.ScalarMap[str, int]
    subscriptions: _containers.RepeatedCompositeFieldContainer[Subscribe]
    records: _containers.RepeatedCompositeFieldContainer[Deliver]
    lost: int
    reason: str
    moved_to: str
    def __init__(self, sender: _Optional[str] = ..., receiver: _Optional[str] = ..., interface: _Optional[str] = ..., number: _Optional[int] = ..., step: _Optional[_Union[SessionMove.Step, str]] = ..., identity: _Optional[str] = ..., type_name: _Optional[str] = ..., offset: _Optional[int] = ..., offsets: _Optional[_Mapping[str, int]] = ..., subscriptions: _Optional[_Iterable[_Union[Subscribe, _Mapping]]] = ..., records: _Optional[_Iterable[_Union[Deliver, _Mapping]]] = ..., lost: _Optional[int] = ..., reason: _Optional[str] = ..., moved_to: _Optional[str] = ...) -> None: ...

class ListenersReport(_message.Message):
    __slots__ = ("type_name", "present")
    TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    type_name: str
    present: _builtins.bool
    def __init__(self, type_name: _Optional[str] = ..., present: _builtins.bool = ...) -> None: ...

class SyncBegin(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SyncEnd(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class Events(_message.Message):
    __slots__ = ("type_name", "publisher", "first_sequence", "sequence_offsets", "ingress_ns", "count", "record_batch", "schema", "packed_columns", "results", "contexts")
    TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    INGRESS_NS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    RECORD_BATCH_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    PACKED_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    type_name: str
    publisher: str
    first_sequence: int
    sequence_offsets: bytes
    ingress_ns: int
    count: int
    record_batch: bytes
    schema: bytes
    packed_columns: bytes
    results: _containers.RepeatedCompositeFieldContainer[OperatorResult]
    contexts: _containers.RepeatedCompositeFieldContainer[TraceContext]
    def __init__(self, type_name: _Optional[str] = ..., publisher: _Optional[str] = ..., first_sequence: _Optional[int] = ..., sequence_offsets: _Optional[bytes] = ..., ingress_ns: _Optional[int] = ..., count: _Optional[int] = ..., record_batch: _Optional[bytes] = ..., schema: _Optional[bytes] = ..., packed_columns: _Optional[bytes] = ..., results: _Optional[_Iterable[_Union[OperatorResult, _Mapping]]] = ..., contexts: _Optional[_Iterable[_Union[TraceContext, _Mapping]]] = ...) -> None: ...

class TraceContext(_message.Message):
    __slots__ = ("traceparent", "first_sequence", "last_sequence")
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    traceparent: str
    first_sequence: int
    last_sequence: int
    def __init__(self, traceparent: _Optional[str] = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ...) -> None: ...

class OperatorResult(_message.Message):
    __slots__ = ("key", "rows", "solutions")
    KEY_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SOLUTIONS_FIELD_NUMBER: _ClassVar[int]
    key: int
    rows: bytes
    solutions: bytes
    def __init__(self, key: _Optional[int] = ..., rows: _Optional[bytes] = ..., solutions: _Optional[bytes] = ...) -> None: ...

class Publish(_message.Message):
    __slots__ = ("events", "replayed", "for_views", "live")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    FOR_VIEWS_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    events: Events
    replayed: _builtins.bool
    for_views: _builtins.bool
    live: _builtins.bool
    def __init__(self, events: _Optional[_Union[Events, _Mapping]] = ..., replayed: _builtins.bool = ..., for_views: _builtins.bool = ..., live: _builtins.bool = ...) -> None: ...

class Deliver(_message.Message):
    __slots__ = ("events", "offsets", "ids", "epoch", "replayed", "for_views", "live")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    FOR_VIEWS_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    events: Events
    offsets: bytes
    ids: bytes
    epoch: int
    replayed: _builtins.bool
    for_views: _builtins.bool
    live: _builtins.bool
    def __init__(self, events: _Optional[_Union[Events, _Mapping]] = ..., offsets: _Optional[bytes] = ..., ids: _Optional[bytes] = ..., epoch: _Optional[int] = ..., replayed: _builtins.bool = ..., for_views: _builtins.bool = ..., live: _builtins.bool = ...) -> None: ...

class Refuse(_message.Message):
    __slots__ = ("epoch", "status", "reason", "subscription_id", "type_name", "first_sequence", "count")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    status: str
    reason: str
    subscription_id: int
    type_name: str
    first_sequence: int
    count: int
    def __init__(self, epoch: _Optional[int] = ..., status: _Optional[str] = ..., reason: _Optional[str] = ..., subscription_id: _Optional[int] = ..., type_name: _Optional[str] = ..., first_sequence: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ("type_name",)
    TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    type_name: str
    def __init__(self, type_name: _Optional[str] = ...) -> None: ...

class InspectRequest(_message.Message):
    __slots__ = ("listed",)
    LISTED_FIELD_NUMBER: _ClassVar[int]
    listed: int
    def __init__(self, listed: _Optional[int] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("interface", "subscription_id", "event")
    INTERFACE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    interface: str
    subscription_id: int
    event: str
    def __init__(self, interface: _Optional[str] = ..., subscription_id: _Optional[int] = ..., event: _Optional[str] = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("type_name", "publisher", "sequence")
    TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    type_name: str
    publisher: str
    sequence: int
    def __init__(self, type_name: _Optional[str] = ..., publisher: _Optional[str] = ..., sequence: _Optional[int] = ...) -> None: ...

class ReloadRequest(_message.Message):
    __slots__ = ("leave",)
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    leave: _builtins.bool
    def __init__(self, leave: _builtins.bool = ...) -> None: ...

class ReloadReply(_message.Message):
    __slots__ = ("file", "neighbours", "changed", "kept")
    FILE_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    file: str
    neighbours: _containers.RepeatedScalarFieldContainer[str]
    changed: _containers.RepeatedScalarFieldContainer[str]
    kept: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, file: _Optional[str] = ..., neighbours: _Optional[_Iterable[str]] = ..., changed: _Optional[_Iterable[str]] = ..., kept: _Optional[_Iterable[str]] = ...) -> None: ...

class ExplainReply(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class InspectReply(_message.Message):
    __slots__ = ("text", "json")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    text: str
    json: str
    def __init__(self, text: _Optional[str] = ..., json: _Optional[str] = ...) -> None: ...
