"""One broker that is checked after each handled message."""

from covey.overlay.core.messages import Action, Connect, Message, Send
from covey.overlay.core.routing.broker import Broker
from covey.sim.invariants import check


class Driven:
    """A broker, x; `interfaces` are connected, `options` are the broker's."""

    def __init__(self, *interfaces: str, **options: object) -> None:
        self.broker = Broker("x", **{"engine": "naive", **options})
        for name in interfaces:
            self(name, Connect())

    def __call__(self, source: str, *messages: Message, now_ns: int = 0) -> list[Action]:
        actions: list[Action] = []
        for message in messages:
            actions += self.broker.handle(message, source, now_ns)
            check(self.broker)
        return actions


def sent(actions: list[Action], *kinds: type[Message]) -> list[tuple[str, Message]]:
    """The messages sent by some actions, of some kinds or of all, each with its receiver."""
    return [
        (a.interface, a.message)
        for a in actions
        if isinstance(a, Send) and (not kinds or isinstance(a.message, kinds))
    ]
