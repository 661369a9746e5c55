"""The state that the parts of one broker's endpoint share."""

from __future__ import annotations

from covey.overlay.core.access.guard import Guard
from covey.overlay.core.endpoint.clock import EndpointClock
from covey.overlay.core.endpoint.core import Core
from covey.overlay.core.endpoint.durability import Durability
from covey.overlay.core.endpoint.holds import Holds
from covey.overlay.core.endpoint.interface_queue import DropCounts, InterfaceQueue
from covey.overlay.core.endpoint.options import EndpointOptions
from covey.overlay.core.endpoint.quotas import Quotas
from covey.overlay.core.endpoint.recovery import Recovery
from covey.overlay.core.endpoint.storage import Storage
from covey.overlay.core.endpoint.timers import Timers
from covey.overlay.core.endpoint.timings import Timings
from covey.overlay.core.endpoint.tracing import Tracing
from covey.overlay.core.endpoint.validity import Validity
from covey.overlay.core.endpoint.windows import Windows
from covey.overlay.core.messages import Hold, Interface
from covey.overlay.core.warnings import Warn


class EndpointState:
    """One per endpoint. `queues` has every interface, `neighbours` those of brokers among them; `durability`
    is None without a storage, `timings` and `tracing` where nothing is timed or traced.
    """

    def __init__(
        self,
        core: Core,
        options: EndpointOptions,
        *,
        life: int,
        warn: Warn,
        clock: EndpointClock,
        timings: Timings | None,
        tracing: Tracing | None,
        storage: Storage | None,
    ) -> None:
        self.core = core
        self.tables = core.tables
        self.options = options
        self.warn = warn
        self.clock = clock
        self.timers: Timers[tuple[str, Interface]] = Timers()
        self.queues: dict[Interface, InterfaceQueue] = {}
        self.neighbours: dict[Interface, InterfaceQueue] = {}
        self.draining = False
        self.drops = DropCounts()
        self.guard = Guard(core.tables, warn)
        self.quotas = Quotas(core.tables, options.bounds)
        self.windows = Windows(options.windows)
        self.holds = Holds(self._tell_hold)
        self.recovery = Recovery(life, clock.now_ns, self.timers)
        self.validity = Validity(clock, self.timers)
        self.timings = timings
        self.tracing = tracing
        self.durability = None
        if storage is not None:
            self.durability = Durability(storage, core, self.queues, self.timers, self.validity)

    @property
    def credit_withheld(self) -> bool:
        """Whether no interface may send events."""
        return self.draining or self.recovery.going_on

    def _tell_hold(self, source: Interface, hold: Hold) -> None:
        """Have a source hold a type, or send it again."""
        queue = self.queues.get(source)
        if queue is not None:
            queue.send(hold)
