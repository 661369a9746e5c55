"""What the simulator tells those who watch: checkers and the trace.

Everything is told at the virtual moment when it happens, in the order in which it happens. Watchers change
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from covey.matcher import EventBatch, EventType
    from covey.matcher.expressions.expression import Scalar
    from covey.overlay.core.client.actions import DeliverTo, Refused
    from covey.overlay.core.messages import Drop, Message
    from covey.sim.simulator.client import ClientProcess


class Watcher:
    """Watches nothing; override what is of interest."""

    def came(self, client: ClientProcess) -> None:
        """A client is there."""

    def moved(self, client: ClientProcess, broker: str) -> None:
        """A client has left its broker and dials this one; it says everything again there."""

    def left(self, client: ClientProcess, vanished: bool) -> None:
        """A client leaves; one that vanishes takes along what it sent and nobody has received."""

    def advertised(self, client: ClientProcess, event_type: EventType) -> None:
        """A client has advertised a type that it did not advertise before."""

    def unadvertised(self, client: ClientProcess, type_name: str) -> None:
        """A client has taken an advertisement back."""

    def subscribed(self, client: ClientProcess, subscription_id: int) -> None:
        """A client has made a subscription."""

    def updated(self, client: ClientProcess, subscription_id: int, old: Mapping[str, Scalar]) -> None:
        """A client has given new values to variables of a subscription; `old` are all its values before."""

    def reached_back(self, client: ClientProcess, subscription_id: int) -> None:
        """The update just told of is without gaps: what is published from now on counts for it at once."""

    def cancelled(self, client: ClientProcess, subscription_id: int) -> None:
        """A client has cancelled a subscription."""

    def published(self, client: ClientProcess, batch: EventBatch) -> None:
        """A client has published events."""

    def delivered(self, client: ClientProcess, action: DeliverTo) -> None:
        """Events have reached the user of a subscription, or were kept from him (spurious)."""

    def settled(self, client: ClientProcess, epoch: int) -> None:
        """What a client said up to this epoch has taken effect."""

    def refused(self, client: ClientProcess, action: Refused) -> None:
        """A broker has refused something."""

    def passed(self, source: str, target: str, message: Message) -> None:
        """A message has arrived at an interface; both are named as interfaces are."""

    def dropped(self, broker: str, action: Drop) -> None:
        """A broker has dropped events."""

    def owed(self, client: str, subscription_id: int, publisher: str, sequence: int) -> None:
        """The judge holds that this event, published now, must be delivered to this subscription."""

    def excused(self, client: str, subscription_id: int, publisher: str, sequence: int) -> None:
        """What the judge held to be owed is no longer: the subscription has changed or ended, or something
        has crashed."""

    def crashed(self, broker: str) -> None:
        """A broker has lost its state."""

    def restarted(self, broker: str) -> None:
        """A broker is there again."""
