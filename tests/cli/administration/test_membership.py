"""`covey broker join` and `leave` in a running overlay."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import AsyncMock

import commands
import pytest
from running import on_a_loop

from covey.cli.administration.membership import Change
from covey.matcher import EventType
from covey.overlay import Client
from covey.overlay.node.config import load_overlay
from covey.sim.experiments.local_overlay import broker_command, free_addresses, is_linked

COVEY = [sys.executable, "-m", "covey.cli.main"]
TICK = EventType("Tick", {"x": "int64"})


class Overlay:
    """b1 - b2 - b3, processes of one file, and an address for b4."""

    def __init__(self, folder: Path, text: str = "") -> None:
        names = ("b1", "b2", "b3", "b4")
        self.addresses = dict(zip(names, free_addresses(4), strict=True))
        self.file = folder / "overlay.yaml"
        lines = [f'  {name}: {{address: "{self.addresses[name]}"}}   # of {name}' for name in names[:3]]
        self.file.write_text(
            "\n".join(
                ["overlay: three  # a comment", "brokers:", *lines, "links: [[b1, b2], [b2, b3]]", text, ""]
            )
        )
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            for name in load_overlay(self.file).brokers:
                self.start(name)
            yield
        finally:
            for process in self.processes.values():
                process.terminate()
            for process in self.processes.values():
                process.wait(60)

    def start(self, name: str) -> None:
        self.processes[name] = subprocess.Popen(
            broker_command(self.file, name), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    async def linked(self, name: str, *neighbours: str) -> None:
        async with asyncio.timeout(100):
            while not await is_linked(self.addresses[name], self.processes[name].pid, neighbours):
                assert self.processes[name].poll() is None
                await asyncio.sleep(0.05)

    async def covey(self, *words: str) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            *COVEY, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, error = await asyncio.wait_for(process.communicate(), 200)
        assert process.returncode is not None
        return process.returncode, out.decode(), error.decode()

    async def join(self, name: str, to: str) -> tuple[int, str, str]:
        words = ("--link", to, "--address", self.addresses[name], "--wait", "150")
        return await self.covey("broker", "join", name, "--overlay", str(self.file), *words)

    async def leave(self, name: str, *words: str) -> tuple[int, str, str]:
        return await self.covey("broker", "leave", name, "--overlay", str(self.file), "--wait", "150", *words)

    async def events_cross(self, publisher: str, subscriber: str) -> None:
        """Events reach a subscriber at another broker."""
        async with (
            Client(self.addresses[publisher], "publisher") as there,
            Client(self.addresses[subscriber], "subscriber") as here,
        ):
            await there.advertise(TICK)
            subscription = await here.subscribe("Tick", "x > 0")
            await there.publish("Tick", x=1)
            async with asyncio.timeout(60):
                assert (await anext(subscription))["x"] == 1


@pytest.mark.thorough
@on_a_loop
async def test_a_broker_joins_a_running_overlay_and_one_in_the_middle_leaves(tmp_path: Path) -> None:
    overlay = Overlay(tmp_path)
    with overlay.running():
        await overlay.linked("b2", "b1", "b3")
        pids = {name: process.pid for name, process in overlay.processes.items()}
        joining = asyncio.create_task(overlay.join("b4", "b2"))
        while "b4" not in load_overlay(overlay.file).brokers:
            await asyncio.sleep(0.05)
        overlay.start("b4")
        status, out, error = await joining
        assert (status, error) == (0, "")
        assert out.splitlines()[-1] == "b4 is linked to b2"
        await overlay.events_cross("b4", "b1")

        status, out, error = await overlay.leave("b2")
        assert (status, error) == (0, "")
        assert out.splitlines() == [
            f"{overlay.file}: b2 left, with new links b1 - b3, b1 - b4",
            "b2 has sent on what it had, and ended",
            "b1, b3, b4 have reloaded the file",
            "b3 is linked to b1",
            "b4 is linked to b1",
        ]
        assert overlay.processes.pop("b2").wait(60) == 0
        await overlay.events_cross("b4", "b3")
        assert {name: process.pid for name, process in overlay.processes.items() if name in pids} == {
            name: pids[name] for name in ("b1", "b3")
        }
        assert "a comment" in overlay.file.read_text()
        assert "# of b3" in overlay.file.read_text()

        overlay.processes["b4"].kill()
        overlay.processes.pop("b4").wait()
        before = overlay.file.read_text()
        status, out, error = await overlay.leave("b3")
        assert (status, out, overlay.file.read_text()) == (1, "", before)
        assert error.startswith("covey: broker b4: no broker answers at")
        assert error.endswith("; nothing has changed (--skip b4 if it does not run)\n")
        status, out, error = await overlay.leave("b4", "--skip", "b4")
        assert (status, error) == (0, "")
        assert out.splitlines()[1:] == ["b1, b3 have reloaded the file"]


@pytest.mark.thorough
@on_a_loop
async def test_a_broker_that_leaves_has_sent_on_what_it_stores(tmp_path: Path) -> None:
    overlay = Overlay(tmp_path, "durable: {Tick: {}}\nstorage: store")
    with overlay.running():
        await overlay.linked("b2", "b1", "b3")
        async with Client(overlay.addresses["b1"], "reader", durable=True) as reader:
            ticks = await reader.subscribe(TICK, "x >= 0")
            writer = Client(overlay.addresses["b3"], "writer")
            await writer.open()
            await writer.advertise(TICK)
            for x in range(2_000):
                await writer.publish("Tick", x=x)
            await writer.flush()
            leaving = asyncio.create_task(overlay.leave("b3"))
            async with asyncio.timeout(100):
                assert [(await anext(ticks))["x"] for _ in range(2_000)] == list(range(2_000))
            status, out, error = await leaving
            assert (status, error) == (0, "")
            assert "b3 has sent on what it had, and ended; 1 sessions of clients have ended" in out
            await writer.close()
            status, out, error = await overlay.leave("b1")
            assert (status, out) == (1, "")
            assert "durable sessions: 1" in error


@pytest.mark.thorough
@on_a_loop
async def test_a_broker_whose_neighbour_falls_silent_while_it_leaves_keeps_its_place(tmp_path: Path) -> None:
    """Restarted, it has the events that it was about to lose."""
    overlay = Overlay(tmp_path, "durable: {Tick: {}}\nstorage: store")
    with overlay.running():
        await overlay.linked("b2", "b1", "b3")
        before = overlay.file.read_text()
        async with (
            Client(overlay.addresses["b1"], "reader", durable=True) as reader,
            Client(overlay.addresses["b3"], "writer") as writer,
        ):
            ticks = await reader.subscribe(TICK, "x >= 0")
            await writer.advertise(TICK)
            await writer.publish("Tick", x=0, confirm=True)
            assert (await asyncio.wait_for(anext(ticks), 100))["x"] == 0
            overlay.processes["b2"].send_signal(signal.SIGSTOP)
            try:
                for x in range(1, 50):
                    await writer.publish("Tick", x=x, confirm=x == 49)
                status, _, error = await overlay.leave("b3", "--skip", "b2")
            finally:
                overlay.processes["b2"].send_signal(signal.SIGCONT)
            assert (status, len(error.splitlines())) == (1, 1)
            # On a slow machine b3 may have noticed the silence earlier, and stays.
            assert "for broker/b2" in error or "link to b2" in error or "b3 stores events for" in error, error
            assert overlay.file.read_text() == before
            if "is as before: start b3 again" in error:
                assert overlay.processes["b3"].wait(60) == 3
                overlay.start("b3")
            await overlay.linked("b3", "b2")
            async with asyncio.timeout(100):
                assert [(await anext(ticks))["x"] for _ in range(49)] == list(range(1, 50))
                while (await overlay.leave("b3"))[0]:
                    pass  # until it is ready
            assert overlay.processes.pop("b3").wait(60) == 0


REFUSALS = {
    "name-in-use": (["join", "b2", "--link", "b1", "--address", "127.0.0.1:7009"], "b2 is there already"),
    "address-in-use": (["join", "b9", "--link", "b1", "--address", "ADDRESS"], "broker b1 has it"),
    "cycle": (
        ["join", "b9", "--link", "b1", "--link", "b3", "--address", "127.0.0.1:7009"],
        "links[3] closes a cycle, b3 - b2 - b1 - b9 - b3: expected a tree",
    ),
    "unknown-link": (["join", "b9", "--link", "b7", "--address", "127.0.0.1:7009"], "names 'b7': expected"),
    "unknown-broker": (["leave", "b9"], "broker b9 is not there: expected one of b1, b2, b3"),
    "unknown-skip": (["leave", "b1", "--skip", "b9"], "--skip is 'b9': expected one of b1, b2, b3"),
}


@pytest.mark.parametrize(("words", "text"), REFUSALS.values(), ids=REFUSALS)
def test_what_would_be_no_overlay_changes_nothing(
    words: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overlay = Overlay(tmp_path)
    before = overlay.file.read_text()
    words = [overlay.addresses["b1"] if word == "ADDRESS" else word for word in words]
    assert commands.run("broker", *words, "--overlay", overlay.file) == 2
    error = capsys.readouterr().err
    assert text in error
    assert len(error.splitlines()) == 1
    assert overlay.file.read_text() == before


def test_the_last_broker_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "overlay.yaml"
    file.write_text('overlay: one\nbrokers: {b1: {address: "127.0.0.1:7001"}}\n')
    assert commands.run("broker", "leave", "b1", "--overlay", file) == 2
    assert "broker b1 is the last one: expected another beside it" in capsys.readouterr().err


def test_brokers_that_do_not_run_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overlay = Overlay(tmp_path)
    before = overlay.file.read_text()
    assert commands.run("broker", "leave", "b1", "--overlay", overlay.file) == 1
    assert "nothing has changed (--skip b" in capsys.readouterr().err
    assert overlay.file.read_text() == before


def test_a_broker_between_others_that_store_events_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overlay = Overlay(tmp_path, "durable: {Tick: {}}\nstorage: store")
    every = [word for name in ("b1", "b2", "b3") for word in ("--skip", name)]
    assert commands.run("broker", "leave", "b2", "--overlay", overlay.file, *every) == 2
    assert "broker b2 is linked to b1, b3: expected a broker with one link" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("interrupted", "first"),
    [("_let_go", "once b2 has ended, "), ("_reload", "")],
    ids=["leaving", "reloading"],
)
def test_an_interrupted_change_says_what_is_left_to_do(
    interrupted: str,
    first: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    overlay = Overlay(tmp_path)

    async def interrupt(*_: object) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr(Change, "_state", AsyncMock(return_value={}))
    monkeypatch.setattr(Change, "_let_go", AsyncMock(return_value="b2 has ended"))
    monkeypatch.setattr(Change, interrupted, interrupt)
    assert commands.run("broker", "leave", "b2", "--overlay", overlay.file) == 130
    expected = f"covey: {overlay.file} has changed; {first}send b1, b3 SIGHUP\ncovey: interrupted\n"
    assert capsys.readouterr().err == expected
    assert "b2" not in load_overlay(overlay.file).brokers
