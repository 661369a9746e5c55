"""Brokers in the process of a test, for applications of Covey: no ports, no files to write, no processes.

`overlay` is a pytest fixture, `running_overlay` the context manager behind it, `LocalBrokers` the same for
code that has an event loop of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from covey.testing.local_brokers import LocalBrokers
from covey.testing.running_overlay import RunningOverlay, running_overlay

if TYPE_CHECKING:
    from covey.testing.fixture import StartOverlay, overlay

__all__ = ["LocalBrokers", "RunningOverlay", "StartOverlay", "overlay", "running_overlay"]


def __getattr__(name: str) -> object:
    if name in ("StartOverlay", "overlay"):  # which need pytest
        from covey.testing import fixture

        return getattr(fixture, name)
    raise AttributeError(f"module 'covey.testing' has no attribute {name!r}")
