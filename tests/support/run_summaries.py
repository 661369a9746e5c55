"""Invented metrics of runs, in `summarise`'s form."""

from collections.abc import Mapping
from typing import Any

from covey.sim.scenario.scenario import Scenario


def summary(
    run: str, scenario: Scenario, rate: float, choices: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A run's metrics with this throughput, and plausible other values."""
    times = {"count": 50, "mean": 41.0, "p50": 40.0 + scenario.seed, "p99": 90.0, "max": 99.0}
    broker = {"events": 900, "control_messages": 300, "busy_share": 0.4}
    return {
        "run": run,
        "scenario": {name: getattr(scenario, name) for name in Scenario.__dataclass_fields__},
        "choices": dict(choices or {}),
        "complete": True,
        "clock_steps": 0,
        "duration_s": 10.0,
        **{"published": 500, "delivered": 110, "changes": 60, "subscribers": 150, "dropped": 0},
        "throughput_events_per_s": rate,
        "throughput_per_subscriber": rate / 150,
        "delay_ms": times,
        "latency_ms": times,
        **{"excused": 2, "missed": 0, "lost": 0},
        **{"spurious": 3, "spurious_per_s": 0.3, "expected": 112, "duplicate": 0},
        **{"control_messages": 600, "control_between_brokers": 500, "control_busiest_link": 90},
        "control_per_change": 10.0,
        "control_by_kind": {"Update": 400, "Acknowledge": 200},
        "brokers": {f"b{n}": broker for n in range(4)},
        "busiest_share": 0.4,
    }
