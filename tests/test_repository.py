"""Facts about the repository itself: rooms import downwards, every package ships, documents hold."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("cli", "matcher", "overlay", "proto", "sim")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
IMPURE = ("asyncio", "google", "grpc", "random", "socket", "threading", "time")
EXTRAS_ONLY = ("bokeh_sampledata", "matplotlib", "networkx", "pandas", "pyspark")


def sources(*rooms: str) -> Iterator[Path]:
    for room in rooms:
        yield from sorted((ROOT / room).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The full names of all modules that a file imports, wherever in it the import stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import; write it in full"
            assert node.module is not None
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("covey", *parts)).removesuffix(".__init__")


def within(name: str, modules: tuple[str, ...]) -> bool:
    return any(name == module or name.startswith(module + ".") for module in modules)


FORBIDDEN = {
    "proto": ("covey.matcher", "covey.overlay", "covey.sim", "covey.cli"),
    "matcher": ("covey.overlay", "covey.proto", "covey.sim", "covey.cli", *IMPURE, *EXTRAS_ONLY),
    "overlay/core": (
        "covey.overlay.client",
        "covey.overlay.node",
        "covey.proto",
        "covey.sim",
        "covey.cli",
        *IMPURE,
        *EXTRAS_ONLY,
    ),
    "overlay/transport": (
        "covey.overlay.client",
        "covey.overlay.node",
        "covey.sim",
        "covey.cli",
        *EXTRAS_ONLY,
    ),
    "overlay/client": ("covey.overlay.node", "covey.sim", "covey.cli", *EXTRAS_ONLY),
    "overlay/node": ("covey.overlay.client", "covey.sim", "covey.cli", *EXTRAS_ONLY),
    "sim": ("covey.cli",),
}
"""What the files of a room must never import."""


@pytest.mark.parametrize("room", FORBIDDEN)
def test_imports_point_down(room: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(room)
        for name in sorted(imported(path))
        if within(name, FORBIDDEN[room])
    ]
    assert not wrong


@pytest.mark.parametrize("room", ["matcher", "overlay/core"])
def test_pure_rooms_know_times_as_values_but_never_ask_what_time_it_is(room: str) -> None:
    asking = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.attr}"
        for path in sources(room)
        for node in ast.walk(ast.parse(path.read_text(), str(path)))
        if isinstance(node, ast.Attribute) and node.attr in ("now", "today", "utcnow")
    ]
    assert not asking


def test_two_modules_alone_know_the_generated_classes() -> None:
    touching = {
        str(path.relative_to(ROOT))
        for path in sources("cli", "matcher", "overlay", "sim")
        if any(within(name, ("covey.proto", "google.protobuf")) for name in imported(path))
    }
    assert touching == {"overlay/transport/codec.py", "overlay/transport/calls.py"}


def test_every_package_folder_is_listed_and_every_listed_one_exists() -> None:
    found = {
        "covey." + ".".join(path.parent.relative_to(ROOT).parts)
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
    }
    assert set(PYPROJECT["tool"]["setuptools"]["packages"]) == found
    assert set(PYPROJECT["tool"]["setuptools"]["package-dir"]) == {f"covey.{room}" for room in ROOMS}
    assert all((ROOT / room / "py.typed").exists() for room in ROOMS)


def test_covey_is_a_namespace_() -> None:
    assert not (ROOT / "__init__.py").exists()
    spec = importlib.util.find_spec("covey")
    assert spec is not None
    assert spec.origin is None


def test_broker_and_client_run_without_the_extras() -> None:
    """In a process where none of the extras can be imported, every module that comes without them can."""
    modules = [module_name(path) for path in sources("matcher", "overlay", "proto", "cli")]
    program = f"""
import importlib, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS_ONLY!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
for module in {modules!r}:
    importlib.import_module(module)
loaded = sorted({{m.partition(".")[0] for m in sys.modules}} & set({EXTRAS_ONLY!r}))
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_extras_are_extras() -> None:
    plain = [text for text in requires("covey") or [] if "extra ==" not in text]
    assert plain
    assert not [text for text in plain if re.split(r"[^A-Za-z0-9]+", text)[0].lower() in EXTRAS_ONLY]


def test_a_wheel_holds_every_module_the_contract_and_the_licence(tmp_path: Path) -> None:
    """Built from a copy of the sources with this environment's setuptools, so that no network is needed."""
    copy = tmp_path / "source"
    copy.mkdir()
    for room in ROOMS:
        shutil.copytree(ROOT / room, copy / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*pip, "--wheel-dir", tmp_path, copy],
        check=True,
        capture_output=True,
        env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    (wheel,) = tmp_path.glob("covey-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {"covey/" + str(path.relative_to(ROOT)) for path in sources(*ROOMS)}
    assert expected <= names
    assert {"covey/proto/broker.proto", "covey/matcher/py.typed", "covey/overlay/py.typed"} <= names
    assert any(name.endswith("/LICENSE") for name in names)
    assert {top for top in (name.split("/")[0] for name in names) if not top.endswith(".dist-info")} == {
        "covey"
    }


def test_stubs_are_those_of_the_contract(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-Icovey/proto=proto"]
        + [f"--{kind}={tmp_path}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
        + ["proto/broker.proto"],
        check=True,
        cwd=ROOT,
    )
    made = {path.name: path.read_text() for path in (tmp_path / "covey" / "proto").iterdir()}
    kept = {path.name: path.read_text() for path in (ROOT / "proto").glob("broker_pb2*")}
    assert kept.keys() == made.keys()

    def without_versions(text: str) -> str:
        return re.sub(r"(?m)^.*(?:Protobuf Python Version|GRPC_GENERATED_VERSION =).*$|\d+,\n", "", text)

    stale = [name for name in made if without_versions(made[name]) != without_versions(kept[name])]
    assert not stale, "run `make proto`"
