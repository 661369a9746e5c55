"""The brokers of deploy/compose in containers: TLS, volumes, `docker kill` and `docker network disconnect`.
Events flow from b5 by b3, b1 and b2 to a durable client of b4."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from running import free_ports, on_a_loop, until

from covey.matcher import EventType
from covey.overlay import Client

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "deploy" / "compose" / "compose.yaml"
ORDER = EventType("Order", {"number": "int64", "text": "string"})
BROKERS = ["b1", "b2", "b3", "b4", "b5"]
RATE = 500


def why_not() -> str:
    """Why containers cannot run here."""
    try:
        for command in (["docker", "info"], ["docker", "compose", "version"]):
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            if done.returncode != 0:
                return f"{' '.join(command)} fails: {done.stderr.strip()[-100:]}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no Docker engine answers: {error}"
    return ""


class Containers:
    """The brokers as a project of its own, at free ports of this machine. `authority` is their authority."""

    def __init__(self, folder: Path) -> None:
        self.ports = dict(zip(BROKERS, free_ports(len(BROKERS)), strict=True))
        self.name = f"covey-test-{self.ports['b1']}"
        self._changed = folder / "ports.yaml"
        ports = "".join(
            f"  {name}: {{ports: !override ['127.0.0.1:{port}:7001']}}\n" for name, port in self.ports.items()
        )
        self._changed.write_text(f"services:\n{ports}")
        self.authority = folder / "authority.pem"

    def address(self, broker: str) -> str:
        return f"localhost:{self.ports[broker]}"

    def compose(self, *words: str) -> str:
        files = ["-f", str(FILE), "-f", str(self._changed)]
        return self.docker("compose", "-p", self.name, *files, *words)

    def docker(self, *words: str) -> str:
        done = subprocess.run(
            ["docker", *words], capture_output=True, text=True, cwd=ROOT, timeout=1_800, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def network(self, action: str, broker: str) -> None:
        alias = ["--alias", broker] if action == "connect" else []
        self.docker("network", action, *alias, f"{self.name}_default", f"{self.name}-{broker}-1")


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[Containers]:
    if reason := why_not():
        pytest.skip(reason)
    made = Containers(tmp_path)
    try:
        made.compose("up", "--build", "--wait")
        made.compose("cp", "b1:/etc/covey/certs/authority.pem", str(made.authority))
        yield made
    finally:
        made.compose("down", "--volumes")


class Load:
    """Durable events at a rate, and their arrivals."""

    def __init__(self, containers: Containers) -> None:
        self._containers = containers
        self.published = 0
        self.numbers: list[int] = []

    def client(self, broker: str, name: str) -> Client:
        where, durable = self._containers.address(broker), name == "reader"
        return Client(where, name, durable=durable, tls=self._containers.authority)

    async def publish(self, publisher: Client) -> None:
        while True:
            await publisher.publish("Order", number=self.published, text="x" * 100)
            self.published += 1
            await asyncio.sleep(1 / RATE)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        async with self.client("b4", "reader") as client:
            subscription = await client.subscribe(ORDER)

            async def read() -> None:
                async for batch in subscription.batches():
                    self.numbers.extend(row["number"] for row in batch.to_pylist())

            reading = asyncio.create_task(read())
            try:
                yield
            finally:
                reading.cancel()
                with suppress(asyncio.CancelledError):
                    await reading

    async def arrives(self, what: str) -> None:
        """Wait for events published from now on."""
        newest = self.published
        await until(lambda: bool(self.numbers) and self.numbers[-1] >= newest, what, 120.0)
        assert self.numbers == [*range(len(self.numbers))], what


@pytest.mark.thorough
@on_a_loop
async def test_containers_lose_repeat_and_reorder_no_durable_event(containers: Containers) -> None:
    load = Load(containers)

    async def command(*words: str) -> None:
        await asyncio.to_thread(containers.compose, *words)

    async with load.client("b5", "publisher") as publisher:
        await publisher.advertise(ORDER)
        async with load.reading():
            publishing = asyncio.create_task(load.publish(publisher))
            await load.arrives("the first events")
            for broker in BROKERS:
                await asyncio.to_thread(containers.docker, "kill", f"{containers.name}-{broker}-1")
                await asyncio.sleep(0.5)
                await asyncio.to_thread(containers.docker, "start", f"{containers.name}-{broker}-1")
                await load.arrives(f"events after {broker} was killed")
            for broker in BROKERS:
                await asyncio.to_thread(containers.network, "disconnect", broker)
                await asyncio.sleep(1.0)
                await asyncio.to_thread(containers.network, "connect", broker)
                await load.arrives(f"events after {broker} was disconnected")
        await asyncio.sleep(1.0)  # the reader is away
        publishing.cancel()
        await publisher.flush()
    assert load.published > len(load.numbers)
    await command("down")
    await command("up", "--wait")
    async with load.reading():
        await until(lambda: len(load.numbers) >= load.published, "what came while the reader was away", 120)
    assert load.numbers == [*range(load.published)]
