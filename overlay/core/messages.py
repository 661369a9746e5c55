"""What enters the core (messages) and what leaves it (actions).

An *interface* is where messages come from and go to: a neighbour broker or a client. Its name is a string
that begins with its kind, `broker/b2` or `client/trader-1`, so that a client cannot pass for a broker.

Epochs. Every control message that a side sends over an interface (Advertise, Unadvertise, Subscribe,
Unsubscribe, Update, SyncEnd) carries the next epoch of that side on that interface, counted from 1.
`Acknowledge(epoch)` confirms that everything up to that epoch has been applied by the sending broker and by
every broker further on that it concerns (UPD-ACK). Epochs track what has taken effect; the frame numbers of
a link track what has arrived.

Order. `Broker.handle` returns a list of actions, and their order is part of the contract: within one
change Subscribe precedes Update, and Update precedes Unsubscribe (make before break); Deliver and Publish
keep the order of arrival.
"""

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
"""Offsets of events that are in no log, and of those whose record has a later message."""

MAX_VALIDITY_NS = 10 * 365 * 86_400 * 1_000_000_000
"""Of a subscription, ten years."""

KEYS, ENDED = "keys/", "ended/"
"""Begin the names of receivers of records that are read when the broker starts: a client has published their
events here; its keys have left all views."""

COPIES = "copies/"
"""Begins the name of the receiver of records that were stored for a session at another broker."""

_M = TypeVar("_M")


@dataclass_transform(frozen_default=True)
def message(cls: type[_M]) -> type[_M]:
    """A dataclass with slots that type checkers and tests treat as frozen (`tests/conftest.py`).

    At run time it is not: a frozen one takes two to five times as long to create (an Update 0.9 µs instead of
    0.2), and a broker creates five per update, some 6 % of an update's time (0 to 10 % in `covey bench
    routing`, 1,000 and 10,000 filters).
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


# --- control messages: between client and broker, and between brokers ---------------------------------------


@message
class Advertise:
    """AD: the sender publishes events of this type, of the content that `filter` (without variables) accepts.
    With `report_listeners` a client gets `ListenersReport` now and on each change.
    """

    epoch: int
    event_type: EventType
    filter: Filter | None = None
    report_listeners: bool = False


@message
class Unadvertise:
    """The sender no longer publishes this type. Void if its epoch is older than the sender's newest
    Advertise.
    """

    epoch: int
    type_name: str


@message
class Subscribe:
    """SUB: a subscription, under an id that the sender chooses and that is unique on this interface.

    `values` has a value for each variable of `filter`. Between brokers the id is that of a slot and the
    variables are broker variables. A Subscribe with an id in use replaces the earlier subscription.
    A client's is removed `valid_for_ns` after it has arrived, unless that is 0 (`endpoint/ending.py`), and
    is that of a view if it is `for_views`.
    """

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
    """UPD: new values for some of the variables of a subscription; they take effect together.

    A *gapless* update has the time of its call in `since_ns`: events that have entered the overlay since,
    match and were not sent are replayed (`routing/subscriptions.py`). Without values it requests the replay
    alone. `traceparent` is its W3C Trace Context, if it is traced. With `valid_for_ns` it renews the
    subscription: from its arrival on the validity period is this one. With `for_views` the receiver sends the
    last event of each key that matches (`routing/keyed.py`); where the message about this subscription before
    was that of `after_epoch`, without those that it has sent and that matched the values of then. It is the
    newest epoch of such updates that this one stands for, 0 for none.
    """

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
    """UPD-ACK: all epochs up to this one have taken effect here and further on. Cumulative."""

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
    """Earlier control state of the sender that it has not repeated since SyncBegin is void."""

    epoch: int


# --- events -------------------------------------------------------------------------------------------------


@message
class Publish:
    """PUB: a batch of events of one type from one publisher, in its order unless replayed. One `for_views`
    has the last events of keys if replayed, else *departures*: the next events of keys whose last event the
    receiver has, of which it hears no more (`routing/keyed.py`). Those `live` as well are the events of a
    durable type themselves, as views get them beside the stored ones (`routing/durable_keys.py`).

    `offset` is that of its record in the log of a durable type, `PART` in all but the last of the messages of
    a record, `UNSTORED` for others. It never travels.
    """

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

    `ids[offsets[i]:offsets[i + 1]]` are those of event i. `epoch` is the last control epoch of this client
    that the broker had applied when it matched: where the client's own is newer, it evaluates its filters
    again. `offset`, `for_views` and `live` as for a Publish.
    """

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
    """Behind the last events of keys of this type that were asked for by an epoch of the receiver up to this
    one (`routing/acks.py`).
    """

    type_name: str
    epoch: int


