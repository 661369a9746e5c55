"""What enters the core (messages) and what leaves it (actions).

An *interface* is where messages come from and go to: a neighbour broker or a client. Its name is a string
that begins with its sort, `broker/b2` or `client/trader-1`, so that a client cannot pass for a broker.

Epochs. Every control message that a side sends over an interface (Advertise, Unadvertise, Subscribe,
Unsubscribe, Update, SyncEnd) carries the next epoch of that side on that interface, counted from 1.
`Acknowledge(epoch)` answers that everything up to that epoch has been applied by the answering broker and
by every broker beyond it that had to know (UPD-ACK). Epochs say what has taken
effect; the frames below say what has arrived.

Order. `Broker.handle` returns a list of actions, and their order is part of the contract: within one
change Subscribe precedes Update, and Update precedes Unsubscribe (make before break); Deliver and Publish
keep the order of arrival.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, dataclass_transform

if TYPE_CHECKING:
    import numpy as np

    from covey.matcher import EventBatch, EventType, Filter
    from covey.matcher.expressions.expression import Scalar

Interface = str

_M = TypeVar("_M")


@dataclass_transform(frozen_default=True)
def message(cls: type[_M]) -> type[_M]:
    """A dataclass with slots, which type checkers and the tests take for frozen (`tests/conftest.py`).

    Otherwise nothing keeps a message from being changed. One that is frozen takes two to five times as long
    to make (an Update 0.9 µs in place of 0.2), and a broker makes five per update: some 6 % of the time that
    an update takes (SYMBOLS and VEHICLES, 1,000 and 10,000 filters, both kinds taking turns within one run of
    what `covey bench routing` times; 0 to 10 %).
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
    """No more events of this type from the sender. Void if its epoch is older than the sender's newest
    Advertise.
    """

    epoch: int
    type_name: str


@message
class Subscribe:
    """SUB: a subscription, named by an id that the sender chose and that is unique on this interface.

    `filter` holds variables; `values` gives each of them. Between brokers the id is that of a slot and the
    variables are broker variables. A Subscribe with an id in use replaces the old one (resynchronisation
    sends it again).
    """

    epoch: int
    subscription_id: int
    filter: Filter
    values: Mapping[str, Scalar]


@message
class Unsubscribe:
    """USUB."""

    epoch: int
    subscription_id: int


@message
class Update:
    """UPD: new values for some of the variables of a subscription; they take effect together.

    A *gapless* one says in `since_ns` when it was called: what has entered the overlay since, matches and was
    not sent is replayed (`replay.py`). It may carry no values: only the replay is asked for then.
    """

    epoch: int
    subscription_id: int
    values: Mapping[str, Scalar]
    since_ns: int = 0


@message
class Acknowledge:
    """UPD-ACK: all epochs up to this one have taken effect here and beyond. Cumulative."""

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
    """What the sender said before SyncBegin and has not repeated since is void."""

    epoch: int


# --- events -------------------------------------------------------------------------------------------------


@message
class Publish:
    """PUB: a batch of events of one type from one publisher. A replay is not in the order of its
    publisher.
    """

    batch: EventBatch
    replayed: bool = False


@message
class Deliver:
    """Events for a client, each once, with the ids of all its subscriptions that match.

    `ids[offsets[i]:offsets[i + 1]]` are those of event i. `epoch` is the last control epoch of this client
    that the broker had applied when it matched: at an older epoch than its own, the client evaluates its
    filters again.
    """

    batch: EventBatch
    offsets: np.ndarray
    ids: np.ndarray
    epoch: int
    replayed: bool = False


# --- refusals and life of interfaces ------------------------------------------------------------------------


@message
class Refuse:
    """A message of the receiver was refused and changed nothing: one clear sentence and the name of a gRPC
    status.

    `epoch` is the refused message's, or 0 for events. Refusing also settles the epoch: Acknowledge covers
    it. `subscription_id` and `type_name` say what it was about, where that is known; of refused events,
    `count` of them from sequence number `first_sequence` on.
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
    """From the node: an interface is there, new or with a new incarnation. The core answers with its whole
    state (SyncBegin .. SyncEnd) to a neighbour, and keeps what the interface said before until its own
    SyncEnd.
    """


@message
class Tick:
    """From the node: the time is there that `Broker.timer` asked for."""


@message
class Disconnect:
    """From the node: the interface is gone for good (a client left or its lease ran out, a neighbour was
    removed).
    """


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
    | Refuse
    | Connect
    | Tick
    | Disconnect
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
    Refuse,
)
"""Messages that need no credit on a link and overtake events that wait for it.

Unadvertise is not among them: it keeps its place behind the events that were published before it, else a
publisher that leaves would take its last events with it. Later control messages may overtake it; its epoch
tells.
"""


# --- actions ------------------------------------------------------------------------------------------------


@message
class Send:
    """Send this message to that interface."""

    interface: Interface
    message: Message


@message
class Drop:
    """Events went nowhere on purpose; the node counts them. `reason` is one of a small fixed set of words."""

    reason: str
    events: int
    type_name: str = ""


Action = Send | Drop
