"""Golden scripts: the messages of a small overlay, line by line, for the papers' listings and their mends.

A script in `scripts/` is a list of steps. A step is one or more command lines, `----`, and the expected
lines: every message that arrives, in order, until none is in flight. `pytest tests/overlay/core
--rewrite` writes the actual lines as the expected ones; review the difference before a commit.

    brokers b1 b2 ... [static]            link b1 b2                 client c1 b1 [static|unsubscribe-first]
    type Quote firm:string price:float64  show acks
    ad c1 Quote                           unad c1 Quote
    sub c1 NAME Quote: FILTER [with x=1 y="s"]
    upd c1 NAME x=2                       usub c1 NAME
    pub c1 Quote IBM,5 AAPL,7             poset b1                   crash b1
    leave c1                              settled c1                 say b1 b2 ack 99 | upd 5 x=1
"""

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest
from core_network import Client, Network
from core_routes import check_links

from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType
from covey.matcher.filters.filter import parse
from covey.overlay.core.client.actions import DeliverTo
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.introspection.inspection import render
from covey.overlay.core.messages import (
    Acknowledge,
    Advertise,
    Deliver,
    Disconnect,
    Message,
    Publish,
    Refuse,
    Subscribe,
    SyncBegin,
    SyncEnd,
    Unadvertise,
    Unsubscribe,
    Update,
)
from covey.sim.invariants import check

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


def pairs(words: list[str]) -> dict[str, object]:
    return {name: ast.literal_eval(value) for name, _, value in (word.partition("=") for word in words)}


def values_text(values: Mapping[str, object]) -> str:
    return "{" + ", ".join(f"{name}: {value!r}" for name, value in values.items()) + "}"


def rows(batch: EventBatch) -> str:
    return " ".join("(" + ", ".join(str(v) for v in row.values()) + ")" for row in batch.to_pylist())


def one_line(message: Message) -> str:
    match message:
        case Advertise(epoch, event_type):
            return f"AD @{epoch} {event_type.name}"
        case Unadvertise(epoch, name):
            return f"UNAD @{epoch} {name}"
        case Subscribe(epoch, number, filter, values):
            return f"SUB @{epoch} #{number} {str(filter) or 'true'} {values_text(values)}"
        case Unsubscribe(epoch, number):
            return f"USUB @{epoch} #{number}"
        case Update(epoch, number, values):
            return f"UPD @{epoch} #{number} {values_text(values)}"
        case Acknowledge(epoch):
            return f"ACK @{epoch}"
        case SyncBegin():
            return "SYNC begins"
        case SyncEnd(epoch):
            return f"SYNC @{epoch} ends"
        case Publish(batch):
            return f"PUB {rows(batch)}"
        case Deliver(batch, offsets, ids, epoch):
            return f"DELIVER @{epoch} {rows(batch)} to {ids.tolist()} at {offsets.tolist()}"
        case Refuse(epoch, status, reason):
            return f"REFUSE @{epoch} {status}: {reason}"
        case Disconnect():
            return "leaves"
    return type(message).__name__


