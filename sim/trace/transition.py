"""Which version of a trace a run writes: the second where COVEY_TRACE is 2."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from covey.sim.trace.first_trace import Trace as FirstTrace
from covey.sim.trace.trace import Trace


def open_trace(
    place: str | Path, now: Callable[[], int], scenario: Mapping[str, Any] | None = None
) -> Trace | FirstTrace:
    return (Trace if os.environ.get("COVEY_TRACE") == "2" else FirstTrace)(place, now, scenario)
