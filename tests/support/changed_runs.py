"""Simulated runs with a changed overlay."""

from functools import partial
from typing import Any
from unittest.mock import patch

from covey.sim.experiments.runs import simulated
from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.scenario.scenario import Scenario

SMALL_FRAMES = {"max_frame_bytes": 1}
"""A link with one message per frame: an Unsubscribe and a Subscribe in one would lose nothing."""


def changed_run(scenario: Scenario, **options: Any) -> SimulatedRun:
    """A run whose `Simulation` has these options in place of its own."""
    with patch.object(simulated, "Simulation", partial(_simulation, simulated.Simulation, options)):
        return SimulatedRun(scenario)


def _simulation(make: Any, options: dict[str, Any], *arguments: Any, **named: Any) -> Any:
    return make(*arguments, **(named | options))
