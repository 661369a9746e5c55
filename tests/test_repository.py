"""Facts about the repository: rooms import downwards, every package ships, documents hold, and names are in
docs/glossary.md."""

import ast
import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc
from typer.main import get_command

from benchmarks.__main__ import BENCHMARKS
from covey.cli.main import COMMANDS, app_of
from covey.proto import broker_pb2

pytestmark = pytest.mark.xdist_group("repository")  # one worker parses the sources, once

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("bridge", "cli", "gateway", "matcher", "overlay", "proto", "sim", "spark", "testing")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
IMPURE = ("asyncio", "google", "grpc", "random", "socket", "threading", "time")
BRIDGE_ONLY = ("aiomqtt", "paho")
GATEWAY_ONLY = ("fastapi", "orjson", "starlette", "uvicorn", "websockets")
SIM_ONLY = ("bokeh", "bokeh_sampledata", "matplotlib", "networkx", "pandas", "pyspark")
EXTRAS_ONLY = (*BRIDGE_ONLY, *GATEWAY_ONLY, *SIM_ONLY)
WITH_SPANS = ("covey.overlay.spans", "covey.overlay.node.node_tracing")
"""Modules that need opentelemetry; others import them where spans are wanted."""


def sources(*rooms: str) -> Iterator[Path]:
    for room in rooms:
        yield from sorted((ROOT / room).rglob("*.py"))


@cache
def nodes(path: Path) -> list[ast.AST]:
    return [*ast.walk(ast.parse(path.read_text(), str(path)))]


@cache
def imported(path: Path) -> set[str]:
    """The full names of all modules that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in nodes(path):
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


def picture() -> dict[str, int]:
    """The rooms of the picture in ARCHITECTURE.md, from the top down, each with its place."""
    _, text, _ = (ROOT / "ARCHITECTURE.md").read_text().split("```\n", 2)
    rooms: dict[str, int] = {}
    above: list[str] = []
    for line in text.splitlines():
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        above[depth:] = [name]
        rooms["".join(above).rstrip("/")] = len(rooms)
    return rooms


PICTURE = picture()
MODULES = {module_name(path): path for path in sources(*ROOMS) if "_pb2" not in path.name}


@cache
def room_of(module: str) -> str:
    """A module's narrowest entry in the picture: its file, or its folder."""
    path = MODULES[module].relative_to(ROOT)
    return next(str(place) for place in (path, *path.parents) if str(place) in PICTURE)


@cache
def imports_of(module: str) -> set[str]:
    """The modules of Covey that a module imports, anywhere in it."""
    found = set()
    for name in imported(MODULES[module]):
        found.add(name if name in MODULES else name.rpartition(".")[0])
    return {name for name in found if name in MODULES} - {module}


def test_the_picture_shows_the_folders() -> None:
    folders = {
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in [ROOT / room, *(ROOT / room).rglob("*/")]
        if any(path.glob("*.py"))
    }
    assert {place for place in PICTURE if not place.endswith(".py")} == folders
    assert all((ROOT / place).exists() for place in PICTURE)


def test_imports_point_down_the_picture() -> None:
    """A room imports from those below it, an `__init__` from all inside it, none of them from it."""
    wrong = []
    for module, path in MODULES.items():
        for other in sorted(imports_of(module)):
            if path.name == "__init__.py" and other.startswith(module + "."):
                continue
            mine, its = room_of(module), room_of(other)
            if module.startswith(other + ".") or (mine != its and PICTURE[its] < PICTURE[mine]):
                wrong.append(f"{module} ({mine}) imports {other} ({its})")
    assert wrong == []


def test_no_imports_run_in_a_circle() -> None:
    TopologicalSorter({module: imports_of(module) for module in MODULES}).prepare()


NEVER = {
    "matcher": (*IMPURE, *EXTRAS_ONLY),
    "overlay/core": (*IMPURE, *EXTRAS_ONLY),
    "overlay/http2": (*IMPURE, "covey.matcher", *EXTRAS_ONLY),
    "overlay/storage": (*IMPURE, "covey.overlay.core", "covey.overlay.transport", *EXTRAS_ONLY),
    "overlay/transport": ("grpc", *EXTRAS_ONLY),
    "overlay/client": ("covey.overlay.node", "grpc", "grpc_health", "grpc_reflection", *EXTRAS_ONLY),
    "overlay/node": ("covey.overlay.client", "grpc", *EXTRAS_ONLY),
    "bridge": ("covey.overlay.node", "covey.sim", "covey.spark"),
    "gateway": ("covey.overlay.node", "covey.sim", "covey.spark"),
}
"""Imports that files of a room must not have, although the order of the picture would allow them."""

