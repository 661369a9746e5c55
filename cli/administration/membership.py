"""A broker joins a running overlay, or leaves it: first the overlay file changes, then the running brokers.

Order: every running broker answers, or nothing changes; then the file is written. A leaving broker ends
first, so that its neighbours get what it stores; otherwise the file is put back. Then its hub reloads the
file, since the other neighbours link to the hub, and then the others.

Invariant: the file is valid at every moment: the new text is validated, then replaces the old one at once.
One edit at a time changes the files of a directory.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from covey.cli.support.options import Access
from covey.matcher.errors import CoveyError, InputError
from covey.overlay.client import ConnectError, RefusedError, inspect_broker
from covey.overlay.client.unary import call_broker
from covey.overlay.core.repair.uplink import links_without
from covey.overlay.documents import ConfigError, read_text
from covey.overlay.node.config import parse_overlay
from covey.overlay.node.main import LEAVE_S
from covey.overlay.node.overlay import Overlay
from covey.overlay.transport.packets import RELOAD, ReloadReply

if TYPE_CHECKING:
    from ruamel.yaml.comments import CommentedSeq

LOCKED_S = 60.0
_LOCK_POLL_S = 0.1


class OverlayEdit:
    """An edit of an overlay file, in memory until `write`; it excludes other edits until `release` or the end
    of the block. Comments stay. `ConfigError` if the file is wrong, or another edit lasts longer than
    `locked_s` seconds."""

    def __init__(self, path: Path, locked_s: float = LOCKED_S) -> None:
        self.path = path
        self._lock = ExitStack()
        deadline = time.monotonic() + locked_s
        while not _locked(path.resolve().parent, self._lock):
            if time.monotonic() > deadline:
                raise ConfigError(f"{path}: another covey broker join or leave is at work: expected its end")
            time.sleep(_LOCK_POLL_S)
        with ExitStack() as mistaken:
            mistaken.callback(self.release)
            self._before = read_text(path, ConfigError)
            self.before = parse_overlay(self._before, path)
            mistaken.pop_all()
        self.after = self.before
        self._after = self._before

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def add(self, name: str, address: str, links: Sequence[str], listen: str = "") -> None:
        """Add a broker that dials `links`. `ConfigError` for a name in use, and where the file would not be
        valid."""
        if name in self.before.brokers:
            raise ConfigError(f"{self.path}: broker {name} is there already: expected another name")
        yaml, document = self._document()
        broker = _flow_map({"address": address} | ({"listen": listen} if listen else {}))
        document["brokers"][_text(name)] = broker
        pairs = [(_text(to), _text(name)) for to in links]
        if document.get("links") is None:
            document["links"] = []
        document["links"].extend(_flow_pair(pair) for pair in pairs)
        self._set(yaml, document)

    def remove(self, name: str) -> None:
        """Remove a broker, and link its neighbours to its hub (`core/repair/uplink.py`). `ConfigError` for an
        unknown broker, and for the last one."""
        before = self.before
        if name not in before.brokers:
            known = ", ".join(before.brokers)
            raise ConfigError(f"{self.path}: broker {name} is not there: expected one of {known}")
        if len(before.brokers) == 1:
            raise ConfigError(f"{self.path}: broker {name} is the last one: expected another beside it")
        yaml, document = self._document()
        links = links_without(tuple(before.brokers), before.links, name)
        document["links"][:] = [each for each in document["links"] if name not in _ends(each)]
        new = [(_text(a), _text(b)) for a, b in links if (a, b) not in before.links]
        document["links"].extend(_flow_pair(link) for link in new)
        for part in (document["brokers"], document.get("metrics")):
            if isinstance(part, dict):
                part.pop(name, None)
        for broker in document["brokers"].values():
            fallbacks = broker.get("fallbacks") or []
            if name in fallbacks:
                fallbacks.remove(name)
        self._set(yaml, document)

    def write(self) -> None:
        """Replace the file. `ConfigError` if it has changed meanwhile, or cannot be written."""
        self._replace(self._before, self._after)

    def put_back(self) -> None:
        """Undo `write`; the same errors."""
        self._replace(self._after, self._before)

    def release(self) -> None:
        self._lock.close()

    def _replace(self, before: str, after: str) -> None:
        path = self.path.resolve()
        if read_text(path, ConfigError) != before:
            raise ConfigError(f"{self.path}: another process has changed it: expected to change it alone")
        written: Path | None = None
        try:
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
            ) as file:
                written = Path(file.name)
                file.write(after)
                file.flush()
                os.fsync(file.fileno())
            _look_like(written, path.stat())
            os.replace(written, path)
        except OSError as error:
            if written is not None:
                written.unlink(missing_ok=True)
            raise ConfigError(f"{self.path}: cannot be written: {error.strerror}") from None

    def _document(self) -> tuple[Any, Any]:
        from ruamel.yaml import YAML
        from ruamel.yaml.util import load_yaml_guess_indent

        _, indent, offset = load_yaml_guess_indent(self._before)
        yaml = YAML()
        yaml.preserve_quotes = True
        yaml.width = 1 << 20
        if indent and offset is not None:
            yaml.indent(mapping=2, sequence=indent, offset=offset)
        return yaml, yaml.load(self._before)

    def _set(self, yaml: Any, document: Any) -> None:
        text = StringIO()
        yaml.dump(document, text)
        self.after = parse_overlay(text.getvalue(), self.path)
        self._after = text.getvalue()


def _locked(folder: Path, lock: ExitStack) -> bool:
    """Lock a directory until `lock` ends; False if another process has it. The file itself has no lock, since
    it is replaced. Without `fcntl` only `write` detects other edits."""
    with suppress(OSError, ImportError):
        import fcntl

        opened = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(opened)
            return not isinstance(error, BlockingIOError)
        lock.callback(os.close, opened)
    return True


def _look_like(path: Path, other: os.stat_result) -> None:
    """Copy the owner and the permissions of another file, so that its readers can read this one."""
    mine = path.stat()
    if (mine.st_uid, mine.st_gid) != (other.st_uid, other.st_gid):
        try:
            os.chown(path, other.st_uid, other.st_gid)
        except PermissionError:
            if not other.st_mode & stat.S_IROTH:
                raise
    os.chmod(path, other.st_mode)


def new_links(before: Overlay, after: Overlay) -> list[tuple[str, str]]:
    known = {frozenset(link) for link in before.links}
    return [link for link in after.links if frozenset(link) not in known]


def _ends(link: Any) -> Sequence[str]:
    ends: Sequence[str] = link["ends"] if isinstance(link, dict) else link
    return ends


def _text(name: str) -> str:
    """A name as YAML: in quotes where it would be parsed as another kind, such as `yes`."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString
    from yaml import YAMLError, safe_load

    with suppress(YAMLError):
        if safe_load(name) == name:
            return name
    quoted: str = DoubleQuotedScalarString(name)
    return quoted


