"""What enters the core (messages) and what leaves it (actions).

An *interface* is where messages come from and go to, named by kind: `broker/b2` or `client/trader-1`, so a
client cannot pass for a broker.

Epochs. Every control message of a side on an interface (Advertise, Unadvertise, Subscribe, Unsubscribe,
Update, SyncEnd) carries its next epoch, counted from 1. `Acknowledge(epoch)` confirms that all epochs up to
it have taken effect at the sending broker and every broker further on that it concerns (UPD-ACK); frame
numbers of a link track only what has arrived.

Order. The order of the actions of `Broker.handle` is part of the contract: within one change Subscribe
precedes Update, and Update precedes Unsubscribe (make before break); Deliver and Publish keep the order of
arrival."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeVar, dataclass_transform

if TYPE_CHECKING:
    import numpy as np

    from covey.matcher import EventBatch, EventType, Filter
    from covey.matcher.expressions.expression import Scalar

Interface = str

UNSTORED, PART = -1, -2
"""Offsets of events in no log, and of all but the last message of a record."""

MAX_VALIDITY_NS = 10 * 365 * 86_400 * 1_000_000_000
"""Of a subscription, ten years."""

KEYS, ENDED = "keys/", "ended/"
"""Prefixes of receivers of records that are read when the broker starts: a client has published their events
here; its keys have left all views."""

COPIES = "copies/"
"""Prefix of the receiver of records stored for a session at another broker."""

_M = TypeVar("_M")


@dataclass_transform(frozen_default=True)
def message(cls: type[_M]) -> type[_M]:
    """A dataclass with slots that type checkers and tests treat as frozen (`tests/conftest.py`). A frozen one
    takes two to five times as long to create (an Update 0.9 µs instead of 0.2), some 6 % of an update's time
    (`python -m benchmarks routing`)."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


# --- control messages: between client and broker, and between brokers ---------------------------------------


@message
class Advertise:
    """AD: the sender publishes events of this type, with content that `filter` (without variables) accepts.
    With `report_listeners` a client gets `ListenersReport` now and on each change."""

    epoch: int
    event_type: EventType
    filter: Filter | None = None
    report_listeners: bool = False


@message
class Unadvertise:
    """The sender no longer publishes this type. Void if older than the sender's newest Advertise."""

    epoch: int
    type_name: str


@message
class Subscribe:
    """SUB: a subscription, under an id of the sender that is unique on this interface.

    `values` has a value for each variable of `filter`; between brokers these are a slot and broker variables.
    An id in use replaces the earlier subscription. A client's is removed `valid_for_ns` after arrival, unless
    0 (`endpoint/ending.py`); `for_views` marks that of a view."""

    epoch: int
    subscription_id: int
    filter: Filter
    values: Mapping[str, Scalar]
    valid_for_ns: int = 0
    for_views: bool = False


@message
class Unsubscribe:
    """USUB."""

    epoch: int
    subscription_id: int


@message
class Update:
    """UPD: new values for some variables of a subscription, which take effect together.

    `since_ns` is the call's time of a *gapless* update: matching events that entered the overlay since then
    and were not sent are replayed (`routing/subscriptions.py`); without values it requests the replay alone.
    `traceparent` is a W3C Trace Context. A nonzero `valid_for_ns` renews the subscription from arrival on.
    Nonzero `for_views` requests the last event of each matching key (`routing/keyed.py`): it is the newest
    epoch of such updates merged in this one. If the previous message about the subscription was that of
    `after_epoch`, keys that were sent and matched the values of then are left out."""

    epoch: int
    subscription_id: int
    values: Mapping[str, Scalar]
    since_ns: int = 0
    traceparent: str = ""
    valid_for_ns: int = 0
    for_views: int = 0
    after_epoch: int = 0


@message
class Acknowledge:
    """UPD-ACK: all epochs up to this one have taken effect here and further on."""

    epoch: int


@message
class ListenersReport:
    """To a client that publishes: whether any subscription intersects its advertisement."""

    type_name: str
    present: bool


@message
class SyncBegin:
    """The whole control state of the sender follows, as Advertise and Subscribe messages, up to SyncEnd."""


