"""Whether an overlay file can work, before any broker starts. Sockets are bound and files written for the
check alone. A broker that listens at an address of this machine is checked whole, of the others only the
hosts."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from covey.cli.administration.machine_checks import (
    BROKER_BYTES,
    Finding,
    State,
    available_bytes,
    usable_cores,
)
from covey.matcher.errors import CoveyError
from covey.overlay.client import RefusedError, inspect_broker
from covey.overlay.documents import ConfigError
from covey.overlay.node.config import (
    check_certificate,
    check_storage,
    check_tickets,
    check_tokens,
    check_tracing,
    import_operators,
    load_overlay,
    select_broker,
)
from covey.overlay.node.overlay import BrokerAddress, Overlay
from covey.overlay.node.storage_directory import broker_directory, log_directory
from covey.overlay.storage.files import OsFiles, StorageError, storage_error
from covey.overlay.storage.log import DEFAULT_SEGMENT_BYTES
from covey.overlay.transport.address import (
    TcpAddress,
    UnixAddress,
    is_local,
    parse_address,
    split_addresses,
)
from covey.overlay.transport.tls import TlsError, certified, is_for

_RUN, _TLS, _STORED = "operations.md#run", "security.md#tls", "durability.md#the-directory"
_SECTIONS: tuple[tuple[str, Callable[[Overlay], None], str], ...] = (
    ("tokens", check_tokens, "security.md#who-a-client-is-and-what-it-may-do"),
    ("tickets", check_tickets, "security.md#tickets"),
    ("operators", import_operators, "operators.md#in-brokers"),
    ("storage", check_storage, _STORED),
    ("tracing", check_tracing, "operations.md#traces"),
)
"""What a broker checks at its start, with the page about it."""
_SOON_DAYS = 30
_EVERY_HOST = ("0.0.0.0", "::")
_FREE, _USED, _ELSEWHERE = "free", "used", "elsewhere"
_IN_MEMORY = ("ramfs", "tmpfs")
_OF_NETWORK = ("9p", "afs", "ceph", "cifs", "nfs", "nfs4", "smb3")


def overlay_findings(file: Path) -> Iterator[Finding]:
    """One finding per part of an overlay file, or a single one if the file cannot be loaded."""
    try:
        overlay = load_overlay(file)
    except ConfigError as error:
        yield Finding("file", State.WRONG, str(error), _RUN)
        return
    yield Finding("file", State.OK, f"brokers, linked as a tree: {len(overlay.brokers):,}")
    for subject, check, page in _SECTIONS:
        try:
            check(overlay)
        except ConfigError as error:
            yield Finding(subject, State.WRONG, str(error), page)
        except ModuleNotFoundError as error:
            text = f"this file needs {error.name}: pip install 'covey[security]'"
            yield Finding(subject, State.WRONG, text, page)
    places = {name: _places(broker) for name, broker in overlay.brokers.items()}
    used = [name for name, found in places.items() if _USED in found.values()]
    answers = dict(zip(used, asyncio.run(_users(overlay, used)), strict=True))
    users = {name: user for name, (user, _) in answers.items()}
    here = [name for name, found in places.items() if {_FREE, _USED} & set(found.values())]
    for name, broker in overlay.brokers.items():
        yield from _address(broker, places[name], users.get(name))
        if name in here:
            yield from _plain_text(overlay, name)
            yield from _metrics(overlay, name, users.get(name))
            yield from _certificate(overlay, broker)
    for text in dict.fromkeys(each for _, conflicts in answers.values() for each in conflicts):
        yield Finding("event types", State.WRONG, text, _RUN)
    yield from _shared_addresses(overlay)
    if overlay.durable and overlay.storage:
        yield from _storage(overlay, here)
    yield from _capacity(here)


# --- addresses ----------------------------------------------------------------------------------------------


def _places(broker: BrokerAddress) -> dict[str, str]:
    """By address where a broker listens: free, used, elsewhere, or an error."""
    return {address: _place(address) for address in split_addresses(broker.listen)}


def _place(text: str) -> str:
    address = parse_address(text)
    if isinstance(address, UnixAddress):
        return _place_of_file(address.path)
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        return _unresolved(address.host, error)
    bound = [_bound(family, kind, where) for family, kind, _, _, where in found]
    # What is wrong comes first; a name may have an address of a family that this machine lacks.
    return min(bound, key=lambda place: (place == _ELSEWHERE, place == _FREE))


def _bound(family: int, kind: int, where: tuple[object, ...]) -> str:
    try:
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(where[0] != "::"))
            probe.bind(where)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return _USED
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return _ELSEWHERE
        return f"cannot be bound ({error.strerror}): choose a port from 1024 on, or give this user the right"
    return _FREE


def _place_of_file(path: str) -> str:
    folder = Path(path).parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        return f"the folder {folder} cannot be written: make it, or choose another path"
    if not os.path.exists(path):
        return _FREE
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(path)
    except ConnectionRefusedError:
        return _FREE  # a broker removes the socket file of one that was killed
    except OSError as error:
        return f"is there, and no socket of this user ({error.strerror}): remove it, or choose another path"
    return _USED


def _unresolved(host: str, error: OSError) -> str:
    return f"the host {host} does not resolve ({error.strerror}): expected one of DNS, or of /etc/hosts"


async def _users(overlay: Overlay, names: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Per broker, who serves at its address, "" for the broker itself, and the conflicts between its event
    types and its neighbours'."""
    return await asyncio.gather(*(_user(overlay, name) for name in names))


