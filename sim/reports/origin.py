"""Where the figures of a page come from: the command, the version of Covey, and the time."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any


def command_line() -> str:
    """The command that runs, as it was typed."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def now() -> str:
    """The time in UTC, to the minute."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True, slots=True)
class Origin:
    """`size` in words, such as "quick" or "12 runs"; `parameters` are the fields of the scenario that all
    runs share."""

    size: str
    seeds: Sequence[int]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    command: str = field(default_factory=command_line)
    covey: str = field(default_factory=lambda: version("covey"))
    written: str = field(default_factory=now)
