"""This machine's provisions for Covey, as findings of `covey doctor`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from covey.matcher import kernels_cached
from covey.matcher.jit.cache import cache_directory, cache_writable
from covey.overlay.node.server import descriptor_limit
from covey.overlay.transport.rpc_server import ConnectionLimits
from covey.sim.extras import java, java_version, no_fitting_java

NEEDED_FOR = {
    "gateway": ("covey gateway, covey demo map", "how-to-browser.md"),
    "mqtt": ("covey bridge mqtt", "how-to-mqtt.md"),
    "sim": ("covey sim, plan, sweep, metrics, topology, reproduce", "how-to-simulate.md"),
    "operators": ("filters that call inside or matches", "operators.md"),
    "security": ("tokens of clients, covey certs", "how-to-secure.md"),
    "otel": ("traces by OpenTelemetry", "operations.md#traces"),
    "bench": ("comparisons of python -m benchmarks", ""),
    "docs": ("make docs", ""),
    "dev": ("work on Covey itself", ""),
}
"""By extra: what needs its packages, and the page about it."""
_LEAST_PYTHON = (3, 11)
_LEAST_JAVA = 17
BROKER_BYTES = 125 << 20
"""Of an idle broker (docs/how-to-size.md)."""


class State(StrEnum):
    OK = "ok"
    NOTE = "note"
    WRONG = "wrong"
    """No broker can start, or serve."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`text` is one sentence, with what to do unless the state is OK; `page` is a page of the documents, or
    ""."""

    subject: str
    state: State
    text: str
    page: str = ""


def machine_findings() -> Iterator[Finding]:
    """One finding per subject. Changes nothing but this process's limit of open files."""
    yield _python()
    yield from _packages()
    yield _java()
    yield _kernels()
    yield _open_files()
    cores, available = usable_cores(), available_bytes()
    yield Finding("cores", State.OK, f"{cores}; a broker uses one")
    if available < BROKER_BYTES:
        text = f"{available >> 20:,} MiB are free: expected {BROKER_BYTES >> 20} MiB for each broker"
        yield Finding("memory", State.WRONG, text, "how-to-size.md")
    else:
        yield Finding("memory", State.OK, f"{available / 2**30:,.1f} GiB free")


def usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_bytes() -> int:
    """Memory for new processes without swapping, within the container's limit."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError, IndexError):
        (line,) = [
            each for each in Path("/proc/meminfo").read_text().splitlines() if each.startswith("MemAvailable")
        ]
        available = int(line.split()[1]) << 10
    cgroup = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):  # without a limit it is the word max
        limit = int((cgroup / "memory.max").read_text())
        available = min(available, limit - int((cgroup / "memory.current").read_text()))
    return available


def _python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _LEAST_PYTHON:
        least = ".".join(map(str, _LEAST_PYTHON))
        return Finding("Python", State.WRONG, f"it is {found}: expected {least} or newer", "tutorial.md")
    return Finding("Python", State.OK, found)


def _packages() -> Iterator[Finding]:
    wanted = [Requirement(text) for text in requires("covey") or []]
    plain = [each for each in wanted if each.marker is None or each.marker.evaluate({"extra": ""})]
    absent = list(_absent(plain))
    if absent:
        text = f"missing or too old: {', '.join(absent)}; pip install covey"
        yield Finding("packages", State.WRONG, text, "tutorial.md")
    else:
        yield Finding("packages", State.OK, "all that brokers and clients need")
    for extra in metadata("covey").get_all("Provides-Extra") or []:
        use, page = NEEDED_FOR.get(extra, ("", ""))
        its = [each for each in wanted if each not in plain and _of_extra(each, extra)]
        absent = list(_absent(its))
        if absent:
            text = f"for {use}: {', '.join(absent)}; pip install 'covey[{extra}]'"
            yield Finding(f"covey[{extra}]", State.NOTE, text, page)
        else:
            yield Finding(f"covey[{extra}]", State.OK, f"all for {use}")


def _of_extra(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is not None and requirement.marker.evaluate({"extra": extra})


def _absent(wanted: list[Requirement]) -> Iterator[str]:
    for requirement in wanted:
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            yield requirement.name
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            yield f"{requirement.name} {found} (expected {requirement.specifier})"


def _java() -> Finding:
    found = java()
    version = found and java_version(found)
    if not version or int(version.partition(".")[0]) < _LEAST_JAVA:
        return Finding("Java", State.NOTE, no_fitting_java(found), "how-to-spark.md")
    return Finding("Java", State.OK, version)


def _kernels() -> Finding:
    if kernels_cached():
        return Finding("kernels", State.OK, f"compiled, in {cache_directory()}")
    if not cache_writable():
        text = f"{cache_directory()} is not writable, so each process compiles anew: set NUMBA_CACHE_DIR"
        return Finding("kernels", State.NOTE, text, "tutorial.md")
    text = "not compiled: the first broker compiles them, which takes a minute; covey compile does it now"
    return Finding("kernels", State.NOTE, text, "tutorial.md")


def _open_files() -> Finding:
    limit, wanted = descriptor_limit(), ConnectionLimits().total
    possible = ConnectionLimits().within(limit).total
    if possible < wanted:
        text = (
            f"{limit:,}, so a broker takes {possible:,} connections at most, not {wanted:,}: raise the hard "
            "limit (ulimit -Hn, LimitNOFILE of systemd)"
        )
        return Finding("open files", State.NOTE, text, "operations.md#run")
    return Finding("open files", State.OK, f"{limit:,}")
