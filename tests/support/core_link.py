"""One broker's side of a link, from roots to messages, and the neighbour's state after them."""

from itertools import count

from core_posets import matching_points

from covey.matcher.filters.filter import Filter
from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.covering.poset import Forest
from covey.overlay.core.merging.budget_merger import merger_factory
from covey.overlay.core.messages import Subscribe, Update
from covey.overlay.core.routing.slots import SlotMessage, Slots


class Link:
    """A poset, its slots, and the neighbour's state after the messages."""

    def __init__(self, *, parametric: bool = True, merging: str = "off", budget: int = 3) -> None:
        epochs, ids = count(1), count(1)
        self.merger = merger_factory(merging, budget, "parametric")()
        self.poset = Forest()
        self.slots = Slots(lambda: next(epochs), lambda: next(ids), parametric=parametric)
        self.subscriptions: dict[int, tuple[Filter, dict[str, object]]] = {}

    def change(
        self,
        entered: list[Interest] | None = None,
        moved: list[Interest] | None = None,
        left: list[Interest] | None = None,
    ) -> list[SlotMessage]:
        roots = self.poset.change(entered or (), moved or (), left or ())
        if self.merger is not None:
            bundles = self.merger.change(roots)
            return self.slots.change(bundles, bundles.handovers)
        return self.slots.change(roots, roots.handovers)

    def apply(self, message: SlotMessage) -> None:
        if isinstance(message, Subscribe):
            assert message.subscription_id not in self.subscriptions
            self.subscriptions[message.subscription_id] = (message.filter, dict(message.values))
        elif isinstance(message, Update):
            filter, known = self.subscriptions[message.subscription_id]
            assert message.values.keys() <= known.keys()
            self.subscriptions[message.subscription_id] = (filter, {**known, **message.values})
        else:
            del self.subscriptions[message.subscription_id]

    def matching_points(self) -> frozenset[int]:
        """The numbers of the `POINTS` that the neighbour would send."""
        return frozenset().union(
            *(matching_points(filter, known) for filter, known in self.subscriptions.values())
        )
