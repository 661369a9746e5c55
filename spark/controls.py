"""Variables of a running query, updated from another process of the same user and machine. Spark's API does
not reach the process of a query's source, so it listens on a socket named by the option `name`, in a folder
that only its user can enter. Request and answer are one line of JSON each."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import date
from pathlib import Path

from covey.matcher.errors import CoveyError
from covey.spark.options import SourceError

_MAX_LINE = 1 << 20


def update(name: str, /, *, timeout: float = 30.0, **values: object) -> None:
    """Update variables of a running query's filter, all at once; returns when every broker on the way has
    applied them. Earlier events stay in the stream.

    `name` is the query's option; its driver runs on this machine, as this user. `SourceError` if there is no
    such query, if a value does not fit, or after `timeout` seconds.
    """
    request = json.dumps(values, default=_plain).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            connection.connect(str(_path(name)))
            connection.sendall(request)
            with connection.makefile("rb") as answers:
                answer = answers.readline(_MAX_LINE)
    except TimeoutError:
        raise SourceError(f"query {name!r}: the update was not applied within {timeout:g} s") from None
    except (OSError, AttributeError):
        raise SourceError(
            f"query {name!r}: no query of this user on this machine has begun with the option name={name}"
        ) from None
    if not answer:
        raise SourceError(f"query {name!r}: it has ended")
    error = json.loads(answer)["error"]
    if error:
        raise SourceError(f"query {name!r}: {error}")


def _plain(value: object) -> object:
    if isinstance(value, date):
        return value.isoformat()
    raise SourceError(f"value {value!r}: expected a number, text, boolean or time")


def _path(name: str) -> Path:
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"covey-spark-{user}" / f"{name}.socket"


class Controls:
    """The listening side; `apply` is called with the values of each request."""

    def __init__(self, name: str, apply: Callable[[Mapping[str, object]], Awaitable[None]]) -> None:
        self._path = _path(name)
        self._name = name
        self._apply = apply
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """`SourceError` if a running query has this name. Does nothing on systems without Unix sockets."""
        if not hasattr(socket, "AF_UNIX"):
            return
        folder = self._path.parent
        folder.mkdir(mode=0o700, exist_ok=True)
        if hasattr(os, "getuid") and (folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o077):
            raise SourceError(f"{folder} is not of this user alone: remove it")
        try:
            _, writer = await asyncio.open_unix_connection(str(self._path))
        except OSError:
            with suppress(FileNotFoundError):
                self._path.unlink()  # of a process that was killed
        else:
            writer.close()
            raise SourceError(f"option name is {self._name!r}: a running query of this machine has it")
        self._server = await asyncio.start_unix_server(self._answer, str(self._path), limit=_MAX_LINE)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            with suppress(FileNotFoundError):
                self._path.unlink()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        error = ""
        try:
            line = await reader.readline()
            if line:
                await self._apply(json.loads(line))
        except CoveyError as refusal:
            error = str(refusal)
        except ValueError:
            error = "expected a line of JSON"
        with suppress(OSError):
            writer.write(json.dumps({"error": error}).encode() + b"\n")
            await writer.drain()
            writer.close()
