"""The figures of `covey bench chain` in the order in which people read them."""

from __future__ import annotations

from covey.sim.experiments.bench.awaited_updates import SUBSCRIPTIONS
from covey.sim.experiments.bench.chain import ChainPlan


def labels(plan: ChainPlan) -> dict[str, str]:
    """The label of each figure, by its name."""
    return {
        "events_per_s": f"events/s, batches of {plan.batch:,}",
        "sequence_per_s": "events/s, a loop of `await publish`",
        "one_by_one_ms": "ms, one event at a time, p50",
        **{
            f"{name}_at_{rate}": f"{label} at {rate:,}/s"
            for rate in plan.rates
            for name, label in (
                ("p50_ms", "ms, p50"),
                ("p99_ms", "ms, p99"),
                ("arrived_per_s", "events/s that arrive"),
                ("cpu_ms_per_event", "CPU ms per event and broker"),
                ("messages_per_event", "messages per event and broker"),
            )
        },
        "update_ms": "ms, one awaited update at a time, p50",
        "updates_per_s": f"awaited updates/s, {SUBSCRIPTIONS} at a time",
        "idle_cpu_percent": "% of a core, idle broker",
        "idle_broker_mb": "MB of memory, idle broker",
        "idle_cpu_percent_with_clients": f"% of a core, idle broker, {plan.idle_clients} more clients there",
        "idle_client_kb": "kB of a broker's memory per idle client",
    }
