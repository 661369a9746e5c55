"""The events of a run as calls to its observers, the checkers and the trace, in order and at their (virtual)
time. Observers change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from covey.matcher import EventBatch, EventType, Filter
    from covey.matcher.expressions.expression import Scalar
    from covey.overlay.core.client.actions import DeliverTo
    from covey.overlay.core.client.session import ClientSession
    from covey.overlay.core.client.view_reader import Changes
    from covey.overlay.core.messages import Action, Drop, Gap, Message, Refuse


class ObservedClient(Protocol):
    """A simulated client, or the session of a real one (`sim/experiments/runs/real.py`). `name` and `broker`
    are interfaces (`client/c1`, `broker/b1`); `present` becomes false when it leaves."""

    @property
    def name(self) -> str: ...

    @property
    def broker(self) -> str: ...

    @property
    def present(self) -> bool: ...

    @property
    def durable(self) -> bool:
        """Whether its session outlives its connections and its broker."""
        ...

    @property
    def session(self) -> ClientSession: ...

    @property
    def subscriptions(self) -> Mapping[int, Filter]:
        """Filters by subscription id; `session.values` has the values."""
        ...


class Observer:
    """Ignores everything; subclasses override what they need."""

    def joined(self, client: ObservedClient) -> None:
        """A client connects for the first time."""

    def moved(self, client: ObservedClient, broker: str) -> None:
        """A client has left its broker and dials this one, where it sends its whole state again."""

    def left(self, client: ObservedClient, vanished: bool) -> None:
        """A client leaves; if it vanishes, messages that it sent and nobody received are lost."""

    def advertised(self, client: ObservedClient, event_type: EventType) -> None:
        """A client advertises a type that it did not advertise before."""

    def unadvertised(self, client: ObservedClient, type_name: str) -> None:
        """A client withdraws an advertisement."""

    def subscribed(self, client: ObservedClient, subscription_id: int) -> None:
        """A client subscribes."""

    def updated(self, client: ObservedClient, subscription_id: int, old: Mapping[str, Scalar]) -> None:
        """A client changes values of a subscription; `old` are all its values before."""

    def updated_gapless(self, client: ObservedClient, subscription_id: int) -> None:
        """The last update is gapless: it includes all events published from its call on."""

    def unsubscribed(self, client: ObservedClient, subscription_id: int) -> None:
        """A client unsubscribes."""

    def renewed(self, client: ObservedClient, subscription_id: int) -> None:
        """A client gives a subscription another validity period (`session.ends_ns`)."""

    def expired(self, client: ObservedClient, subscription_id: int) -> None:
        """A client is notified that the validity period of a subscription has ended."""

    def viewed(self, client: ObservedClient, view_id: int) -> None:
        """A client opens a view. For observers views are not subscriptions."""

    def view_moved(self, client: ObservedClient, view_id: int) -> None:
        """A client changes values of a view."""

    def view_reset(self, client: ObservedClient, view_id: int) -> None:
        """A view's session was lost at the broker, which gets it again."""

    def view_answered(self, client: ObservedClient, view_id: int) -> None:
        """A view, or its newest update, is complete: its user has read the view's content."""

    def view_closed(self, client: ObservedClient, view_id: int) -> None:
        """A client closes a view."""

    def view_changed(self, client: ObservedClient, view_id: int, changes: Changes) -> None:
        """The user of a view reads changes."""

    def published(self, client: ObservedClient, batch: EventBatch) -> None:
        """A client publishes events."""

    def delivered(self, client: ObservedClient, action: DeliverTo) -> None:
        """Events reach the user of a subscription, or are removed as spurious."""

    def missed(self, client: ObservedClient, gap: Gap) -> None:
        """A client gets the Gap of events that were dropped for it."""

    def settled(self, client: ObservedClient, epoch: int) -> None:
        """A client's control messages up to this epoch have taken effect."""

    def refused(self, client: ObservedClient, action: Refuse) -> None:
        """A broker refuses a message of a client."""

    def received(self, source: str, target: str, message: Message) -> None:
        """A message arrives at the interface `target` from the interface `source`."""

    def handled(
        self, broker: str, source: str, messages: Sequence[Message], actions: Sequence[Action]
    ) -> None:
        """The time that a simulated broker takes for messages has passed, and its actions leave."""

    def dropped(self, broker: str, action: Drop) -> None:
        """A broker drops events."""

    def expected(self, client: str, subscription_id: int, publisher: str, sequence: int) -> None:
        """The judge expects this event, published now, to be delivered to this subscription."""

    def excused(self, client: str, subscription_id: int, publisher: str, sequence: int) -> None:
        """The judge no longer expects the event: the subscription changed or ended, or a broker crashed."""

    def crashed(self, broker: str) -> None:
        """A broker loses its state."""

    def released(self, broker: str, neighbour: str) -> None:
        """A broker has ended a link that moves: messages pending there are lost."""

    def restarted(self, broker: str) -> None:
        """A broker starts again."""


class Observers(list[Observer], Observer):
    """Several observers, called in order."""


def _passed_on(name: str) -> Callable[..., None]:
    def call(self: Observers, *arguments: Any) -> None:
        for observer in self:
            getattr(observer, name)(*arguments)

    return call


for _name in [name for name in vars(Observer) if not name.startswith("_")]:
    setattr(Observers, _name, _passed_on(_name))