class Script:
    """The commands of one script, and the lines of their messages."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.types: dict[str, EventType] = {}
        self.names: dict[tuple[str, str], int] = {}
        self.acks = False
        self.network = Network(trace=self._trace, on_deliver=self._delivered)

    def _trace(self, source: str, target: str, message: Message) -> None:
        if self.acks or not isinstance(message, Acknowledge | SyncBegin | SyncEnd):
            self.lines.append(f"{short(source)} > {short(target)}: {one_line(message)}")

    def _delivered(self, client: Client, action: DeliverTo) -> None:
        names = {number: name for (c, name), number in self.names.items() if c == client.name}
        spurious = f", {action.spurious} spurious" if action.spurious else ""
        name = names[action.subscription_id]
        self.lines.append(
            f"  {short(client.name)} delivers to {name}: {rows(action.batch) or 'nothing'}{spurious}"
        )

    def step(self, commands: list[str]) -> str:
        """Run the commands of one step and deliver all messages; returns the resulting lines."""
        self.lines = []
        later: list[list[str]] = []
        for command in commands:
            words = command.split()
            if words[0] in ("poset", "settled"):
                later.append(words)
            else:
                getattr(self, f"do_{words[0]}")(command, *words[1:])
        self.network.run()
        for words in later:
            getattr(self, f"do_{words[0]}")(*words[1:])
        for broker in self.network.brokers.values():
            check(broker)
        check_links(self.network)
        return "\n".join(self.lines) or "nothing"

    # --- commands -------------------------------------------------------------------------------------------

    def do_brokers(self, _: str, *names: str) -> None:
        if "static" in names:
            self.network.routing = "static"
        for name in names:
            if name != "static":
                self.network.broker(f"broker/{name}")

    def do_link(self, _: str, a: str, b: str) -> None:
        self.network.link(f"broker/{a}", f"broker/{b}")

    def do_client(self, _: str, name: str, broker: str, mode: str = "") -> None:
        session = ClientSession(
            name,
            routing="static" if mode else "parametric",
            resubscribe="unsubscribe-first" if mode == "unsubscribe-first" else "subscribe-first",
            engine="naive",
        )
        self.network.client(f"client/{name}", f"broker/{broker}", session)

    def do_show(self, _: str, what: str) -> None:
        self.acks = what == "acks"

    def do_type(self, _: str, name: str, *attributes: str) -> None:
        self.types[name] = EventType(name, dict(a.split(":", 1) for a in attributes))

    def do_ad(self, _: str, client: str, name: str) -> None:
        self.network.advertise(f"client/{client}", self.types[name])

    def do_unad(self, _: str, client: str, name: str) -> None:
        self.network.unadvertise(f"client/{client}", name)

    def do_sub(self, command: str, client: str, name: str, *_: str) -> None:
        head, _, text = command.partition(":")
        filter_text, _, values = text.partition(" with ")
        filter = parse(filter_text.strip(), self.types[head.split()[3]])
        number = self.network.subscribe(f"client/{client}", filter, pairs(values.split()))
        self.names[f"client/{client}", name] = number

    def do_upd(self, _: str, client: str, name: str, *values: str) -> None:
        self.network.update(f"client/{client}", self.names[f"client/{client}", name], pairs(list(values)))

    def do_usub(self, _: str, client: str, name: str) -> None:
        self.network.unsubscribe(f"client/{client}", self.names.pop((f"client/{client}", name)))

    def do_pub(self, _: str, client: str, name: str, *events: str) -> None:
        event_type = self.types[name]
        found: list[dict[str, object]] = []
        for event in events:
            texts = zip(event_type.attributes.items(), event.split(","), strict=True)
            found.append(
                {a: None if v == "-" else v if k == "string" else ast.literal_eval(v) for (a, k), v in texts}
            )
        self.network.publish(f"client/{client}", event_type, found)

    def do_crash(self, _: str, name: str) -> None:
        self.network.crash(f"broker/{name}")

    def do_leave(self, _: str, name: str) -> None:
        self.network.leave(f"client/{name}")

    def do_say(self, _: str, a: str, b: str, what: str, number: str, *values: str) -> None:
        message: Message = Acknowledge(int(number))
        if what == "upd":
            epoch = self.network.brokers[f"broker/{a}"].tables.acks.next_epoch(f"broker/{b}")
            message = Update(epoch, int(number), pairs(list(values)))
        self.network.send(f"broker/{a}", f"broker/{b}", [message])

    def do_poset(self, name: str) -> None:
        text = render(self.network.brokers[f"broker/{name}"])
        peers = self.network.brokers[f"broker/{name}"].tables.peers
        self.lines += text.split("\n")[1 + len(peers) :]

    def do_settled(self, name: str) -> None:
        session = self.network.clients[f"client/{name}"].session
        self.lines.append(f"{name} sent @{session.epoch}, settled @{session.settled}")


def short(interface: str) -> str:
    return interface.partition("/")[2]


def run(text: str) -> str:
    """Run a script; returns it with the actual lines in place of the expected ones."""
    script, out = Script(), []
    commands: list[str] = []
    expected = False
    for line in text.splitlines():
        if expected:
            expected = bool(line)
            if not line:
                out.append(line)
        elif line == "----":
            out += [line, script.step(commands)]
            commands, expected = [], True
        else:
            out.append(line)
            if line and not line.startswith("#"):
                commands.append(line)
    assert not commands, f"no ---- after {commands}"
    return "\n".join(out) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_script(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    found = run(text)
    if request.config.getoption("--rewrite", default=False):
        path.write_text(found)
    else:
        assert found == text
