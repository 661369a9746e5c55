"""Checks the logs of durable types: a broker stores each event once, whatever came again after a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from covey.sim.checkers.findings import Findings

if TYPE_CHECKING:
    from covey.sim.simulator.simulation import Simulation


def check_logs(simulation: Simulation, findings: Findings) -> None:
    """No event has two records in the log of a broker. Nothing if no type is durable."""
    for name, broker in simulation.brokers.items():
        storage = None if broker.storage is None else broker.storage.open
        for type_name in () if storage is None else storage.types:
            stored: set[tuple[str, int]] = set()
            assert storage is not None
            for batch in storage.batches(type_name):
                events = {(batch.publisher, sequence) for sequence in batch.sequences().tolist()}
                for publisher, sequence in stored & events:
                    what = f"{name} has stored event {sequence} of {publisher}, of type {type_name}, twice"
                    findings.add("repetition", simulation.clock.now_ns, what)
                stored |= events
