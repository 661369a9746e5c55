"""Gateways in this process, and browsers that speak plain messages."""

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import jwt
import numpy as np
import uvicorn
from running import Brokers, free_ports, until
from websockets.asyncio.client import ClientConnection, connect

from covey.gateway import Limits, application
from covey.gateway.browser_queue import BrowserQueue
from covey.gateway.encoding import Frame
from covey.gateway.messages import REPLIES
from covey.gateway.server import bind, server
from covey.matcher import EventBatch, EventType
from covey.overlay import Client, Tls
from covey.overlay.core.access.rights import Permission, Rule
from covey.overlay.core.client.actions import Matches
from covey.overlay.node.authentication import ClientRules, TokenOptions

_SECRET = "g" * 40


@cache
def token_rules() -> ClientRules:
    """The exchange may do everything, alice and bob may subscribe to quotes."""
    path = Path(tempfile.mkdtemp(prefix="covey-key-")) / "secret"
    path.write_text(_SECRET)
    everything = (Permission("*"),)
    exchange = Rule(("exchange",), publish=everything, subscribe=everything)
    return ClientRules(
        TokenOptions(str(path)), (exchange, Rule(("alice", "bob"), subscribe=(Permission("Quote"),)))
    )


def token(subject: str, seconds: float = 600) -> str:
    return jwt.encode({"sub": subject, "exp": time.time() + seconds}, _SECRET, algorithm="HS256")


@asynccontextmanager
async def gateway_to(
    broker: str,
    *,
    limits: Limits | None = None,
    proxies: tuple[str, ...] = (),
    serves_as: Tls | None = None,
    **options: Any,
) -> AsyncIterator[str]:
    """A gateway as `covey gateway` serves it, as HOST:PORT; `serves_as` has its certificate."""
    limits = limits or Limits()
    files = {} if serves_as is None else {"certificate": serves_as.certificate, "key": serves_as.key}
    serving = server(application(broker, limits=limits, **options), limits, proxies=proxies, **files)
    async with running(serving) as address:
        yield address


def page_of(app: Any, limits: Limits | None = None) -> AbstractAsyncContextManager[str]:
    """An application at an address, served as a gateway is, or without its limits."""
    if limits is None:
        return running(uvicorn.Server(uvicorn.Config(app, log_level="warning")))
    return running(server(app, limits))


@asynccontextmanager
async def running(serving: uvicorn.Server) -> AsyncIterator[str]:
    """The HOST:PORT of a server of this process."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    done = asyncio.create_task(serving.serve(sockets=[bind(address, tls=False, insecure=False)]))
    try:
        await until(lambda: serving.started or done.done())
        assert serving.started
        yield address
    finally:
        serving.should_exit = True
        await done


@asynccontextmanager
async def served(*types: EventType, **options: Any) -> AsyncIterator[tuple[Client, str]]:
    """A client that publishes these types at a broker, and the address of a gateway to it."""
    async with Brokers() as overlay, Client(overlay.address("b1")) as exchange:
        for each in types:
            await exchange.advertise(each)
        async with gateway_to(overlay.address("b1"), **options) as address:
            yield exchange, address


def with_short(limits: Limits, **seconds: float) -> Limits:
    """These limits with shorter times than users may set."""
    for name, value in seconds.items():
        object.__setattr__(limits, name, value)
    return limits


async def no_session_left(address: str) -> None:
    """Wait until all sessions' leases have expired."""
    health = EventSource(address, "/health")
    count = 1
    while count:
        await asyncio.sleep(0.05)
        await health.open()
        count = (await health.body())["sessions"]
        health.writer.close()


async def sent(queue: BrowserQueue, most: int = 10_000) -> list[Frame]:
    """Up to so many messages that a queue can send at once, without acknowledgement."""
    frames: list[Frame] = []
    with suppress(TimeoutError):
        while len(frames) < most:
            async with asyncio.timeout(0):
                _, frame = await queue.next()
            frames.append(frame)
    return frames