ALLOWED = {
    ("matcher/events/python_rows.py", "pandas"),  # within a function that a user calls for its sake
    ("matcher/engine.py", "threading.RLock"),
    ("matcher/embedded/matcher.py", "threading.RLock"),  # a lock has no effect on answers
    ("matcher/embedded/snapshot.py", "threading.get_ident"),  # part of the name of a file
    ("matcher/jit/compiling.py", "threading.RLock"),
    ("matcher/jit/kernel_loader.py", "threading"),  # it loads kernels beside what matches without them
    ("matcher/jit/kernel_loader.py", "time"),  # pauses while another process compiles
}


@pytest.mark.parametrize("room", NEVER)
def test_rooms_do_without(room: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(room)
        for name in sorted(imported(path))
        if "_pb2" not in path.name and within(name, NEVER[room])
        if (str(path.relative_to(ROOT)), name) not in ALLOWED
    ]
    assert wrong == []


@pytest.mark.parametrize("room", ["matcher", "overlay/core", "overlay/http2", "overlay/storage"])
def test_pure_rooms_know_times_as_values_but_never_ask_what_time_it_is(room: str) -> None:
    asking = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.attr}"
        for path in sources(room)
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and node.attr in ("now", "today", "utcnow")
    ]
    assert not asking


def test_only_the_wire_modules_know_the_generated_classes() -> None:
    touching = {
        str(path.relative_to(ROOT))
        for path in sources("benchmarks", "cli", "matcher", "overlay", "sim", "spark")
        if any(within(name, ("covey.proto", "google.protobuf")) for name in imported(path))
    }
    modules = (
        "codec",
        "packets",
        "wire_values",
    )
    standard = ("node/health",)  # services that are not of Covey
    wire = [f"transport/{module}" for module in modules]
    stored = ("node/broker_storage",)  # the records of logs, not of the wire
    # Peers that send what no encoder makes, or faster than any.
    hostile = {"sim/experiments/fuzz/packets.py"}
    hostile |= {"benchmarks/hostile.py", "benchmarks/floods.py"}
    assert touching == {f"overlay/{module}.py" for module in (*wire, *standard, *stored)} | hostile


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
    assert spec.origin is None


def test_broker_and_client_run_without_the_extras() -> None:
    """In a process where no extra can be imported."""
    modules = [module_name(path) for path in sources("matcher", "overlay", "proto", "cli")]
    modules = [module for module in modules if module not in WITH_SPANS]
    absent = (*EXTRAS_ONLY, "opentelemetry")
    program = f"""
import importlib, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
for module in {modules!r}:
    importlib.import_module(module)
loaded = sorted({{m.partition(".")[0] for m in sys.modules}} & set({absent!r}))
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_extras_are_extras() -> None:
    plain = [text for text in requires("covey") or [] if "extra ==" not in text]
    assert plain
    extras = (*EXTRAS_ONLY, "opentelemetry")
    assert not [text for text in plain if re.split(r"[^A-Za-z0-9]+", text)[0].lower() in extras]


def test_stubs_are_those_of_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By content, since an old protoc generates them, for old runtimes."""
    monkeypatch.chdir(ROOT)
    words = ["-Icovey/proto=proto", f"--descriptor_set_out={tmp_path / 'set'}", "proto/broker.proto"]
    assert protoc.main(["protoc", *words]) == 0
    (contract,) = descriptor_pb2.FileDescriptorSet.FromString((tmp_path / "set").read_bytes()).file
    for message in contract.message_type:
        for field in (*message.field, *(field for nested in message.nested_type for field in nested.field)):
            field.ClearField("json_name")
    stubs = descriptor_pb2.FileDescriptorProto.FromString(broker_pb2.DESCRIPTOR.serialized_pb)
    assert stubs == contract, "run `make proto`"
    (service,) = contract.service
    calls = re.findall(r"'/covey\.v1\.Broker/(\w+)'", (ROOT / "proto/broker_pb2_grpc.py").read_text())
    assert set(calls) == {method.name for method in service.method}
    types = (ROOT / "proto/broker_pb2.pyi").read_text()
    assert all(f"class {message.name}(" in types for message in contract.message_type)


def test_stubs_run_on_every_protobuf() -> None:
    """Stubs of protoc 26 and later refuse runtimes older than themselves."""
    assert "ValidateProtobufRuntimeVersion" not in (ROOT / "proto/broker_pb2.py").read_text()
    assert "GRPC_GENERATED_VERSION" not in (ROOT / "proto/broker_pb2_grpc.py").read_text()


DOCUMENTS = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").glob("*.md"))]