async def _user(overlay: Overlay, name: str) -> tuple[str, list[str]]:
    tls = None if overlay.tls is None else overlay.tls.of(name)
    try:
        _, state = await inspect_broker(overlay.brokers[name].address, listed=0, tls=tls)
    except RefusedError:
        return "", []  # a broker of the authority that lets nobody inspect it
    except (CoveyError, TlsError):
        return "another program", []
    if (state["broker"], state["overlay"]) == (name, overlay.name):
        return "", [each for conflicts in state.get("type_conflicts", {}).values() for each in conflicts]
    return f"broker {state['broker']} of overlay {state['overlay']}", []


def _address(broker: BrokerAddress, places: dict[str, str], user: str | None) -> Iterator[Finding]:
    subject = f"{broker.name}: address"
    where = parse_address(broker.address)
    if isinstance(where, TcpAddress) and broker.address not in places:
        try:
            socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)
        except OSError as error:
            yield Finding(subject, State.WRONG, f"{broker.address}: {_unresolved(where.host, error)}", _RUN)
    for address, place in places.items():
        if place == _FREE:
            yield Finding(subject, State.OK, f"{address} is free")
        elif place == _ELSEWHERE:
            text = f"{address} is of another machine: run covey doctor there, too"
            yield Finding(subject, State.OK, text)
        elif place != _USED:
            yield Finding(subject, State.WRONG, f"{address}: {place}", _RUN)
        elif not user:
            yield Finding(subject, State.OK, f"{address} is served by {broker.name} already")
        else:
            text = f"{address} is in use by {user}: stop that, or choose another address"
            yield Finding(subject, State.WRONG, text, _RUN)


def _plain_text(overlay: Overlay, name: str) -> Iterator[Finding]:
    try:
        select_broker(overlay, name, {})
    except ConfigError as error:
        yield Finding(f"{name}: address", State.WRONG, str(error), "how-to-secure.md")


def _metrics(overlay: Overlay, name: str, user: str | None) -> Iterator[Finding]:
    address = overlay.metrics.get(name)
    if address is None or user == "":  # a broker that serves has its own
        return
    place = _place(address)
    if place == _FREE:
        yield Finding(f"{name}: metrics", State.OK, f"{address} is free")
        return
    why = {_USED: "is in use by another program", _ELSEWHERE: "is of another machine"}.get(place, place)
    text = f"{address} {why}: expected a free address of this machine"
    yield Finding(f"{name}: metrics", State.WRONG, text, "operations.md#metrics")


def _shared_addresses(overlay: Overlay) -> Iterator[Finding]:
    taken: defaultdict[tuple[str, int | str], list[tuple[str, str]]] = defaultdict(list)
    for name, broker in overlay.brokers.items():
        reached = parse_address(broker.address)
        machine = "" if isinstance(reached, UnixAddress) or is_local(reached) else reached.host
        listeners = [(f"{name}: address", each) for each in split_addresses(broker.listen)]
        if name in overlay.metrics:
            listeners.append((f"{name}: metrics", overlay.metrics[name]))
        for subject, text in listeners:
            where = parse_address(text)
            host, port = where if isinstance(where, TcpAddress) else ("", where.path)
            others = taken[machine, port]
            for other, other_host in others:
                if host == other_host or host in _EVERY_HOST or other_host in _EVERY_HOST:
                    why = f"{text} is wanted by {other} on the same host, too: choose another address"
                    yield Finding(subject, State.WRONG, why, _RUN)
                    break
            others.append((subject, host))


# --- certificates -------------------------------------------------------------------------------------------


