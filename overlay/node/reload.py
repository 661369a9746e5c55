"""Reads the overlay file again while the broker runs (SIGHUP).

What may change at any time is changed: limits of sessions, queues, connections and operators, the level of
the log, and the links. What brokers and clients have agreed on, or built their state with, keeps its value,
and one line of the log names it. A file that is wrong changes nothing.

Invariant: the running broker's overlay is always that of some valid file, but for the options that need a
restart, which are those it was started with.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path

from covey.overlay.node.config import ConfigError, load_overlay, select_broker
from covey.overlay.node.dialer import Dialers
from covey.overlay.node.node import Node
from covey.overlay.node.overlay import Overlay
from covey.overlay.node.server import Server

log = logging.getLogger("covey.broker")

DRAIN_S = 2.0
"""How long a neighbour that has left the file has for each step of its end."""

_AT_ONCE = frozenset(("sessions", "link_limits", "bounds", "connections", "operator_limits", "log_level"))
"""Fields of `Overlay` that change while the broker runs; brokers and links do so one by one."""
_OF_SIMULATOR = frozenset(("delays_ms", "client_delay_ms"))
_PREFIXES = {
    "limits": "limits.",
    "sessions": "limits.session_",
    "link_limits": "limits.link_",
    "bounds": "limits.max_",
    "connections": "limits.max_connections, ",
    "operator_limits": "operators.",
}
"""Where the overlay file has the fields of a field of `Overlay`."""
_NAMES = {
    "limits.max_connections, total": "limits.max_connections",
    "limits.max_connections, per_address": "limits.max_connections_per_address",
    "name": "overlay",
    "operator_modules": "operators.modules",
}


@dataclass(frozen=True, slots=True)
class Reloading:
    """The overlay after a reload, and the options of the file that have changed and that need a restart."""

    overlay: Overlay
    changed: tuple[str, ...]
    kept: tuple[str, ...]


def merge(running: Overlay, read: Overlay, broker: str) -> Reloading:
    """What a running broker makes of a file that was read again."""
    changed: list[str] = []
    kept: list[str] = []
    for field in fields(Overlay):
        name = field.name
        if name in _OF_SIMULATOR or name in ("brokers", "links"):
            continue
        (changed if name in _AT_ONCE else kept).extend(_differing(running, read, name))
    before, after = running.brokers[broker], read.brokers[broker]
    if before.listen != after.listen:
        kept.append(f"brokers.{broker}.listen")
    if {frozenset(link) for link in running.links} != {frozenset(link) for link in read.links}:
        changed.append("links")
    elif running.links != read.links or running.brokers != {**read.brokers, broker: before}:
        changed.append("brokers")
    values = {name: getattr(read, name) for name in (*_AT_ONCE, "links")}
    brokers = {**read.brokers, broker: replace(after, listen=before.listen)}
    return Reloading(replace(running, **values, brokers=brokers), tuple(changed), tuple(kept))


def _differing(running: Overlay, read: Overlay, name: str) -> Iterator[str]:
    """The options of the file that differ in a field of `Overlay`."""
    before, after = getattr(running, name), getattr(read, name)
    if before == after:
        return
    if not is_dataclass(before):
        yield _NAMES.get(name, name)
        return
    for part in fields(before):
        if getattr(before, part.name) != getattr(after, part.name):
            option = f"{_PREFIXES.get(name, f'{name}.')}{part.name}"
            yield _NAMES.get(option, option)


class Reloader:
    """Reloads of one broker, one after the other, on the running event loop. `set_level` gets the level of
    the log.
    """

    def __init__(
        self,
        file: Path,
        node: Node,
        server: Server,
        dialers: Dialers,
        *,
        set_level: Callable[[str], None],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._file = file
        self._node = node
        self._server = server
        self._dialers = dialers
        self._set_level = set_level
        self._environment = environment
        self.requested = asyncio.Event()
        """Set by whoever wants a reload."""

    async def run(self) -> None:
        """Reload whenever it is requested."""
        while True:
            await self.requested.wait()
            self.requested.clear()
            await self.reload()

    async def reload(self) -> None:
        """Read the file and do what it says; returns when neighbours that have left it are disconnected."""
        node = self._node
        if node.draining:
            return
        try:
            read = await asyncio.to_thread(load_overlay, self._file, self._environment)
            select_broker(read, node.name, self._environment)
        except ConfigError as error:
            log.error("the overlay file was not reloaded and nothing has changed: %s", error)
            return
        reloading = merge(node.overlay, read, node.name)
        left = [name for name in node.overlay.neighbours(node.name) if name not in read.neighbours(node.name)]
        self._set_level(reloading.overlay.log_level)
        self._server.set_limits(reloading.overlay.connections)
        node.set_overlay(reloading.overlay)
        self._dialers.update()
        for neighbour in left:
            await node.remove_neighbour(neighbour, DRAIN_S)
        if reloading.kept:
            log.warning("the overlay file has options that need a restart: %s", ", ".join(reloading.kept))
        log.info("the overlay file was reloaded; changed: %s", ", ".join(reloading.changed) or "nothing")
