"""The interface of a matching engine: subscriptions and batches of events in, matching subscription ids out.

Invariants of every engine, which one test suite checks: an id identifies one subscription; a call that raises
has changed nothing; each event gets the ids that `Filter.matches` implies, every id once; a lock serialises
the calls of several threads."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Sized
from functools import wraps
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, ClassVar, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from covey.matcher.errors import CoveyError, EventTypeError, SubscriptionError
from covey.matcher.events.event_type import EventType, check_event_type

if TYPE_CHECKING:
    from covey.matcher.events.batch import EventBatch
    from covey.matcher.expressions.expression import Scalar
    from covey.matcher.filters.filter import Filter
    from covey.matcher.matches import Matches

IdArray = npt.NDArray[np.int64]
Column = npt.NDArray[np.generic] | list[object]
"""Values of one variable for many subscriptions, in the order of their ids."""
AnyColumn = Column | Sized
"""A column in a user's form: also a tuple, a pandas or Polars Series, an Arrow array (`value_columns.py`)."""

MAX_INTERFACE = 65_535


class Guarded(Protocol):
    """What calls of several threads take turns in."""

    guard: RLock


_Guarded = TypeVar("_Guarded", bound=Guarded)
_Engine = TypeVar("_Engine", bound="Engine")
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def exclusive(
    method: Callable[Concatenate[_Guarded, _Parameters], _Result],
) -> Callable[Concatenate[_Guarded, _Parameters], _Result]:
    """Decorates a method so that it holds `guard`: one thread at a time is in an object's methods. Costs 0.2
    us."""

    @wraps(method)
    def holding(guarded: _Guarded, /, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        with guarded.guard:
            return method(guarded, *args, **kwargs)

    return holding


def changing(
    method: Callable[Concatenate[_Engine, _Parameters], _Result],
) -> Callable[Concatenate[_Engine, _Parameters], _Result]:
    """As `exclusive`; unless the method raises, it ends the validity of `Matches`."""

    @wraps(method)
    def holding(engine: _Engine, /, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        with engine.guard:
            result = method(engine, *args, **kwargs)
            engine.version += 1
            return result

    return holding


class Engine(ABC):
    """Matches events of one type against subscriptions; the module states the invariants. Calls of several
    threads block each other, since kernels release the GIL and write into the engine even to match. The
    option `threads` of an engine is how to use several processors."""

    name: ClassVar[str]

    def __init__(self, event_type: EventType) -> None:
        self.event_type = event_type
        self.guard = RLock()
        self.version = 0

    @abstractmethod
    def widen(self, event_type: EventType) -> None:
        """Add attributes to this engine's schema, which must be the beginning of `event_type`; else
        `EventTypeError`. Subscriptions, their ids and values stay, at no cost that grows with them."""

    def _check_widening(self, event_type: EventType) -> None:
        present = tuple(self.event_type.attributes.items())
        if event_type.name != self.event_type.name or (
            tuple(event_type.attributes.items())[: len(present)] != present
        ):
            raise EventTypeError(f"{event_type!r}: expected {self.event_type!r} with more attributes behind")

    def add(
        self,
        subscription_id: int,
        filter: Filter,
        values: Mapping[str, Scalar] | None = None,
        *,
        interface: int = 0,
    ) -> None:
        """Add one subscription under an int64 id, for the interface of that number (0 to 65,535).

        The filter may be over any schema of the engine's event type. Raises `FilterError` for an attribute
        that the engine's schema lacks, `SubscriptionError` for an id in use, `VariableError` for values that
        do not fit the filter's variables."""
        self.add_many(one_id(subscription_id), filter, values, interface=interface)

    @abstractmethod
    def add_many(
        self,
        ids: npt.ArrayLike,
        filter: Filter,
        values: Mapping[str, Scalar | AnyColumn] | None = None,
        *,
        interface: int | npt.NDArray[np.integer] = 0,
    ) -> None:
        """Add one subscription per id, all with one filter. Each variable has one value for all, or a column:
        a NumPy array, list, tuple, Series or Arrow array, without nulls. Raises as `add` does, before
        anything is added."""

    @abstractmethod
    def add_all(
        self,
        ids: npt.ArrayLike,
        filters: Sequence[Filter],
        values: Mapping[str, Scalar | AnyColumn] | None = None,
        *,
        numbers: npt.ArrayLike | None = None,
        interface: int | npt.NDArray[np.integer] = 0,
    ) -> None:
        """Add subscriptions of many filters: `ids[i]` has `filters[i]`, or `filters[numbers[i]]` if there are
        numbers.

        `values` has one value for all, or a column, for every variable of any of the filters; elements of a
        column for filters without the variable are ignored, and may be null. This is the fastest way to load
        an engine. Raises as `add` does, before anything is added."""

    def remove(self, subscription_id: int) -> None:
        """Remove a subscription; `SubscriptionError` for an unknown id."""
        self.remove_many(one_id(subscription_id))

    @abstractmethod
    def remove_many(self, ids: npt.ArrayLike) -> None:
        """Remove subscriptions; for an unknown or repeated id `SubscriptionError`, and none is removed."""

    def update(self, subscription_id: int, values: Mapping[str, Scalar]) -> None:
        """Give some or all variables of a subscription new values, together. Raises `SubscriptionError` for
        an unknown id, `VariableError` for values that do not fit."""
        self.update_many(one_id(subscription_id), values)

    @abstractmethod
    def update_many(self, ids: npt.ArrayLike, values: Mapping[str, Scalar | AnyColumn]) -> None:
        """Update many subscriptions that all have these variables; raises as `update`, before any has
        changed."""

    @abstractmethod
    def match(self, batch: EventBatch) -> Matches:
        """The matching subscriptions of every event, computed on demand until the engine's next change.

        The batch is of the engine's event type, in any schema that agrees with the engine's, else
        `EventError`: an attribute that the batch lacks is absent, one that the engine lacks is ignored.

        `offsets, ids = engine.match(batch)` gives event i the ids `ids[offsets[i]:offsets[i + 1]]`, in no
        stated order."""

    def event_ids(self, batch: EventBatch) -> IdArray:
        """The ids that match a batch of one event, ascending; faster than `match` for one event."""
        return self.match(batch).ordered()[1]

    def event_interfaces(self, batch: EventBatch) -> int:
        """The interfaces that match a batch of one event: bit i stands for interface i."""
        return bits_of(self.match(batch).interfaces())

    def form(self, filter: Filter) -> str:
        """Normal form or tree, whichever the engine would choose for a filter, and why; "" without a choice.
        """
        return ""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __contains__(self, subscription_id: object) -> bool: ...

    @abstractmethod
    def memory_bytes(self) -> dict[str, int]:
        """Bytes of the engine's structures, by part."""

    @abstractmethod
    def render(self) -> str:
        """The engine's structure, for people."""

    @abstractmethod
    def explain(self, event: Mapping[str, object], subscription_id: int) -> str:
        """Why an event matches a subscription or not, by predicate; `SubscriptionError` if unknown."""


_ENGINES = {
    "cluster": ("covey.matcher.engines.cluster.engine", "ClusterEngine"),
    "counting": ("covey.matcher.engines.reference.counting", "CountingEngine"),
    "naive": ("covey.matcher.engines.reference.naive", "NaiveEngine"),
    "noncanonical": ("covey.matcher.engines.reference.counting", "NoncanonicalEngine"),
    "propagation": ("covey.matcher.engines.reference.propagation", "PropagationEngine"),
    "rete": ("covey.matcher.engines.reference.rete", "ReteEngine"),
    "scan": ("covey.matcher.engines.reference.scan", "ScanEngine"),
    "search_tree": ("covey.matcher.engines.reference.search_tree", "SearchTreeEngine"),
    "trees": ("covey.matcher.engines.trees.engine", "TreeEngine"),
}


def engine_names() -> tuple[str, ...]:
    """The names that `create_engine` accepts."""
    return tuple(_ENGINES)


def create_engine(name: str, event_type: EventType, **options: object) -> Engine:
    """An empty engine of that name for events of one type; options are the engine's own. Raises `CoveyError`
    for an unknown name, `TypeError` for an option the engine does not have."""
    check_event_type(event_type)
    if name not in _ENGINES:
        raise CoveyError(f"engine {name!r}: expected one of {', '.join(_ENGINES)}")
    module, attribute = _ENGINES[name]
    engine: Engine = getattr(import_module(module), attribute)(event_type, **options)
    return engine


def bits_of(interfaces: npt.NDArray[np.uint64]) -> int:
    """The interfaces of one event, uint64[1, words], as the bits of an integer."""
    return int.from_bytes(interfaces.tobytes(), sys.byteorder)


def one_id(subscription_id: int) -> IdArray:
    """An array of one id; `SubscriptionError` if it is no int64."""
    try:
        return np.array([subscription_id.__index__()], dtype=np.int64)
    except (AttributeError, OverflowError):
        raise SubscriptionError(
            f"subscription id {subscription_id!r}: expected an integer of 64 bits"
        ) from None


def id_array(ids: npt.ArrayLike) -> IdArray:
    """Ids as a one-dimensional contiguous int64 array; `SubscriptionError` for other values or shapes."""
    array = np.asarray(ids)
    if array.ndim != 1 or not (array.dtype.kind in "iu" or array.size == 0):
        raise SubscriptionError(
            f"subscription ids of type {array.dtype} and shape {array.shape}: expected a row of int64"
        )
    if array.dtype == np.uint64 and array.size and int(array.max()) > 2**63 - 1:
        raise SubscriptionError(f"subscription id {int(array.max())}: expected an integer of 64 bits")
    return np.ascontiguousarray(array, dtype=np.int64)


def check_distinct(ids: IdArray) -> None:
    """`SubscriptionError` for a repeated id."""
    if len(ids) > 1 and not (ids[1:] > ids[:-1]).all():
        ordered = np.sort(ids)
        repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
        if len(repeated):
            raise SubscriptionError(
                f"subscription {int(ordered[repeated[0]])}: given more than once, expected each id once"
            )


def interface_array(interface: int | npt.NDArray[np.integer], count: int) -> npt.NDArray[np.int64]:
    """Interface numbers, one per subscription; `SubscriptionError` for a wrong number or count."""
    if isinstance(interface, int) and 0 <= interface <= MAX_INTERFACE:
        return np.full(count, interface, dtype=np.int64)
    array = np.asarray(interface)
    if array.dtype.kind not in "iu" or array.ndim > 1 or (array.ndim == 1 and array.shape != (count,)):
        raise SubscriptionError(
            f"interface of type {array.dtype} and shape {array.shape}: expected one integer, or {count}"
        )
    if array.size and (int(array.min()) < 0 or int(array.max()) > MAX_INTERFACE):
        wrong = int(array.min()) if int(array.min()) < 0 else int(array.max())
        raise SubscriptionError(f"interface {wrong}: expected a number from 0 to {MAX_INTERFACE}")
    return array.astype(np.int64) if array.ndim else np.full(count, array, dtype=np.int64)
