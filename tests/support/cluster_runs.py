"""The runs that the tests of a cluster plan: small, and long enough to be interrupted."""

from covey.sim.experiments.runs.run_all import PlannedRun
from covey.sim.scenario.scenario import Scenario


def planned_runs() -> list[PlannedRun]:
    small = Scenario(brokers=5, publishers=2, subscribers=20, types=2, duration_s=1.0, event_rate=40.0)
    return [PlannedRun(f"seed-{seed}", small.having(seed=seed)) for seed in range(4)]