def test_files_that_documents_and_docstrings_name_exist() -> None:
    """In backticks, with a folder: by their path or the end of it. Of docstrings, modules."""
    folders = (*ROOMS, "benchmarks", "deploy", "examples", "tests")
    files = [f"/{path.relative_to(ROOT)}" for folder in folders for path in (ROOT / folder).rglob("*.*")]
    named = re.compile(r"`(\w[\w.-]*/[\w./-]+\.(?:js|json|mjs|proto|py|ts|ya?ml))`")
    missing = [
        f"{document.name}: {name}"
        for document in (*DOCUMENTS, *sources(*ROOMS, "benchmarks"))
        for name in named.findall(document.read_text())
        if document in DOCUMENTS or name.endswith(".py")
        if not any(file.endswith(f"/{name}") for file in files)
    ]
    assert missing == []


def test_links_of_documents_lead_to_files_and_headings() -> None:
    texts = {path: re.sub(r"(?ms)^```.*?^```", "", path.read_text()) for path in DOCUMENTS}
    headings = {
        path: [
            re.sub(r"[^\w -]", "", line).replace(" ", "-")
            for line in re.findall("(?m)^#+ (.*)", text.lower())
        ]
        for path, text in texts.items()
    }
    broken = [
        f"{path.name}: {link}#{heading}"
        for path, text in texts.items()
        for link, heading in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", text)
        for target in [(path.parent / link).resolve() if link else path]
        if not target.exists() or (heading and heading not in headings.get(target, ()))
    ]
    assert broken == []


def test_commands_that_are_named_exist() -> None:
    """As `covey NAME`, in documents, docstrings and comments; so do benchmarks."""
    programs = {"covey": {name for name, *_ in COMMANDS} - {"bench"}, "covey bench": {"chain", "match"}}
    programs["python -m benchmarks"] = set(BENCHMARKS)
    wrong = [
        f"{path.relative_to(ROOT)}: {program} {name}"
        for path in (*DOCUMENTS, *sources(*ROOMS, "benchmarks"))
        for program, names in programs.items()
        for name in re.findall(rf"`{program} (?!bench\b)([a-z]\w*)", path.read_text())
        if name not in names
    ]
    assert wrong == []


def test_options_of_commands_in_documents_exist() -> None:
    """In blocks of code, on lines that begin with `covey`."""
    app: Any = get_command(app_of(COMMANDS, "covey", "", [name for name, *_ in COMMANDS]))
    wrong = []
    lines = 0
    for document in DOCUMENTS:
        for line in re.findall(r"(?m)^ *(?:\$ )?covey ([^`\n]+)$", document.read_text()):
            words, command = shlex.split(line, comments=True), app
            while words and words[0] in getattr(command, "commands", {}):
                command = command.commands[words.pop(0)]
            known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
            given = {word.partition("=")[0] for word in words if word.startswith("--")}
            wrong += [f"{document.name}: covey {line}: {option}" for option in given - known]
            wrong += [f"{document.name}: covey {line}"] if command is app else []
            lines += 1
    assert wrong == []
    assert lines > 50


def test_nothing_that_ships_needs_the_benchmarks() -> None:
    assert not [
        path for path in sources(*ROOMS) if any(within(name, ("benchmarks",)) for name in imported(path))
    ]


# --- the glossary ------------------------------------------------------------------------------------


def glossary() -> Iterator[tuple[str, list[str], list[str]]]:
    """Each line of the tables: its term, its names in the code, and the words that it rules out."""
    for line in (ROOT / "docs" / "glossary.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == 4 and cells[0] not in ("term", "---"):
            ruled_out = cells[3].strip("| ").split(", ")
            yield cells[0], re.findall(r"`(\w+)`", cells[1]), [word for word in ruled_out if word]


def names_of(path: Path) -> Iterator[str]:
    yield path.stem
    yield path.parent.name
    for node in nodes(path):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr


def words_of(name: str) -> str:
    """A name as words between underscores: `SlotContent` and `slot_content` are both `_slot_content_`."""
    return f"_{re.sub(r'(?<=[a-z0-9])(?=[A-Z])', '_', name).lower().strip('_')}_"


@cache
def all_names() -> dict[str, Path]:
    return {name: path for path in sources(*ROOMS) if "_pb2" not in path.name for name in names_of(path)}


def test_the_names_of_the_glossary_exist() -> None:
    missing = [
        f"{term}: {name}" for term, names, _ in glossary() for name in names if name not in all_names()
    ]
    assert missing == []


def test_no_name_has_a_word_that_the_glossary_rules_out() -> None:
    words = {name: words_of(name) for name in all_names()}
    wrong = [
        f"{all_names()[name].relative_to(ROOT)}: {name}, see {term}"
        for term, _, ruled_out in glossary()
        for word in ruled_out
        for name, spelled in words.items()
        if f"_{word}_" in spelled
    ]
    assert wrong == []
