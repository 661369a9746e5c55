"""Event types, the filter language, event batches, and matching engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from covey.matcher.engine import Engine, create_engine
from covey.matcher.errors import (
    CoveyError,
    EventError,
    EventTypeError,
    FilterError,
    FilterSyntaxError,
    SnapshotError,
    StaleMatchesError,
    SubscriptionError,
    VariableError,
)
from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.filters.builder import F, Free, Var, call, filter_of
from covey.matcher.filters.filter import Filter, parse
from covey.matcher.jit.compiling import compile_kernels, kernels_cached
from covey.matcher.matches import Matches

__all__ = [
    "CoveyError",
    "Engine",
    "EventBatch",
    "EventError",
    "EventType",
    "EventTypeError",
    "F",
    "Filter",
    "FilterError",
    "FilterSyntaxError",
    "Free",
    "Kind",
    "Matcher",
    "Matches",
    "SnapshotError",
    "StaleMatchesError",
    "Subscription",
    "SubscriptionError",
    "Var",
    "VariableError",
    "call",
    "compile_kernels",
    "create_engine",
    "filter_of",
    "kernels_cached",
    "parse",
]

if TYPE_CHECKING:
    from covey.matcher.embedded.matcher import Matcher
    from covey.matcher.embedded.value_table import Subscription

    __version__: str

_LAZY = {"Matcher": "covey.matcher.embedded.matcher", "Subscription": "covey.matcher.embedded.value_table"}
"""Names whose modules load an engine, which clients do without."""


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("covey")
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'covey.matcher' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))
