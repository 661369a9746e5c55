"""The time that messages cost brokers, added up by kind of message."""

from __future__ import annotations

from covey.sim.simulator.costs import Costs, Sample


class WorkByKind:
    """Costs of messages that are counted on their way: `by_kind` has number and nanoseconds since the last
    `clear`."""

    def __init__(self, costs: Costs) -> None:
        self.by_kind: dict[str, dict[str, int]] = {}
        self._costs = costs

    @property
    def measures(self) -> bool:
        return self._costs.measures

    def clear(self) -> None:
        self.by_kind = {}

    def charge(self, sample: Sample) -> int:
        cost_ns = self._costs.charge(sample)
        work = self.by_kind.setdefault(sample.kind, {"messages": 0, "busy_ns": 0})
        work["messages"] += 1
        work["busy_ns"] += cost_ns
        return cost_ns