class Browser:
    """A WebSocket to a gateway. `received` counts the messages behind the first welcome."""

    def __init__(self, address: str, **hello: Any) -> None:
        self._address = address
        self._hello = hello
        self._requests = count(1)
        self.received = 0
        self.other: list[dict[str, Any]] = []
        """Messages that came during a wait for another."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.socket.close()

    async def open(self) -> None:
        self.socket: ClientConnection = await connect(f"ws://{self._address}/socket", max_size=None)
        await self.say("hello", **self._hello)
        self.welcome = json.loads(await self.socket.recv())
        assert self.welcome["kind"] == "welcome", self.welcome
        checked(self.welcome)

    async def resume(self, **hello: Any) -> None:
        """Resume the session on another connection."""
        self._hello |= {"session": self.welcome["session"], "received": self.received, **hello}
        await self.open()

    async def say(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"kind": kind, **fields}))

    async def next(self) -> dict[str, Any]:
        """The next message; binary ones are events with their `arrow`."""
        data = await asyncio.wait_for(self.socket.recv(), 60)
        self.received += 1
        if isinstance(data, str):
            return checked(json.loads(data))
        length = int.from_bytes(data[:4], "little")
        return {**json.loads(data[4 : 4 + length]), "arrow": data[4 + length :]}

    async def until(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The next message of a kind with these fields; others go to `other`."""
        while True:
            message = await self.next()
            if message["kind"] == kind and fields.items() <= message.items():
                return message
            self.other.append(message)

    async def request(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The answer to a request, or its error."""
        number = next(self._requests)
        await self.say(kind, request=number, **fields)
        while True:
            message = await self.next()
            if message.get("request") == number:
                return message
            self.other.append(message)

    async def events(self, least: int) -> list[dict[str, Any]]:
        """At least so many events, those in `other` first."""
        found = [event for each in self.other if each["kind"] == "events" for event in each["events"]]
        self.other = [each for each in self.other if each["kind"] != "events"]
        while len(found) < least:
            message = await self.next()
            if message["kind"] == "events":
                found += message["events"]
            else:
                self.other.append(message)
        return found


def checked(message: dict[str, Any]) -> dict[str, Any]:
    """A message that its class in the table admits, field by field."""
    fields = {name: value for name, value in message.items() if name != "kind"}
    REPLIES[message["kind"]].model_validate(fields)
    return message


class EventSource:
    """As a browser's: reads events, and opens another connection with the id of the last one."""

    def __init__(self, address: str, path: str, **parameters: str) -> None:
        self._address = address
        self._path = f"{path}?{urlencode(parameters)}"
        self.last_id = ""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def open(self, *headers: str) -> None:
        host, _, port = self._address.rpartition(":")
        self.reader, self.writer = await asyncio.open_connection(host, int(port))
        lines = [f"GET {self._path} HTTP/1.1", f"Host: {self._address}", *headers]
        if self.last_id:
            lines.append(f"Last-Event-ID: {self.last_id}")
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        self.status = int((await self.reader.readline()).split()[1])
        self.headers = {}
        while line := (await self.reader.readline()).decode().strip():
            name, _, value = line.partition(": ")
            self.headers[name.lower()] = value

    async def body(self) -> Any:
        return json.loads(await self.reader.readexactly(int(self.headers["content-length"])))

    async def next(self) -> dict[str, Any]:
        """The next message; a connection ends between two of them, or in one."""
        number = None
        while True:
            line = (await asyncio.wait_for(self.reader.readline(), 60)).decode()
            assert line, "the stream has ended"
            line = line.rstrip("\n")
            field, _, value = line.partition(": ")
            if field == "id":
                number = value
            elif field == "data":
                self.last_id = number or self.last_id
                return checked(json.loads(value))

    async def prices(self, least: int) -> list[object]:
        found: list[object] = []
        while len(found) < least:
            message = await self.next()
            found += [event["price"] for event in message["events"]] if message["kind"] == "events" else []
        return found


class BrokerClient:
    """A broker's client whose answers and deliveries the test states; each delivery is the first event of
    `batch`."""

    def __init__(self, batch: EventBatch) -> None:
        self.name = "gateway"
        self.subscription: Any = None
        """The result of `subscribe`, except for the filter "unanswered"."""
        self._batch = batch
        self._matches: asyncio.Queue[Matches] = asyncio.Queue()

    async def open(self) -> None:
        pass

    async def close(self, grace: float) -> None:
        pass

    async def subscribe(self, _: str, filter: str, **__: Any) -> Any:
        if filter == "unanswered":
            await asyncio.Event().wait()
        return self.subscription

    async def deliveries(self) -> AsyncIterator[Matches]:
        while True:
            yield await self._matches.get()
            self._matches.task_done()

    async def deliver(self, subscription_id: int, count: int) -> None:
        """Deliver batches of one event each; returns when they are handed out."""
        row, number = np.zeros(1, np.int64), np.array([subscription_id])
        for _ in range(count):
            self._matches.put_nowait(Matches(self._batch, row, number, {}))
        await self._matches.join()

    async def expire(self, subscription_ids: Iterable[int]) -> None:
        """End these subscriptions' periods; returns when that is handed out."""
        none = np.zeros(0, np.int64)
        self._matches.put_nowait(Matches(self._batch, none, none, {}, expired=tuple(subscription_ids)))
        await self._matches.join()
