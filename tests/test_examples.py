"""The examples run unchanged, against broker processes; the README shows the first of them."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from covey.overlay.node.config import load_overlay
from covey.sim.experiments.local_overlay import THREE_LEVELS, LocalOverlay

ROOT = Path(__file__).resolve().parent.parent


async def run_examples(
    *names: str, tmp_path: Path, arguments: Sequence[str] = ()
) -> list[tuple[int, str, str]]:
    """Run examples in an overlay like five.yaml, with free ports instead of 7001 to 7005."""
    async with LocalOverlay(THREE_LEVELS) as overlay:
        return [await run_example(overlay, name, tmp_path, arguments) for name in names]


async def run_example(
    overlay: LocalOverlay, name: str, tmp_path: Path, arguments: Sequence[str]
) -> tuple[int, str, str]:
    text = (ROOT / "examples" / name).read_text()
    for number, address in enumerate(overlay.addresses.values(), start=1):
        text = re.sub(rf"(localhost|\{{host\}}):700{number}", address, text)
    assert ":700" not in text
    script = tmp_path / name
    script.write_text(text)
    process = await asyncio.create_subprocess_exec(
        sys.executable, script, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    )
    out, err = await asyncio.wait_for(process.communicate(), 200)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def test_the_readme_shows_the_client_example() -> None:
    (shown,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert shown == (ROOT / "examples" / "client.py").read_text()
    assert len(shown.splitlines()) < 25


@pytest.mark.usefixtures("local_brokers")
def test_the_examples_run(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    (code, out, err), (host_code, host_out, host_err), geofence = asyncio.run(
        run_examples("client.py", "host.py", "geofence.py", tmp_path=tmp_path)
    )
    assert (code, out) == (0, "bought at 9.5\nbought at 9.0\n"), err
    assert host_code == 0, host_out + host_err
    warnings = [
        "ambulance at 52.50: beware of truck A at 85 km/h",
        "ambulance at 52.52: beware of truck C at 90 km/h",
    ]
    assert (geofence[0], geofence[1].splitlines()) == (0, warnings), geofence[2]
    assert "operator risk at broker" in geofence[2]  # the subscriber is told that brokers have it not
    assert len((ROOT / "examples" / "geofence.py").read_text().splitlines()) < 40


CLOSES = """date,firm,price
2026-01-05,IBM,100
2026-01-05,HP,20
2026-01-06,IBM,110
2026-01-06,HP,19.5
2026-01-07,IBM,104.6
2026-01-07,HP,18.9
2026-01-08,IBM,104.4
2026-01-08,HP,30
2026-01-09,IBM,200
2026-01-09,HP,1
"""


@pytest.mark.usefixtures("brokers_in_process")
def test_trailing_stops_sell_below_the_highest_price(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    (tmp_path / "closes.csv").write_text(CLOSES)
    arguments = ("closes.csv", "sales.csv")
    ((code, out, err),) = asyncio.run(
        run_examples("trailing_stops.py", tmp_path=tmp_path, arguments=arguments)
    )
    assert (code, out, err) == (0, "", "")
    sales = [line.split(",") for line in (tmp_path / "sales.csv").read_text().splitlines()]
    assert sales[0] == ["date", "firm", "price"]
    assert [[date[:10], *rest] for date, *rest in sales[1:]] == [
        ["2026-01-07", "HP", "18.9"],  # below 0.95 of 20
        ["2026-01-08", "IBM", "104.4"],  # below 0.95 of 110, which 104.6 was not
    ]
    assert len((ROOT / "examples" / "trailing_stops.py").read_text().splitlines()) < 40


def test_both_overlay_files_describe_the_same_tree_at_the_same_ports() -> None:
    here, contained = (load_overlay(ROOT / "examples" / name, {}) for name in ("five.yaml", "compose.yaml"))
    assert here.links == contained.links == THREE_LEVELS
    assert here.event_types == contained.event_types
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    services = {name: service for name, service in services.items() if "profiles" not in service}
    assert list(services) == list(here.brokers) == list(contained.brokers)
    for name, service in services.items():
        (published,) = service["ports"]
        assert published == f"127.0.0.1:{here.brokers[name].address.rpartition(':')[2]}:7001"
        assert contained.brokers[name].address == f"{name}:7001"
        assert service["environment"]["COVEY_BROKER"] == name
