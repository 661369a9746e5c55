"""Brokers in the process of a test, for applications of Covey, without ports, files or processes: the pytest
fixture `overlay`, the context manager `running_overlay`, and `LocalBrokers` for code with its own event loop.
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
