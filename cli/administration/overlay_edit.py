"""Brokers added to an overlay file, and taken out of it; comments and the rest of the file stay.

Invariant: the file is valid before and after, and at no moment anything else: the new text is validated, then
put in the place of the old one at once. Of those that edit files of one directory, one does at a time.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from io import StringIO
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from covey.overlay.core.repair.uplink import links_without
from covey.overlay.documents import read_text
from covey.overlay.node.config import ConfigError, parse_overlay
from covey.overlay.node.overlay import Overlay

if TYPE_CHECKING:
    from ruamel.yaml.comments import CommentedSeq


LOCKED_S = 60.0
"""How long an edit waits for another one."""
_LOCK_POLL_S = 0.1


class OverlayEdit:
    """The file at a path, with its changes until `write`; nobody else edits it until `release`, or the end of
    the block. `ConfigError` if the file is wrong, or is being edited for longer than `locked_s` seconds.
    """

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
            """The overlay of the file as it is."""
            mistaken.pop_all()
        self.after = self.before
        self._after = self._before

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def add(self, name: str, address: str, links: Sequence[str], listen: str = "") -> None:
        """A broker that is linked to others, which it dials. `ConfigError` for a name that is in use, and for
        what the file would not be valid with.
        """
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
        """Take a broker out, and link the brokers around it to its hub (`core/repair/leaving.py`).
        `ConfigError` for a broker that is not there, and for the last one.
        """
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
        """Put the new text in the place of the old one. `ConfigError` if that has changed meanwhile, or the
        file cannot be written.
        """
        self._replace(self._before, self._after)

    def put_back(self) -> None:
        """As it was before `write`. `ConfigError` as there."""
        self._replace(self._after, self._before)

    def release(self) -> None:
        """Let others edit the file."""
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
    """Whether nobody else has the lock of a directory, which is held until `lock` ends. The file itself is
    exchanged, so it cannot have one. Where directories have no locks, `write` alone sees what others write.
    """
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
    """Give a file the owner and the permissions of another one: brokers that read that one read it, too."""
    mine = path.stat()
    if (mine.st_uid, mine.st_gid) != (other.st_uid, other.st_gid):
        try:
            os.chown(path, other.st_uid, other.st_gid)
        except PermissionError:
            if not other.st_mode & stat.S_IROTH:
                raise
    os.chmod(path, other.st_mode)


def new_links(before: Overlay, after: Overlay) -> list[tuple[str, str]]:
    """The links that only the second one has."""
    known = {frozenset(link) for link in before.links}
    return [link for link in after.links if frozenset(link) not in known]


def _ends(link: Any) -> Sequence[str]:
    ends: Sequence[str] = link["ends"] if isinstance(link, dict) else link
    return ends


def _text(name: str) -> str:
    """A name as it is written: in quotes where it would be read as something else, such as `yes`."""
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
