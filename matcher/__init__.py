"""What events, filters and matches are: event types, the filter language, event batches, matching engines."""

from covey.matcher.batch import EventBatch
from covey.matcher.boxes import Absent, Bound, Box, Test, Text
from covey.matcher.builder import F, Var, filter_of
from covey.matcher.compiling import compile_kernels, kernels_cached
from covey.matcher.engine import Engine, create_engine
from covey.matcher.errors import (
    CoveyError,
    EventError,
    EventTypeError,
    FilterError,
    FilterSyntaxError,
    SubscriptionError,
    VariableError,
)
from covey.matcher.event_type import EventType, Kind
from covey.matcher.filter import Filter
from covey.matcher.language import parse
from covey.matcher.region import Region

__all__ = [
    "Absent",
    "Bound",
    "Box",
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
    "Kind",
    "Region",
    "SubscriptionError",
    "Test",
    "Text",
    "Var",
    "VariableError",
    "compile_kernels",
    "create_engine",
    "filter_of",
    "kernels_cached",
    "parse",
]
