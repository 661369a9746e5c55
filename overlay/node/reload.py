"""Reloads the overlay file while the broker runs (SIGHUP, or the call Reload).

Limits, the log level, rules for clients and links change at once. What brokers and clients have agreed on, or
built state with, keeps its value until a restart and is logged. A wrong file changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path

from covey.overlay.documents import ConfigError
from covey.overlay.node.config import load_overlay, select_broker
from covey.overlay.node.dialer import Dialers
from covey.overlay.node.node import Node
from covey.overlay.node.node_connection import reauthenticate
from covey.overlay.node.overlay import Overlay
from covey.overlay.node.server import Server
from covey.overlay.transport.address import CallError
from covey.overlay.transport.packets import ReloadReply

log = logging.getLogger("covey.broker")

DRAIN_S = 2.0
"""The time for each step that ends a former neighbour's link."""

_AT_ONCE = frozenset(
    (
        "sessions",
        "link_limits",
        "bounds",
        "connections",
        "operator_limits",
        "log_level",
        "clients",
        "tickets",
    )
)
"""Fields of `Overlay` that change at once; brokers and links change one by one."""
_OF_SIMULATOR = frozenset(("delays_ms", "client_delay_ms"))
_PREFIXES = {
    "limits": "limits.",
    "sessions": "limits.session_",
    "link_limits": "limits.link_",
    "bounds": "limits.max_",
    "connections": "limits.max_connections, ",
    "operator_limits": "operators.",
}
"""Prefixes in the file, by field of `Overlay`."""
_NAMES = {
    "limits.max_connections, total": "limits.max_connections",
    "limits.max_connections, per_address": "limits.max_connections_per_address",
    "name": "overlay",
    "max_key_bytes": "limits.max_key_bytes",
    "max_replay_bytes": "limits.max_replay_bytes",
    "operator_modules": "operators.modules",
}


@dataclass(frozen=True, slots=True)
class Reloading:
    """`overlay` after a reload; options that `changed`, and that were `kept` until a restart."""

    overlay: Overlay
    changed: tuple[str, ...]
    kept: tuple[str, ...]


def merge(running: Overlay, read: Overlay, broker: str) -> Reloading:
    changed: list[str] = []
    kept: list[str] = []
    # Rules for certificates alone would turn every client away until the restart that brings TLS.
    certified = running.tls is None and read.clients is not None and read.clients.tokens is None
    for field in fields(Overlay):
        name = field.name
        if name in _OF_SIMULATOR or name in ("brokers", "links", "fallbacks"):
            continue
        at_once = name in _AT_ONCE and not (name == "clients" and certified)
        (changed if at_once else kept).extend(_differing(running, read, name))
    before, after = running.brokers[broker], read.brokers[broker]
    if before.listen != after.listen:
        kept.append(f"brokers.{broker}.listen")
    if {frozenset(link) for link in running.links} != {frozenset(link) for link in read.links}:
        changed.append("links")
    elif running.fallbacks != read.fallbacks:
        changed.append("fallbacks")
    elif running.links != read.links or running.brokers != {**read.brokers, broker: before}:
        changed.append("brokers")
    values = {name: getattr(read, name) for name in (*_AT_ONCE, "links", "fallbacks")}
    if certified:
        values["clients"] = running.clients
    brokers = {**read.brokers, broker: replace(after, listen=before.listen)}
    return Reloading(replace(running, **values, brokers=brokers), tuple(changed), tuple(kept))


def _differing(running: Overlay, read: Overlay, name: str) -> Iterator[str]:
    before, after = getattr(running, name), getattr(read, name)
    if before == after:
        return
    if not is_dataclass(before) or not is_dataclass(after):
        yield _NAMES.get(name, name)
        return
    for part in fields(before):
        if getattr(before, part.name) != getattr(after, part.name):
            option = f"{_PREFIXES.get(name, f'{name}.')}{part.name}"
            yield _NAMES.get(option, option)


def _check_durable_links(running: Overlay, read: Overlay, file: Path) -> None:
    """With durable types, `ConfigError` unless the links between remaining brokers stay and join them. Else
    events would be lost that wait for a link that ends, or come before the new path carries interest."""
    staying = [name for name in running.brokers if name in read.brokers]
    between = {frozenset(link) for link in running.links if set(link) <= set(staying)}
    moved = between - {frozenset(link) for link in read.links}
    if running.durable and (moved or len(between) < len(staying) - 1):
        ended = ", ".join(sorted("-".join(sorted(link)) for link in moved)) or "those of a middle broker"
        raise ConfigError(
            f"{file}: links end ({ended}): expected those of the running overlay, since events of durable "
            "types would be lost; only a broker with one link may leave"
        )


