"""`from covey.overlay import Client` imports the client library and nothing of a broker."""

import json
import pydoc
import subprocess
import sys
from importlib.metadata import version

import covey.overlay

NOT_LOADED = (
    "covey.cli",
    "covey.overlay.core.routing",
    "covey.overlay.node",
    "covey.sim",
    "grpc",
    "grpc_health.v1",
    "grpc_reflection.v1alpha",
    "llvmlite",
    "numba",
    "pandas",
    "pydantic",
    "re2",
    "rich",
    "shapely",
    "sklearn",
    "typer",
    "yaml",
)


def test_the_module_lists_its_public_names() -> None:
    shown = pydoc.plain(pydoc.render_doc(covey.overlay))
    assert covey.overlay.__version__ == version("covey")
    for name in covey.overlay.__all__:
        assert name in dir(covey.overlay)
        assert getattr(covey.overlay, name).__name__ == name
        assert f"class {name}(" in shown or f"    {name}" in shown, name


PROGRAM = """
import json, sys
from covey.overlay import Client
print(json.dumps(sorted(sys.modules)))
from covey.matcher import EventType, parse
from covey.matcher.operators.table import find, names
parse("x > 1", EventType("T", {"x": "float64"}))
assert {"matches", "inside"} <= set(names())
assert not {"shapely", "re2"} & set(sys.modules)
assert find("matches") is not None
assert "re2" in sys.modules and "shapely" not in sys.modules
"""


def test_importing_the_client_loads_no_broker_no_compiler_and_no_package_of_an_operator() -> None:
    """An operator's packages are imported when a filter calls it."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    loaded: list[str] = json.loads(done.stdout)
    assert "covey.overlay.client.client" in loaded
    assert not [name for name in loaded if name.startswith(tuple(each + "." for each in NOT_LOADED))]
    assert not set(NOT_LOADED) & set(loaded)
