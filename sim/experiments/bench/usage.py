"""What a process of this machine uses, as /proc shows it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from covey.matcher.errors import CoveyError

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 1
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 1


def cpu_ns(process_id: int) -> int:
    """User and system time of a process; in steps of 10 ms where the kernel keeps no finer account."""
    threads = _folder(process_id) / "task"
    try:
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads.iterdir())
    except OSError:
        fields = (_folder(process_id) / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * _TICK_NS


def total_cpu_ns(process_ids: Iterable[int]) -> int:
    """The sum over several processes."""
    return sum(map(cpu_ns, process_ids))


def resident_bytes(process_id: int) -> int:
    """Memory of a process that is not swapped out (RSS)."""
    return int((_folder(process_id) / "statm").read_text().split()[1]) * _PAGE_BYTES


def peak_resident_bytes(process_id: int) -> int:
    """The most of it so far."""
    lines = (_folder(process_id) / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def descriptors(process_id: int) -> int:
    """How many file descriptors a process has open."""
    return len(os.listdir(_folder(process_id) / "fd"))


def _folder(process_id: int) -> Path:
    folder = Path("/proc") / str(process_id)
    if not folder.exists():
        raise CoveyError(f"process {process_id}: expected one that runs, on a system with /proc")
    return folder