def _certificate(overlay: Overlay, broker: BrokerAddress) -> Iterator[Finding]:
    """Whether neighbours accept a broker of this machine, for how long, and at which hosts."""
    if overlay.tls is None:
        return
    subject = f"{broker.name}: certificate"
    try:
        check_certificate(overlay, broker.name)
    except ConfigError as error:
        yield Finding(subject, State.WRONG, f"{error} (covey certs makes some)", _TLS)
        return
    tls = overlay.tls.of(broker.name)
    where = parse_address(broker.address)
    if isinstance(where, TcpAddress) and where.host not in _EVERY_HOST and not is_for(tls, where.host):
        text = f"{tls.certificate} does not name {where.host}, so clients refuse it: covey certs, or --hosts"
        yield Finding(subject, State.WRONG, text, _TLS)
        return
    days = int((certified(tls).expires_ns / 1e9 - time.time()) // 86_400)
    if days < _SOON_DAYS:
        text = f"it ends in {days} days: renew it; brokers read it at the next handshake"
        yield Finding(subject, State.NOTE, text, _TLS)
    else:
        yield Finding(subject, State.OK, f"valid for {days:,} days")


# --- storage and capacity -----------------------------------------------------------------------------------


def _storage(overlay: Overlay, here: Sequence[str]) -> Iterator[Finding]:
    devices: defaultdict[int, dict[Path, Path]] = defaultdict(dict)
    for name in here:
        directory = broker_directory(overlay.storage, name).absolute()
        folder = next(each for each in (directory, *directory.parents) if each.exists())
        devices[folder.stat().st_dev][directory] = folder
    for folders in devices.values():
        try:
            for folder in dict.fromkeys(folders.values()):
                _write(folder)
        except StorageError as error:
            yield Finding("storage", State.WRONG, str(error), _STORED)
            continue
        free, kind = shutil.disk_usage(folder).free, file_system(folder)
        where = os.path.commonpath(folders.values())
        wanted = least = 0
        for directory in folders:
            for name, retention in overlay.durable.items():
                stored = _stored_bytes(log_directory(directory, name))
                wanted += max(0, retention.max_bytes - stored)
                least += max(0, DEFAULT_SEGMENT_BYTES - stored)
        if free < least:
            text = f"{where}: {_mib(free)} are free: expected {_mib(least)} for the first segments"
            yield Finding("storage", State.WRONG, text, _STORED)
        elif free < wanted:
            text = f"{where}: {_mib(free)} are free; retention permits {_mib(wanted)} more"
            yield Finding("storage", State.NOTE, f"{text}: lower retain_bytes", _STORED)
        if kind in _IN_MEMORY:
            text = f"{where} is {kind}, in memory: what is stored is lost with the machine; choose a disk"
            yield Finding("storage", State.NOTE, text, _STORED)
        elif kind in _OF_NETWORK:
            text = f"{where} is {kind}: syncs and locks depend on its server; choose a disk"
            yield Finding("storage", State.NOTE, text, _STORED)
        elif free >= wanted:
            yield Finding("storage", State.OK, f"{where} can be written and synced; {_mib(free)} are free")


def _stored_bytes(log: Path) -> int:
    """The bytes of a log; its broker may remove segments meanwhile."""
    stored = 0
    for segment in log.glob("*"):
        with suppress(FileNotFoundError):
            stored += segment.stat().st_size
    return stored


def _write(folder: Path) -> None:
    """Write and sync a file, and remove it. `StorageError` if that fails."""
    try:
        with NamedTemporaryFile(dir=folder, prefix=".covey-doctor-") as file:
            file.write(bytes(4_096))
            file.flush()
            os.fsync(file.fileno())
        OsFiles(folder).sync_directory()
    except OSError as error:
        raise storage_error(str(folder), error) from None


def file_system(folder: Path) -> str:
    """The kind of file system of a folder, by Linux's name; "" on other systems."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    kinds = {}
    for line in lines:
        fields = line.split()
        kinds[Path(fields[4].replace("\\040", " "))] = fields[fields.index("-") + 1]
    folder = folder.resolve()
    return next((kinds[each] for each in (folder, *folder.parents) if each in kinds), "")


def _mib(size: int) -> str:
    return f"{size >> 20:,} MiB"


def _capacity(here: Sequence[str]) -> Iterator[Finding]:
    brokers, cores, available = len(here), usable_cores(), available_bytes()
    if brokers * BROKER_BYTES > available:
        text = f"{_mib(available)} are free, and {brokers:,} brokers take {_mib(brokers * BROKER_BYTES)} idle"
        yield Finding("memory", State.WRONG, f"{text}: run fewer here", "how-to-size.md")
    if brokers > cores:
        text = f"{brokers:,} brokers share {cores:,}: under load run at most one per core (covey plan)"
        yield Finding("cores", State.NOTE, text, "how-to-size.md")
