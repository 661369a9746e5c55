"""A wheel of Covey is complete, and works in an environment without the source tree."""

import json
import os
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from covey.sim.experiments.local_overlay import free_addresses

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("bridge", "cli", "gateway", "matcher", "overlay", "proto", "sim", "spark", "testing")
OVERLAY = """
overlay: wheel
brokers: {{b1: {{address: "127.0.0.1:{port}"}}}}
links: []
"""
APPLICATION = Path(__file__).resolve().parent / "application.py"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """From a copy of the sources with this environment's setuptools, so that no network is needed."""
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
    assert {"covey/proto/broker.proto", "covey/proto/broker_pb2.pyi"} <= names
    assert {f"covey/{room}/py.typed" for room in ROOMS} <= names
    assert any(name.endswith("/LICENSE") for name in names)
    assert {top for top in (name.split("/")[0] for name in names) if not top.endswith(".dist-info")} == {
        "covey"
    }


@pytest.fixture(scope="module")
def python(wheel: Path) -> Path:
    """The interpreter of a new environment with the wheel, and this one's dependencies."""
    environment = wheel.parent / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    (packages,) = environment.glob("lib/python3*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    return environment / "bin" / "python"


@pytest.mark.thorough  # they read all of Covey
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_an_application_has_types(checker: str, python: Path, tmp_path: Path) -> None:
    """In the strict mode of both type checkers, which find Covey where the wheel is installed."""
    strict = {"include": [str(APPLICATION)], "typeCheckingMode": "strict", "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(strict))
    command = {
        "mypy": ["mypy", "--strict", "--python-executable", python, APPLICATION],
        "pyright": ["basedpyright", "--project", tmp_path, "--pythonpath", python],
    }[checker]
    checked = subprocess.run(
        [sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.thorough
def test_the_wheel_works_without_the_source_tree(python: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words: str | Path) -> str:
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
        printed = run(APPLICATION, f"127.0.0.1:{port}").splitlines()
        assert printed == ["NOT_FOUND 9.5 9.0 400 [3] 0", "[9.5, 9.0] 4 enter"]
        imported = run("-c", "import covey.matcher; print(covey.matcher.__file__)")
        assert Path(imported).is_relative_to(python.parents[1])
        health = run(*covey, "health", "--broker", f"127.0.0.1:{port}")
        assert health.startswith(f"127.0.0.1:{port} SERVING\nkernels: ")
    finally:
        up.terminate()
        up.communicate(timeout=100)
    assert up.returncode == 0