def _check_may_leave(node: Node) -> None:
    """`ConfigError` if a leaving broker stores events for durable sessions or disconnected neighbours."""
    sessions = sum(queue.durable and not queue.is_broker for queue in node.queues.values())
    if sessions:
        raise ConfigError(f"broker {node.name} has {sessions} durable sessions: expected them moved or ended")
    away = [name for name in node.endpoint.promised if not node.queues[name].connected]
    if away:
        raise ConfigError(f"broker {node.name} stores events for {', '.join(away)}: expected these connected")


class Reloader:
    """One reload at a time. `leave` is called when the broker has left the overlay and must drain and end."""

    def __init__(
        self,
        file: Path,
        node: Node,
        server: Server,
        dialers: Dialers,
        *,
        set_level: Callable[[str], None],
        leave: Callable[[], None] = lambda: None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._file = file
        self._node = node
        self._server = server
        self._dialers = dialers
        self._set_level = set_level
        self._leave = leave
        self.left = False
        self._one_at_a_time = asyncio.Lock()
        self._environment = environment
        self.requested = asyncio.Event()
        server.calls.reload = self.reload_for_call

    async def run(self) -> None:
        while True:
            await self.requested.wait()
            self.requested.clear()
            with suppress(ConfigError):  # it is in the log
                await self.reload()

    async def reload_for_call(self, leave: bool) -> ReloadReply:
        """As `reload`, which continues if the caller leaves. Answers a leaving broker's call after draining:
        `CallError` if it still stores events for neighbours."""
        return await asyncio.shield(asyncio.create_task(self._reload_or_fail(leave)))

    async def _reload_or_fail(self, leave: bool) -> ReloadReply:
        try:
            reloaded = await self.reload(leave=leave)
        except ConfigError:
            raise
        except Exception as error:  # a defect: the broker must not go on with half of a file
            self._node.fail(error)
            raise
        if leave:
            await self._node.drained.wait()
            self._check_sent_on()
        return reloaded

    def _check_sent_on(self) -> None:
        kept = self._node.not_sent_on
        if kept or self._node.failed:
            what = ", ".join(f"{records} for {name}" for name, records in kept.items())
            why = f"with records that have not arrived ({what})" if kept else "since it has failed"
            raise CallError("ABORTED", f"broker {self._node.name} ends {why}")

    async def reload(self, *, leave: bool = False) -> ReloadReply:
        """Returns when former neighbours are disconnected. With `leave` the broker drains and ends; the file
        must not name it. `ConfigError`, already logged, for a wrong file."""
        async with self._one_at_a_time:
            try:
                read = await asyncio.to_thread(load_overlay, self._file, self._environment)
                name = self._node.name
                if leave and name in read.brokers:
                    raise ConfigError(f"{self._file}: broker {name} is there: expected a file without it")
                if leave:
                    _check_may_leave(self._node)
                    log.warning("the broker leaves the overlay, since its file does not name it any more")
                    self.left = True
                    self._leave()
                    return ReloadReply(file=str(self._file))
                select_broker(read, name, self._environment)
                _check_durable_links(self._node.overlay, read, self._file)
                reloading = merge(self._node.overlay, read, name)
                new_rules = reloading.overlay.clients != self._node.overlay.clients
                if new_rules:
                    self._node.authentication.set_clients(reloading.overlay.clients)
            except ConfigError as error:
                log.error("the overlay file was not reloaded and nothing has changed: %s", error)
                raise
            if not self._node.draining:
                await self._apply(reloading)
                if new_rules:
                    count = await reauthenticate(self._node)
                    log.info("disconnected %d clients, whose permissions have changed", count)
            return ReloadReply(
                file=str(self._file),
                neighbours=read.neighbours(name),
                changed=reloading.changed,
                kept=reloading.kept,
            )

    async def _apply(self, reloading: Reloading) -> None:
        node, overlay = self._node, reloading.overlay
        self._set_level(overlay.log_level)
        self._server.set_limits(overlay.connections)
        if node.repairing is None:  # else links end by themselves that the file does not allow any more
            # First the old links end, then the new ones begin: a path that is still open elsewhere would
            # make a cycle of both.
            before, after = node.neighbours(), overlay.neighbours(node.name)
            known = {node.name, *before}
            staying = [link for link in overlay.links if node.name not in link or set(link) <= known]
            node.set_overlay(replace(overlay, links=tuple(staying)))
            for neighbour in [name for name in before if name not in after]:
                await node.remove_neighbour(neighbour, DRAIN_S)
        node.set_overlay(overlay)
        self._dialers.update()
        if reloading.kept:
            log.warning("the overlay file has options that need a restart: %s", ", ".join(reloading.kept))
        log.info("the overlay file was reloaded; changed: %s", ", ".join(reloading.changed) or "nothing")