def _flow_map(values: dict[str, str]) -> Any:
    from ruamel.yaml.comments import CommentedMap
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    mapping = CommentedMap({name: DoubleQuotedScalarString(value) for name, value in values.items()})
    mapping.fa.set_flow_style()
    return mapping


def _flow_pair(ends: tuple[str, str]) -> CommentedSeq:
    from ruamel.yaml.comments import CommentedSeq

    pair = CommentedSeq(ends)
    pair.fa.set_flow_style()
    return pair


_RELOAD_S = 60.0
_ENDED_S = LEAVE_S + _RELOAD_S
"""The time within which a leaving broker ends."""
_POLL_S = 0.1
_NOTHING = "nothing has changed"


class Change:
    """The broker `name` joins or leaves, by the changes of `edit`; the brokers in `skipped` do not run."""

    def __init__(self, edit: OverlayEdit, name: str, skipped: Collection[str], access: Access) -> None:
        self.edit = edit
        self._name = name
        self._skipped = skipped
        self._access = access
        for each in skipped:
            if each not in self.edit.before.brokers:
                known = ", ".join(self.edit.before.brokers)
                raise InputError(f"--skip is {each!r}: expected one of {known}")

    async def make(self, wait_s: float) -> None:
        """Make the change, and print each step. `CoveyError`, one sentence, where it fails."""
        before, after, file = self.edit.before, self.edit.after, self.edit.path
        name, links = self._name, new_links(before, after)
        leaves = name in before.brokers
        running = [each for each in before.brokers if each not in self._skipped]
        states = dict(zip(running, await asyncio.gather(*map(self._state, running)), strict=True))
        if leaves:
            self._check_durable(states.get(name))
        self.edit.write()
        drains = leaves and name in running
        staying = [each for each in running if each != name]
        ended = ""
        try:
            if drains:
                ended = await self._let_go(states[name], wait_s)
            failures = await self._applied(links, staying, ended)
        except asyncio.CancelledError:
            first = f"once {name} has ended, " if drains and not ended else ""
            then = f"; {first}send {', '.join(staying)} SIGHUP" if staying else ""
            print(f"covey: {file} has changed{then}", file=sys.stderr, flush=True)
            raise
        self.edit.release()
        if failures:
            raise CoveyError("; ".join(failures))
        if staying:
            print(f"{', '.join(staying)} {'has' if len(staying) == 1 else 'have'} reloaded the file")
        if not leaves:
            print(f"start {name}: covey broker --config {file} --name {name}", flush=True)
        expected = [link for link in links if not set(link) & set(self._skipped)]
        if wait_s:
            await self._until_linked(expected, wait_s)

    async def _applied(self, links: list[tuple[str, str]], staying: list[str], ended: str) -> list[str]:
        """Have the `staying` brokers reload the file, the ends of new links first; returns the failures'
        reasons."""
        name, file, after = self._name, self.edit.path, self.edit.after
        what = f"has joined at {after.brokers[name].address}" if name in after.brokers else "left"
        print(f"{file}: {name} {what}{_listed(', with new links ', links)}")
        if ended:
            print(ended, flush=True)
        hubs = [each for each in staying if each in {link[0] for link in links}]
        # A failure stops no other reload: the broker reads the file when it starts again.
        failures: list[str] = []
        for group in (hubs, [each for each in staying if each not in hubs]):
            failures += filter(None, await asyncio.gather(*map(self._reload, group)))
        return failures

    async def _inspected(self, address: str) -> dict[str, Any]:
        _, state = await inspect_broker(address, listed=0, tls=self._access.tls, token=self._access.token)
        return state

    async def _state(self, broker: str) -> dict[str, Any]:
        """The state of a running broker; `CoveyError` if another broker answers."""
        before = self.edit.before
        address = before.brokers[broker].address
        try:
            state = await self._inspected(address)
        except CoveyError as error:
            raise CoveyError(
                f"broker {broker}: {error}; {_NOTHING} (--skip {broker} if it does not run)"
            ) from None
        if (state["broker"], state["overlay"]) != (broker, before.name):
            raise CoveyError(
                f"broker {state['broker']} of overlay {state['overlay']} answers at {address}: expected "
                f"{broker} of {before.name}; {_NOTHING}"
            )
        return state

    def _check_durable(self, state: dict[str, Any] | None) -> None:
        """Refuse a leave by which events of durable types could be lost."""
        before, name = self.edit.before, self._name
        if not before.durable:
            return
        types, neighbours = ", ".join(before.durable), before.neighbours(name)
        if len(neighbours) > 1:
            raise InputError(
                f"broker {name} is linked to {', '.join(neighbours)}: expected a broker with one link, since "
                f"events of the durable types ({types}) between these would be lost"
            )
        if state is None:
            raise InputError(
                f"--skip is {name}: expected a broker that runs, since it has events of the durable types "
                f"({types}); to give these up, take it out of {self.edit.path}, and send each other SIGHUP"
            )
        if state["durable_sessions"] or state["missing"]:
            missing = [f"{each['what']}: {each['why']}" for each in state["missing"]]
            found = [f"durable sessions: {state['durable_sessions']}"] if state["durable_sessions"] else []
            raise CoveyError(
                f"broker {name} stores events for others ({'; '.join(found + missing)}): expected it to be "
                f"ready, and durable sessions to have moved or ended; {_NOTHING}"
            )

    async def _let_go(self, state: dict[str, Any], wait_s: float) -> str:
        """Have the broker drain and end, and return how it ended. It takes seconds, or with durable types
        until its neighbours have what it stores. The file is put back where the broker may not leave, or ends
        before that."""
        name, file = self._name, self.edit.path
        patience_s = min(max(wait_s, _RELOAD_S), _ENDED_S)
        deadline = time.monotonic() + patience_s
        how = "has sent on what it had, and ended"
        try:
            await self._call(name, leave=True, within_s=patience_s)
        except RefusedError as error:
            self.edit.put_back()
            then = f"{file} is as before: start {name} again" if error.status == "ABORTED" else _NOTHING
            raise CoveyError(f"{error}; {then}") from None
        except ConnectError as error:
            answers = await self._answers(name, state["process"])
            if not answers and not self.edit.before.durable:
                how = "ended before it had sent on what it had"
            elif not answers or time.monotonic() < deadline - 1:
                self.edit.put_back()
                then = _NOTHING if answers else f"{file} is as before: start {name} again"
                raise CoveyError(f"broker {name} has not left: {error}; {then}") from None
        while await self._answers(name, state["process"]):
            if time.monotonic() > deadline:
                raise CoveyError(
                    f"broker {name} is still sending on what it has: expected it to end; once it has, send "
                    f"each other broker SIGHUP, and they are linked without it ({file} has changed)"
                )
            await asyncio.sleep(_POLL_S)
        clients = f"; {state['sessions']} sessions of clients have ended" if state["sessions"] else ""
        return f"{name} {how}{clients}"

    async def _answers(self, broker: str, process: int) -> bool:
        address = self.edit.before.brokers[broker].address
        try:
            state = await self._inspected(address)
        except CoveyError:
            return False
        return bool(state["process"] == process)

    async def _reload(self, broker: str) -> str:
        """Have a broker reload the file; returns why it failed, or ""."""
        try:
            reloaded = await self._call(broker)
        except CoveyError as error:
            return f"broker {broker} has not reloaded its file: {error} ({self.edit.path} has changed)"
        if set(reloaded.neighbours) == set(self.edit.after.neighbours(broker)):
            return ""
        return (
            f"broker {broker} has reloaded {reloaded.file}, where {self._name} has not changed: copy "
            f"{self.edit.path} there, and send {broker} SIGHUP"
        )

    async def _call(self, broker: str, *, leave: bool = False, within_s: float = _RELOAD_S) -> ReloadReply:
        address, credentials = self.edit.before.brokers[broker].address, self._access.credentials
        request = RELOAD.request(leave=leave)
        return await call_broker(address, RELOAD, request, credentials, within_s)

    async def _until_linked(self, links: list[tuple[str, str]], wait_s: float) -> None:
        """Wait until the first end of each link has the other's interest."""
        deadline = time.monotonic() + wait_s
        for upper, lower in links:
            while not await self._linked(upper, lower):
                if time.monotonic() > deadline:
                    raise CoveyError(
                        f"{lower} is not linked to {upper} within {wait_s:g} s: expected it to run; covey "
                        f"health --ready says what is missing"
                    )
                await asyncio.sleep(_POLL_S)
            print(f"{lower} is linked to {upper}", flush=True)

    async def _linked(self, upper: str, lower: str) -> bool:
        address = self.edit.after.brokers[upper].address
        try:
            state = await self._inspected(address)
        except CoveyError:
            return False
        interface = f"broker/{lower}"
        missing = {each["what"] for each in state["missing"]}
        return interface in state["interfaces"] and interface not in missing


def _listed(before: str, links: list[tuple[str, str]]) -> str:
    return before + ", ".join(" - ".join(link) for link in links) if links else ""
