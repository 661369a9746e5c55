"""A wheel of Covey is complete, and works in an environment without the source tree."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from covey.overlay.local_overlay import free_addresses

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("cli", "gateway", "matcher", "overlay", "proto", "sim", "spark")
OVERLAY = """
overlay: wheel
brokers: {{b1: {{address: "127.0.0.1:{port}"}}}}
links: []
"""
ROUND_TRIP = """
import asyncio
import covey.matcher
from covey.matcher import EventType
from covey.overlay import Client

async def main():
    async with Client("127.0.0.1:{port}") as exchange, Client("127.0.0.1:{port}") as trader:
        await exchange.advertise(EventType("Quote", {{"price": "float64"}}))
        quotes = await trader.subscribe("Quote", "price < $limit", limit=10.0)
        for price in (11.0, 9.5):
            await exchange.publish("Quote", price=price)
        print((await anext(quotes))["price"], covey.matcher.__file__)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the sources with this environment's setuptools, so that no network is needed."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "source"
    copy.mkdir()
    for room in ROOMS:
        shutil.copytree(ROOT / room, copy / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*pip, "--wheel-dir", folder, copy],
        check=True,
        capture_output=True,
        env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    (wheel,) = folder.glob("covey-*.whl")
    return wheel


def test_the_wheel_has_every_module_the_contract_and_the_licence(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {f"covey/{path.relative_to(ROOT)}" for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    assert sources <= names
    assert {"covey/proto/broker.proto", "covey/matcher/py.typed", "covey/overlay/py.typed"} <= names
    assert any(name.endswith("/LICENSE") for name in names)
    assert {top for top in (name.split("/")[0] for name in names) if not top.endswith(".dist-info")} == {
        "covey"
    }


def install(wheel: Path, environment: Path) -> Path:
    """The interpreter of a new environment with the wheel, and the dependencies of this one."""
    venv.create(environment, with_pip=False, symlinks=True)
    (packages,) = environment.glob("lib/python3*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    return environment / "bin" / "python"


def test_the_wheel_works_without_the_source_tree(wheel: Path, tmp_path: Path) -> None:
    python = install(wheel, tmp_path / "environment")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words: str) -> str:
        return subprocess.run(
            [python, *words], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        ).stdout

    covey = ("-m", "covey.cli.main")
    assert run(*covey, "--version") == "covey 0.1.0\n"
    port = free_addresses(1)[0].rpartition(":")[2]
    (tmp_path / "overlay.yaml").write_text(OVERLAY.format(port=port))
    up = subprocess.Popen(
        [python, *covey, "up", "overlay.yaml"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert up.stdout is not None
        assert any(line.startswith("ready: ") for line in up.stdout)
        price, file = run("-c", ROUND_TRIP.format(port=port)).split()
        assert price == "9.5"
        assert Path(file).is_relative_to(tmp_path)
        health = run(*covey, "health", "--broker", f"127.0.0.1:{port}")
        assert health.startswith(f"127.0.0.1:{port} SERVING\nkernels: ")
    finally:
        up.terminate()
        up.communicate(timeout=100)
    assert up.returncode == 0
