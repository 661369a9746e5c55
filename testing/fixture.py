"""The pytest fixture `overlay`: import it from `covey.testing` in a test module or a `conftest.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

import pytest

from covey.matcher import EventType
from covey.testing.running_overlay import RunningOverlay, running_overlay


class StartOverlay(Protocol):
    """The fixture's type: a function with the arguments of `running_overlay`."""

    def __call__(
        self,
        brokers: int = 1,
        *,
        links: Sequence[tuple[str, str]] | None = None,
        event_types: Sequence[EventType] = (),
    ) -> RunningOverlay: ...


@pytest.fixture
def overlay() -> Iterator[StartOverlay]:
    """Starts overlays that run until the end of the test: `overlay(brokers=3)`."""
    with ExitStack() as running:

        def start(*brokers: Any, **options: Any) -> RunningOverlay:
            return running.enter_context(running_overlay(*brokers, **options))

        yield start