@message
class SyncEnd:
    """Earlier control state of the sender that was not repeated since SyncBegin is void."""

    epoch: int


# --- events -------------------------------------------------------------------------------------------------


@message
class Publish:
    """PUB: a batch of events of one type from one publisher, in its order unless replayed.

    `for_views` marks last events of keys if replayed, else *departures*: the next events of keys whose last
    event the receiver has, and of which it hears no more (`routing/keyed.py`). With `live`, they are events
    of a durable type, sent to views beside the stored ones (`routing/durable_keys.py`). `offset`, which never
    travels, is of the record in the log of a durable type, `PART` in all but its last message, else
    `UNSTORED`."""

    batch: EventBatch
    replayed: bool = False
    offset: int = UNSTORED
    for_views: bool = False
    live: bool = False

    @property
    def stored(self) -> bool:
        return self.offset != UNSTORED


@message
class Deliver:
    """Events for a client, each once, with the ids of all its subscriptions that match.

    Event i has `ids[offsets[i]:offsets[i + 1]]`. `epoch` is the last control epoch of this client that the
    broker had applied when it matched; a client with a newer one evaluates its filters again. `offset`,
    `for_views` and `live` as in Publish."""

    batch: EventBatch
    offsets: np.ndarray
    ids: np.ndarray
    epoch: int
    replayed: bool = False
    offset: int = UNSTORED
    for_views: bool = False
    live: bool = False

    @property
    def stored(self) -> bool:
        return self.offset != UNSTORED


@message
class Answered:
    """Follows the last events of keys that the receiver requested up to this epoch (`routing/acks.py`)."""

    type_name: str
    epoch: int


# --- flow: between the endpoints of a link, unknown to routing ----------------------------------------------


@message
class Hold:
    """The sender takes no events of this type, or takes them again: a receiver behind it does not keep up."""

    type_name: str
    held: bool


@message
class Gap:
    """To a client, in its stream: events of this type that it will not get, with the ingress times of the
    first and the last batch. `conflated` ones were superseded: a later event of the key comes for every
    subscription."""

    type_name: str
    first_ns: int
    last_ns: int
    count: int
    conflated: bool = False

    def union(self, other: Gap) -> Gap:
        first_ns, last_ns = min(self.first_ns, other.first_ns), max(self.last_ns, other.last_ns)
        return Gap(self.type_name, first_ns, last_ns, self.count + other.count, self.conflated)


@message
class Notice:
    """A named operator in filters of the receiver did not answer at a broker, which passed on events that may
    not match. `subscription_ids` are a client's; `count` is events since the last notice of this operator and
    broker, 0 if unknown. Without `broker` it is from the client itself, which drops such events."""

    operator: str
    broker: str
    reason: str
    count: int = 0
    subscription_ids: tuple[int, ...] = ()

    def __str__(self) -> str:
        events = f", {self.count:,} event{'' if self.count == 1 else 's'} undecided" if self.count else ""
        where = f"at broker {self.broker}" if self.broker else "in this client"
        return f"operator {self.operator} {where}: {self.reason}{events}"


@message
class Expired:
    """To a client, behind the events of the type: the validity period of its subscription has ended."""

    subscription_id: int
    type_name: str


# --- between the endpoints of two brokers, passed on by those between them; unknown to routing --------------


class MoveStep(Enum):
    """The value is that on the wire."""

    ASK = 1
    """The receiver may have the session: its state is requested."""
    STATE = 2
    """Some subscriptions, and from where to ask for more; `reason` is "end" with the last ones."""
    FLUSH = 3
    """Each broker passes it on once the next one has all that was stored for it before."""
    FLUSHED = 4
    """`offsets` are where the sender's logs end, by type; `offset` and `type_name` are not set."""
    READ = 5
    """Requests records of a type from an offset on."""
    RECORDS = 6
    """Some of them, and the offset from where to read on."""
    COMMIT = 7
    """The sender has all: the session is its own, unless the receiver refuses."""
    COMMITTED = 8
    REFUSED = 9
    """`reason` is "over", "busy", "unknown", or "moved" to the broker `moved_to`."""


