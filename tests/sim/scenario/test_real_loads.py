"""Loads from real inputs: complete quotes in order, detectors at their places, vehicles on roads."""

import gzip
import random
from pathlib import Path

import pytest

from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.scenario.loads import LoadError
from covey.sim.scenario.recorded import DetectorLoad, QuotesLoad, detector_topology, load_quotes
from covey.sim.scenario.scenario import Scenario, ScenarioError
from covey.sim.simulator.observer import ObservedClient, Observer
from covey.sim.topology import make_topology

PLACES = [(34.0 + 0.01 * i, -118.0 - 0.01 * (i % 3)) for i in range(9)]


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Nine detectors along a road, and 50 moments of measurements, with one gap."""
    sensors, speeds = tmp_path / "sensors.csv", tmp_path / "speeds.csv.gz"
    rows = [f"{i},d{i},{latitude},{longitude}" for i, (latitude, longitude) in enumerate(PLACES)]
    sensors.write_text("\n".join(["index,sensor_id,latitude,longitude", *rows]) + "\n")
    lines = [",".join(f"d{i}" for i in range(9))]
    lines += [
        ",".join("" if (m, i) == (3, 4) else str(20 + (m * 7 + i) % 50) for i in range(9)) for m in range(50)
    ]
    with gzip.open(speeds, "wt") as file:
        file.write("\n".join(lines) + "\n")
    return str(sensors), str(speeds)


def scenario(files: tuple[str, str]) -> Scenario:
    return Scenario(
        load="detectors",
        sensors=files[0],
        speeds=files[1],
        publishers=9,
        subscribers=15,
        duration_s=2.0,
        event_rate=20.0,
        update_rate=4.0,
    )


def test_quotes_come_in_order_whole_and_again() -> None:
    topology = make_topology("trading", 20)
    load = QuotesLoad(topology, 5, random.Random(1))
    count = sum(len(load.events(number, 10_000)) for number in range(5))
    assert count == load_quotes().num_rows
    first = load.events(0, 2)
    dates = [row["date"] for row in first.to_pylist()]
    assert dates == sorted(dates)
    assert QuotesLoad(topology, 5, random.Random(1)).events(0, 2) == first
    with pytest.raises(LoadError, match="at most 5"):
        QuotesLoad(topology, 6, random.Random(1))


class Moves(Observer):
    """Counts clients' changes of brokers."""

    count = 0

    def moved(self, client: ObservedClient, broker: str) -> None:
        self.count += 1


def test_a_run_on_quotes_is_judged() -> None:
    report = SimulatedRun(
        Scenario(load="quotes", subscribers=30, duration_s=1.0, event_rate=100.0, batch=5)
    ).run()
    assert report.findings == []
    assert report.delivered > 100
    assert report.expected > 100


def test_a_run_on_detectors_is_judged(files: tuple[str, str]) -> None:
    run, moves = SimulatedRun(scenario(files)), Moves()
    run.simulation.observers.append(moves)
    report = run.run()
    assert report.findings == []
    assert report.brokers == 9
    assert report.delivered > 20
    assert moves.count > 0


def test_detectors_report_what_the_file_says(files: tuple[str, str]) -> None:
    load = DetectorLoad(detector_topology(files[0], delay_ms=10), 9, random.Random(1), files[1])
    assert load.publisher(4)[0] == "d4"
    rows = load.events(4, 6).to_pylist()
    assert [row["speed"] for row in rows] == [24.0, 31.0, 38.0, None, 52.0, 59.0]
    assert load.events(4, 100).to_pylist()[0]["speed"] == 66.0
    assert load.events(4, 1).to_pylist()[0]["speed"] == 24.0
    north = load.events(8, 1).to_pylist()[0]["y"] - load.events(0, 1).to_pylist()[0]["y"]
    assert north == pytest.approx(0.08 * 111_195, rel=1e-3)


def test_vehicles_drive_along_roads_from_end_to_end(files: tuple[str, str]) -> None:
    load = DetectorLoad(detector_topology(files[0], delay_ms=10), 9, random.Random(1), files[1])
    subscriber = load.subscriber(0)
    brokers = {subscriber.broker}
    for _ in range(400):
        before = dict(subscriber.values)
        values, subscriber.broker = load.next_values(0, subscriber)
        subscriber.values |= values
        brokers.add(subscriber.broker)
        assert abs(values["x"] - before["x"]) < 1000
        assert abs(values["y"] - before["y"]) < 1000
    assert brokers == {f"d{i}" for i in range(9)}


def test_what_does_not_fit_is_named(files: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="expected CSV files as speeds and sensors"):
        Scenario(load="detectors")
    wrong = tmp_path / "wrong.csv"
    for text, complaint in (
        ("d0,d1\n1,2\n", "no column for detector d2; 7 have none"),
        (",".join(f"d{i}" for i in range(9)) + "\n" + ",".join("x" * 9) + "\n", "column d0"),
        (",".join(f"d{i}" for i in range(9)) + "\n", "no rows|no CSV"),
    ):
        wrong.write_text(text)
        with pytest.raises(LoadError, match=complaint):
            SimulatedRun(scenario((files[0], str(wrong))))
    with pytest.raises(LoadError, match="not a CSV file of speeds"):
        SimulatedRun(scenario((files[0], str(tmp_path / "absent.csv"))))
    with pytest.raises(LoadError, match="at most 9"):
        SimulatedRun(scenario(files).having(publishers=10))