# --- flow: between the endpoints of a link, unknown to routing ----------------------------------------------


@message
class Hold:
    """The sender takes no events of this type, or takes them again: who wants them does not keep up."""

    type_name: str
    held: bool


@message
class Gap:
    """To a client: events of this type that it will not get, in its stream. `first_ns` and `last_ns` are the
    ingress times of the first and the last batch that lost some. Those of a gap that is `conflated` were
    superseded: a later event of the same key comes for every subscription that they matched.
    """

    type_name: str
    first_ns: int
    last_ns: int
    count: int
    conflated: bool = False

    def union(self, other: Gap) -> Gap:
        """Both in one."""
        first_ns, last_ns = min(self.first_ns, other.first_ns), max(self.last_ns, other.last_ns)
        return Gap(self.type_name, first_ns, last_ns, self.count + other.count, self.conflated)


@message
class Notice:
    """A named operator that subscriptions of the receiver call did not answer at a broker, which has passed
    events on that they may not match. `subscription_ids` are a client's; `count` is the number of events
    since the last notice of this operator and broker, 0 where it is not known. Without a broker it is of the
    client itself, which drops such events.
    """

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
    """What a SessionMove says; the value is that on the wire."""

    ASK = 1
    """The receiver may have the session: its state is wanted."""
    STATE = 2
    """Some of its subscriptions, and from where to ask for more; `reason` is "end" with the last ones."""
    FLUSH = 3
    """Passed on by each broker when the next one has all that was stored for it before."""
    FLUSHED = 4
    """`offsets` are where the sender's logs end, by type; `offset` and `type_name` are not set."""
    READ = 5
    """The records of a type from an offset on are wanted."""
    RECORDS = 6
    """Some of them, and the offset from where to read on."""
    COMMIT = 7
    """The sender has all: the session is its own, unless the receiver refuses."""
    COMMITTED = 8
    REFUSED = 9
    """It is not handed over: `reason` is "over", "busy", "unknown", or "moved" to the broker `moved_to`."""


@message
class SessionMove:
    """A durable session moves from one broker to another (`endpoint/session_moves.py`): `number` is that of
    the attempt, `identity` that of the session.
    """

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

    `epoch` is the refused message's, or 0 for events; a later Acknowledge covers it. `subscription_id` and
    `type_name` are its subject, where known. Of refused events there are `count` from sequence number
    `first_sequence` on.
    """

    epoch: int
    status: str
    reason: str
    subscription_id: int = 0
    type_name: str = ""
    first_sequence: int = 0
    count: int = 0


@message
class Connect:
    """From the endpoint: an interface has connected, for the first time or with a new incarnation. The core
    sends a neighbour its whole state (SyncBegin .. SyncEnd), and keeps the interface's earlier state until
    the interface's own SyncEnd.
    """


@message
class AwaitClients:
    """From the endpoint: this broker has lost its state, and its clients are about to connect again: no
    SyncEnd leaves while `begin` is the last that was said.
    """

    begin: bool


@message
class RestoreKeys:
    """From the endpoint, before all else: events that a client has published here in an earlier life of this
    broker, each stored at its `stored_ns` (int64), are the last ones of their keys so far; or all keys of the
    client had left, by `ended`.
    """

    interface: Interface
    batch: EventBatch
    stored_ns: np.ndarray
    ended: bool = False


@message
class EndRestored:
    """From the endpoint: publishers whose keys were restored have had the time to come back."""


@message
class Expire:
    """From the endpoint: the validity period of a subscription of the interface has ended."""

    subscription_id: int


@message
class Tick:
    """From the endpoint: the time that `Broker.next_timer` returned has come."""


@message
class Disconnect:
    """From the endpoint: the interface has left for good (a client left or its lease expired, a neighbour was
    removed).
    """


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

Unadvertise is not one: it stays behind the events published before it, else these would arrive unadvertised
and be dropped. Later control messages may overtake it, which its epoch shows. Nor is Expired, behind the
events of its subscription, nor Answered, behind those that it ends.
"""


# --- actions ------------------------------------------------------------------------------------------------


@message
class Send:
    """Send this message to that interface."""

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
    """Who gets what of a stored batch: the rows for a neighbour or a session, None for all of them; for a
    session `offsets` and `ids` as of a Deliver, matched at this epoch.
    """

    interface: Interface
    rows: np.ndarray | None = None
    offsets: np.ndarray | None = None
    ids: np.ndarray | None = None
    epoch: int = 0


@message
class Store:
    """Events of a durable type for at least one receiver: the endpoint stores them, sends them, and
    acknowledges them to their source once they are on disk.
    """

    batch: EventBatch
    receivers: tuple[Receiver, ...]


Action = Send | Drop | Store
