"""The time that messages cost brokers, added up by broker and kind of message."""

from __future__ import annotations

from covey.sim.simulator.costs import Costs, Sample

Work = dict[str, int]
"""`messages`, the `events` in them, and `busy_ns`, what these cost."""


class WorkByKind:
    """Costs of messages that are counted on their way, since the last `clear`."""

    def __init__(self, costs: Costs) -> None:
        self.by_broker: dict[str, dict[str, Work]] = {}
        self._costs = costs

    @property
    def measures(self) -> bool:
        return self._costs.measures

    def clear(self) -> None:
        self.by_broker = {}

    @property
    def by_kind(self) -> dict[str, Work]:
        """Of all brokers together."""
        total: dict[str, Work] = {}
        for kinds in self.by_broker.values():
            for kind, work in kinds.items():
                sums = total.setdefault(kind, dict.fromkeys(work, 0))
                for name, value in work.items():
                    sums[name] += value
        return dict(sorted(total.items()))

    def charge(self, sample: Sample) -> int:
        cost_ns = self._costs.charge(sample)
        kinds = self.by_broker.setdefault(sample.broker, {})
        work = kinds.get(sample.kind)
        if work is None:
            work = kinds[sample.kind] = {"messages": 0, "events": 0, "busy_ns": 0}
        work["messages"] += 1
        work["events"] += sample.events
        work["busy_ns"] += cost_ns
        return cost_ns
