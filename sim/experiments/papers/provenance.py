"""Where the results of a paper come from: seeds, date, machine, and the code that they measure.

That code has a *digest*, a hash over its source files without docstrings and comments, which is compared in
place of a version: a run is resumed, and results count as those of this code, while it is the same.
"""

from __future__ import annotations

import ast
import os
import platform
import subprocess
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
"""The folder with the packages: a checkout, or an installation."""
_PAPERS = "sim/experiments/papers/"
_JUDGING = (f"{_PAPERS}estimates.py", f"{_PAPERS}verdicts.py")
_BENCH = ("sim/experiments/bench/drift.py", "sim/experiments/bench/match.py")
_ENGINES = (
    "engine.py load.py matches.py covering/boxes.py covering/cuts.py "
    "compile encoding engines evaluation events expressions filters jit operators"
)
"""The parts of the matcher that matching runs."""
_COVERING = "conjunction covering cutting region region_index region_kernels vector_tree"
"""The modules of the matcher that order filters without calls."""
_MATCHING = (
    *(f"matcher/{part}" for part in _ENGINES.split()),
    "sim/workload",
    *_BENCH,
    f"{_PAPERS}measuring.py",
    *_JUDGING,
)
SOURCES: Mapping[str, Sequence[str]] = {
    "aguilera": (*_MATCHING, f"{_PAPERS}aguilera.py"),
    "bittner": (*_MATCHING, f"{_PAPERS}bittner.py", f"{_PAPERS}bittner_theory.py"),
    "fabret": (*_MATCHING, f"{_PAPERS}fabret.py", f"{_PAPERS}fabret_phases.py"),
    "jayaram": (
        *(f"matcher/{part}" for part in _ENGINES.split()),
        *(f"matcher/covering/{module}.py" for module in _COVERING.split()),
        "overlay/core",
        *(f"sim/{room}" for room in ("baselines", "checkers", "metrics", "scenario", "simulator")),
        *(f"sim/{room}" for room in ("topology", "trace", "workload")),
        *(f"sim/experiments/runs/{part}.py" for part in ("run", "simulated")),
        *(f"{_PAPERS}jayaram_{part}" for part in ("calibrations.py", "cases.py", "costs.json", "runs.py")),
    ),
    "liu": (
        "matcher/evaluation",
        "sim/workload",
        *(f"{_PAPERS}liu{part}.py" for part in ("", "_bound", "_experiments")),
        *_JUDGING,
    ),
}


def digest(paper: str, root: Path = ROOT) -> str:
    """Of the Python and JSON files in the sources of a paper, 16 hex digits."""
    content = sha256()
    for path in sorted(_files(paper, root)):
        text = path.read_text(encoding="utf-8")
        code = _without_words(text) if path.suffix == ".py" else text
        content.update(str(path.relative_to(root)).encode() + b"\0" + sha256(code.encode()).digest())
    return content.hexdigest()[:16]


@cache
def _without_words(text: str) -> str:
    """The code of a module."""
    lines = text.split("\n")
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = lines[token.start[0] - 1][: token.start[1]]
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(ast.Constant(str()), lineno=first, end_lineno=int(last)):
                lines[first - 1 : last] = [""] * (last - first + 1)
    return "\n".join(code for line in lines if (code := line.rstrip()))


def _files(paper: str, root: Path) -> Iterator[Path]:
    for source in SOURCES[paper]:
        place = root / source
        yield from [place] if place.is_file() else (*place.rglob("*.py"), *place.rglob("*.json"))


def provenance(paper: str, size: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Of results that are measured now: plain values."""
    return {
        "digest": digest(paper),
        "commit": _commit(),
        "size": size,
        "seeds": list(seeds),
        "machine": machine(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "python": platform.python_version(),
    }


def measured_now() -> str:
    return f"on code of {_commit() or 'an installed version'}, {datetime.now(UTC):%Y-%m-%d}, {machine()}"


def machine() -> str:
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return f"{_processor()}, {os.cpu_count()} cores, {memory_gb:.0f} GB"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _commit() -> str:
    """The commit of a checkout, with a mark if files differ from it; "" elsewhere."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    if not (ROOT / ".git").exists():
        return ""
    try:
        changes = " and changes" if git("diff", "HEAD", "--name-only") else ""
        return git("rev-parse", "--short=8", "HEAD") + changes
    except (OSError, subprocess.CalledProcessError):
        return ""