@message
class SessionMove:
    """A durable session moves between brokers (`endpoint/session_moves.py`): `number` is of the attempt,
    `identity` of the session."""

    sender: str
    receiver: str
    interface: Interface
    number: int
    step: MoveStep
    identity: str = ""
    type_name: str = ""
    offset: int = 0
    offsets: Mapping[str, int] = field(default_factory=dict)
    subscriptions: tuple[Subscribe, ...] = ()
    records: tuple[Deliver, ...] = ()
    lost: int = 0
    reason: str = ""
    moved_to: str = ""


# --- refusals; interfaces that come and go ------------------------------------------------------------------


@message
class Refuse:
    """A message of the receiver was refused and changed nothing: one sentence and the name of a gRPC status.

    `epoch` is the refused message's, 0 for events; a later Acknowledge covers it. `subscription_id` and
    `type_name` are its subject, where known. Refused events are `count` from sequence number `first_sequence`
    on."""

    epoch: int
    status: str
    reason: str
    subscription_id: int = 0
    type_name: str = ""
    first_sequence: int = 0
    count: int = 0


@message
class Connect:
    """From the endpoint: an interface is new, or has a new incarnation. The core sends a neighbour its whole
    state, and keeps earlier state of the interface until its own SyncEnd."""


@message
class AwaitClients:
    """From the endpoint of a broker without its earlier state: no SyncEnd leaves until `begin` is false."""

    begin: bool


@message
class RestoreKeys:
    """From the endpoint, before all else: events that a client published here in an earlier life of this
    broker, stored at `stored_ns` (int64[events]), are the last of their keys so far; or, if `ended`, all keys
    of the client had left."""

    interface: Interface
    batch: EventBatch
    stored_ns: np.ndarray
    ended: bool = False


@message
class EndRestored:
    """From the endpoint: publishers of restored keys have had the time to come back."""


@message
class Expire:
    """From the endpoint: the validity period of a subscription of the interface has ended."""

    subscription_id: int


@message
class Tick:
    """From the endpoint: the time that `Broker.next_timer` returned has come."""


@message
class Disconnect:
    """From the endpoint: the interface has left for good."""


@message
class Withdraw:
    """From the endpoint: some subscriptions of a client that has left; a Disconnect follows the last."""

    subscription_ids: tuple[int, ...]


Message = (
    Advertise
    | Unadvertise
    | Subscribe
    | Unsubscribe
    | Update
    | Acknowledge
    | SyncBegin
    | SyncEnd
    | ListenersReport
    | Publish
    | Deliver
    | Answered
    | Refuse
    | Hold
    | Gap
    | Notice
    | Expired
    | SessionMove
    | Connect
    | AwaitClients
    | RestoreKeys
    | EndRestored
    | Expire
    | Tick
    | Disconnect
    | Withdraw
)

CONTROL = (
    Advertise,
    Subscribe,
    Unsubscribe,
    Update,
    Acknowledge,
    SyncBegin,
    SyncEnd,
    ListenersReport,
    Notice,
    Refuse,
    Hold,
    SessionMove,
)
"""Messages that need no credit on a link and overtake events that wait for credit.

Unadvertise stays behind the events published before it, which would otherwise arrive unadvertised and be
dropped; its epoch shows if later control overtook it. Expired and Answered stay behind their events."""


# --- actions ------------------------------------------------------------------------------------------------


@message
class Send:
    interface: Interface
    message: Message


@message
class Drop:
    """Events were dropped; the endpoint counts them. `reason` is one of a small fixed set."""

    reason: str
    events: int
    type_name: str = ""


@message
class Receiver:
    """Rows of a stored batch for a neighbour or a session, None for all; for a session also `offsets` and
    `ids` as in Deliver, matched at this epoch."""

    interface: Interface
    rows: np.ndarray | None = None
    offsets: np.ndarray | None = None
    ids: np.ndarray | None = None
    epoch: int = 0


@message
class Store:
    """Events of a durable type for at least one receiver: the endpoint stores them, sends them, and
    acknowledges them to their source once they are on disk."""

    batch: EventBatch
    receivers: tuple[Receiver, ...]


Action = Send | Drop | Store
