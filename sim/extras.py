"""Error messages for missing packages of the extras `sim`, `gateway` and `mqtt`, and for Spark's Java."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from covey.matcher.errors import InputError

EXTRAS = {
    "bokeh": "bokeh",
    "bokeh_sampledata": "bokeh-sampledata",
    "matplotlib": "matplotlib",
    "networkx": "networkx",
    "pandas": "pandas",
    "pyspark": "pyspark",
}
GATEWAY = ("orjson", "starlette", "uvicorn", "websockets")
MQTT = ("aiomqtt", "paho")
"""Modules of the package aiomqtt, and of the package that it wraps."""
LEAST = {"pyspark": (4, 0)}
"""The oldest version of a module that works; an older one fails with unclear errors."""

INSTALL_JAVA = "install a Java runtime of version 17 or newer (Debian: openjdk-17-jre-headless)"
_JAVA_S = 20.0


def missing(what: str, error: ModuleNotFoundError) -> Exception:
    """An `InputError` that names the package to install for `what`; `error` itself for other modules."""
    module = (error.name or "").partition(".")[0]
    package, extra = (module, "gateway") if module in GATEWAY else (EXTRAS.get(module), "sim")
    if module in MQTT:
        package, extra = "aiomqtt", "mqtt"
    if package is None:
        return error
    return InputError(f"{what} needs {package}: `pip install 'covey[{extra}]'`")


def need(what: str, *modules: str) -> None:
    """Raise `InputError` unless all `modules` can be imported and are new enough. Call before long work."""
    for module in modules:
        _check_version(what, module)
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            raise missing(what, error) from None


def _check_version(what: str, module: str) -> None:
    least = LEAST.get(module)
    try:
        installed = version(EXTRAS[module]) if least else ""
    except PackageNotFoundError:  # where a platform brings the module itself
        return
    if least and tuple(map(int, re.findall(r"\d+", installed)[:2])) < least:
        wanted = ".".join(map(str, least))
        raise InputError(
            f"{what} needs {EXTRAS[module]} {wanted} or newer, and {installed} is installed: "
            f"`pip install '{EXTRAS[module]}>={wanted}'`"
        )


def java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def java_version(java: str) -> str | None:
    """The version, such as "17.0.9"; None if it does not run."""
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_S)
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r'version "([^"]+)"', ran.stderr + ran.stdout)
    return version and version[1]


def no_fitting_java(found: str | None) -> str:
    version = found and java_version(found)
    return f"Spark needs Java 17{f', and {found} is Java {version}' if version else ''}: {INSTALL_JAVA}"
