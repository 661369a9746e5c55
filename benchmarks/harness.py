"""What benchmarks share: commands from plans, a steady rate, arrivals at a subscription.

A benchmark is a module with a plan, a measurement of it, and a way to show the results. The plan is a
dataclass; its fields with `Annotated` are the command's options, and its docstring is the help::

    @dataclass(frozen=True, slots=True)
    class Plan:
        rate: Annotated[int, typer.Option(min=1, help="Events per second.")] = 500
        policies: Annotated[tuple[str, ...], Words("What a full queue does", POLICIES)] = POLICIES

    stalled = command(Plan, measure, show)
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from itertools import count
from typing import Annotated, Any, get_args, get_type_hints

import numpy as np
import numpy.typing as npt
import typer

from covey.cli.support.options import Json, choices, counts, words
from covey.cli.support.output import compile_once, print_json, print_table, progress
from covey.matcher.errors import CoveyError
from covey.overlay import Subscription
from covey.overlay.transport import event_loop

PATIENCE_S = 60.0

# --- commands -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Words:
    """An option with several of the `known` words, between commas; a name in `groups` stands for several."""

    text: str
    known: Iterable[str]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def parse(self, name: str, text: str) -> tuple[str, ...]:
        known = {each.lower(): each for each in self.known}
        named = ",".join(known.get(word.lower(), word) for word in words(text))
        return self.groups[text] if text in self.groups else choices(name, named, tuple(self.known))

    def shown(self, default: Any) -> str:
        return next((name for name, group in self.groups.items() if group == default), ",".join(default))

    @property
    def help(self) -> str:
        groups = f" Or {', '.join(self.groups)}." if self.groups else ""
        return f"{self.text}: {', '.join(self.known)}; several separated by commas.{groups}"


@dataclass(frozen=True, slots=True)
class Counts:
    """An option with several positive integers between commas."""

    text: str

    def parse(self, name: str, text: str) -> tuple[int, ...]:
        return counts(name, text)

    def shown(self, default: Any) -> str:
        return ",".join(map(str, default))

    @property
    def help(self) -> str:
        return f"{self.text}; several separated by commas."


def command(
    plan_type: type[Any],
    measure: Callable[..., Any],
    show: Callable[[Any, Any], None],
    *,
    prepare: Callable[[], None] = compile_once,
    passed: Callable[[Any], bool] = lambda results: True,
    loop: Callable[[Coroutine[Any, Any, Any]], Any] = event_loop.run,
) -> Callable[..., None]:
    """The command of a benchmark: parses a plan, calls `measure(plan, progress)`, and shows the results or
    prints them as JSON. Exits with 1 unless they have `passed`."""
    hints = get_type_hints(plan_type, include_extras=True)
    parameters, several = [], {}
    for each in fields(plan_type):
        hint, default = hints[each.name], each.default
        if not hasattr(hint, "__metadata__"):
            continue  # a size that only tests change
        kind, option = get_args(hint)
        if isinstance(option, Words | Counts):
            several[each.name] = option
            default = option.shown(default)
            kind, option = str, typer.Option(help=option.help)
        parameters.append(_parameter(each.name, Annotated[kind, option], default))
    parameters.append(_parameter("json_output", Json, False))

    def run(json_output: bool, **options: Any) -> None:
        options |= {name: option.parse(name, options[name]) for name, option in several.items()}
        plan = plan_type(**options)
        prepare()
        with progress() as on_progress:
            results = measure(plan, on_progress)
            if inspect.iscoroutine(results):
                results = loop(results)
        if json_output:
            print_json(plain(results))
        else:
            show(plan, results)
        if not passed(results):
            raise typer.Exit(1)

    run.__doc__ = plan_type.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def plain(results: Any) -> Any:
    """Results as JSON: a dataclass by its `as_json`, or else its fields."""
    if isinstance(results, list | tuple):
        return [plain(each) for each in results]
    if isinstance(results, dict):
        return {name: plain(each) for name, each in results.items()}
    if hasattr(results, "as_json"):
        return results.as_json()
    return asdict(results) if hasattr(results, "__dataclass_fields__") else results


def show_fields(title: str, results: Sequence[Any]) -> None:
    """A table with a row per result and a column per field, titled by the field's annotation or name; an
    empty title leaves a field out."""
    hints = get_type_hints(type(results[0]), include_extras=True)
    titles = {name: getattr(hint, "__metadata__", (name,))[0] for name, hint in hints.items()}
    columns = {name: shown for name, shown in titles.items() if shown}
    print_table(title, [*columns.values()], [[getattr(each, name) for name in columns] for each in results])


def pair(times: tuple[float, float]) -> str:
    return f"{times[0]:.2f} / {times[1]:.2f}"


# --- time ---------------------------------------------------------------------------------------------------


async def steady(rate: float, events: int | None = None) -> AsyncIterator[int]:
    """Numbers from 0 on, `rate` per second; late ones follow at once."""
    began = time.perf_counter()
    for number in count() if events is None else range(events):
        await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
        yield number


def p50_p99_ms(times_ns: Sequence[int] | npt.NDArray[Any]) -> tuple[float, float]:
    """Each is one of the times, not interpolated."""
    p50, p99 = np.percentile(np.asarray(times_ns), (50, 99), method="higher") / 1e6
    return float(p50), float(p99)


# --- arrivals -----------------------------------------------------------------------------------------------


class Arrivals:
    """Reads a subscription to events with a `number` and the time `sent_ns`. `numbers` and `latencies` (ns)
    have an array per batch."""

    def __init__(self, subscription: Subscription) -> None:
        self.clear()
        self._task = asyncio.create_task(self._read(subscription))

    def clear(self) -> None:
        self.numbers: list[npt.NDArray[Any]] = []
        self.latencies: list[npt.NDArray[Any]] = []
        self.count, self.newest = 0, -1

    async def _read(self, subscription: Subscription) -> None:
        async for batch in subscription.batches():
            now_ns = time.perf_counter_ns()
            columns = batch.record_batch
            numbers = columns.column("number").to_numpy()
            self.numbers.append(numbers)
            self.latencies.append(now_ns - columns.column("sent_ns").to_numpy())
            self.count += len(numbers)
            self.newest = max(self.newest, int(numbers.max()))

    async def until(self, reached: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
        """Wait for arrivals. `CoveyError` after `patience_s` seconds."""
        deadline = time.perf_counter() + patience_s
        while not reached():
            if self._task.done():
                self._task.result()
            if time.perf_counter() > deadline:
                raise CoveyError(f"{what}: expected within {patience_s:g} s; {self.count:,} have arrived")
            await asyncio.sleep(0.001)

    async def until_count(self, events: int, what: str) -> None:
        await self.until(lambda: self.count >= events, what)

    async def until_newest(self, number: int, what: str, patience_s: float = PATIENCE_S) -> None:
        await self.until(lambda: self.newest >= number, what, patience_s)

    async def stop(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


@asynccontextmanager
async def arrivals(subscription: Subscription) -> AsyncIterator[Arrivals]:
    """The arrivals within the block, whose end ends the subscription."""
    reader = Arrivals(subscription)
    try:
        yield reader
    finally:
        await reader.stop()
    await subscription.unsubscribe()
