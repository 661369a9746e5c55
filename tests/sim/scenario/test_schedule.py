from covey.sim.scenario.scenario import Scenario
from covey.sim.scenario.schedule import UpdateStep, create_load, create_topology, draw_schedule


def test_even_updates_come_one_in_each_interval() -> None:
    scenario = Scenario(updates="even", update_rate=0.5, subscribers=40, duration_s=3.0, event_rate=5.0)
    load = create_load(scenario, create_topology(scenario))
    steps = list(draw_schedule(scenario, load, [load.subscriber(n) for n in range(40)]))
    times = [step.after_ns for step in steps]
    assert times == sorted(times)
    updates = [step.after_ns for step in steps if isinstance(step, UpdateStep)]
    assert [time // 50_000_000 for time in updates] == list(range(60))
