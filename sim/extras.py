"""The packages of the extras `sim`, `gateway` and `mqtt`, and the error if one is missing; Spark's Java."""

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
"""By module, the package to install."""
GATEWAY = ("orjson", "starlette", "uvicorn", "websockets")
"""The packages of the extra `gateway`, which are called as their modules are."""
MQTT = ("aiomqtt", "paho")
"""The modules of the package aiomqtt, of the extra `mqtt`, and of what it wraps."""
LEAST = {"pyspark": (4, 0)}
"""By module, the version from which on it fits, where an older one fails in ways that do not say so."""

INSTALL_JAVA = "install a Java runtime of version 17 or newer (Debian: openjdk-17-jre-headless)"
_JAVA_S = 20.0


def missing(what: str, error: ModuleNotFoundError) -> Exception:
    """An `InputError` that names the package to install for `what`; other modules' errors unchanged."""
    module = (error.name or "").partition(".")[0]
    package, extra = (module, "gateway") if module in GATEWAY else (EXTRAS.get(module), "sim")
    if module in MQTT:
        package, extra = "aiomqtt", "mqtt"
    if package is None:
        return error
    return InputError(f"{what} needs {package}: `pip install 'covey[{extra}]'`")


def need(what: str, *modules: str) -> None:
    """Raise `InputError` unless all `modules` can be imported and are new enough; before long work."""
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
    """The java that Spark runs, None if there is none."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def java_version(java: str) -> str | None:
    """The version of a java, such as "17.0.9"; None if it does not run."""
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_S)
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r'version "([^"]+)"', ran.stderr + ran.stdout)
    return version and version[1]


def no_fitting_java(found: str | None) -> str:
    """The sentence on a Java that is absent or too old."""
    version = found and java_version(found)
    return f"Spark needs Java 17{f', and {found} is Java {version}' if version else ''}: {INSTALL_JAVA}"
