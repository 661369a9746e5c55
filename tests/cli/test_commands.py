"""Commands as users run them: processes, signals, exit statuses, and one line per mistake."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from importlib import import_module
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import commands
import pytest
import typer
from commands import line_with, started
from live_brokers import live_brokers
from running import eventually

from covey.cli.main import COMMANDS, main
from covey.cli.subscribe import _subscribe
from covey.cli.support.options import NO_ACCESS
from covey.cli.up import Up
from covey.overlay.client import inspect_broker
from covey.overlay.node.config import load_overlay
from covey.sim.experiments.local_overlay import free_addresses

SCHEMA = "firm:string,price:float64,volume:int64"


def overlay_file(folder: Path, links: list[list[str]]) -> tuple[str, dict[str, str]]:
    names = sorted({name for link in links for name in link}) or ["b1"]
    addresses = dict(zip(names, free_addresses(len(names)), strict=True))
    brokers = "".join(f'  {name}: {{address: "{address}"}}\n' for name, address in addresses.items())
    path = folder / "overlay.yaml"
    path.write_text(f"overlay: test\nbrokers:\n{brokers}links: {links}\nlimits: {{session_lease_s: 30}}\n")
    return str(path), addresses


def inspect(address: str) -> dict[str, Any]:
    return asyncio.run(inspect_broker(address))[1]


def until_published(address: str) -> None:
    eventually(lambda: inspect(address)["core"]["types"].get("Quote", {}).get("publishers"))


# --- up -----------------------------------------------------------------------------------------------------


def test_up_starts_an_overlay_and_ctrl_c_stops_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, addresses = overlay_file(tmp_path, [["b1", "b2"]])
    quotes = tmp_path / "quotes.csv"
    quotes.write_text("firm,price,volume\nIBM,95,1\nIBM,85,2\nAAPL,3,3\nIBM,,4\n")
    with started("up", path) as up:
        assert up.stdout.readline() == f"covey: starting 2 brokers of {path}\n"
        line_with(up, "ready: b1 at ")
        reading = ["Quote", 'firm == "IBM" and price < $limit', "--set", "limit=100", "--count", "4"]
        options = ["--schema", SCHEMA, "--broker"]
        with started("subscribe", *reading, *options, addresses["b1"]) as reader:
            line_with(reader, "subscribed to Quote")
            assert commands.run("publish", "Quote", quotes, *options, addresses["b2"], "--json") == 0
            assert json.loads(capfd.readouterr().out)["published"] == 4
            line_with(reader, "Quote firm=IBM price=95.0 volume=1")
            line_with(reader, "Quote firm=IBM price=85.0 volume=2")
            reader.stdin.write("limit=cheap\nceiling=1\nlimit\nlimit=90\n")
            reader.stdin.flush()
            line_with(reader, "variable $limit: value 'cheap', expected a number")
            line_with(reader, "variable $ceiling is unknown")
            line_with(reader, "'limit': expected name=value")
            line_with(reader, "limit=90: applied in ")
            typed = (
                '{"firm": "IBM", "price": 95}\nnonsense\n{"firm": "IBM", "price": 89.5}\n[1]\n{"cost": 1}\n'
                '{"firm": "IBM", "price": 1}\n'
            )
            monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(typed.encode())))
            assert commands.run("publish", "Quote", *options, addresses["b2"]) == 1
            out, err = capfd.readouterr()
            complaints = sorted(err.splitlines())
            assert [complaint[:7] for complaint in complaints] == ["line 2:", "line 4:", "line 5:"]
            assert "not JSON" in complaints[0]
            assert "expected an object" in complaints[1]
            assert "unknown attribute 'cost'" in complaints[2]
            assert "published 3 events of Quote" in out
            line_with(reader, "Quote firm=IBM price=89.5")
            line_with(reader, "Quote firm=IBM price=1.0")
            assert reader.wait(100) == 0
        os.kill(inspect(addresses["b2"])["process"], signal.SIGKILL)
        line_with(up, "covey: broker b2 died (signal 9); starting it again")
        line_with(up, "serving at")
        up.send_signal(signal.SIGINT)
        line_with(up, "stopped\n")
        assert up.wait(100) == 0


def test_up_ends_with_a_broker_that_does_not_start_and_survives_one_that_logs_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    script = "for _ in range(5): print('x' * 60_000)\nexit(1)"  # a line is longer than a pipe holds
    monkeypatch.setattr("covey.cli.up.broker_command", lambda file, name: (sys.executable, "-c", script))
    assert commands.run("up", overlay_file(tmp_path, [])[0]) == 1
    out, err = capfd.readouterr()
    assert "covey: broker b1 did not start (status 1)\n" in err
    assert out.count("b1 | xxx") == 5
    assert max(map(len, out.splitlines())) < 20_000


def test_up_ends_if_it_cannot_read_the_output_of_a_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(output: asyncio.StreamReader) -> AsyncIterator[str]:
        await output.read(1)
        raise RuntimeError("no more")
        yield ""

    processes: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def started(*_: str, **options: Any) -> asyncio.subprocess.Process:
        processes.append(await start("sh", "-c", "echo; exec sleep 100", **options))
        return processes[-1]

    monkeypatch.setattr("covey.cli.up.output_lines", broken)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", started)
    path = Path(overlay_file(tmp_path, [])[0])
    with pytest.raises(RuntimeError, match="no more"):
        asyncio.run(asyncio.wait_for(Up(load_overlay(path), path).run(), 120))
    assert [process.returncode for process in processes] == [-signal.SIGTERM]


@pytest.mark.thorough
def test_brokers_end_when_up_is_killed(tmp_path: Path) -> None:
    path, addresses = overlay_file(tmp_path, [["b1", "b2"]])
    with started("up", path) as up:
        line_with(up, "ready")
        processes = [inspect(address)["process"] for address in addresses.values()]
        up.kill()
        eventually(lambda: not any(is_running(process) for process in processes))


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


# --- a broker -----------------------------------------------------------------------------------------------


def test_a_broker_reloads_at_a_hangup_drains_on_sigterm_and_an_occupied_port_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, addresses = overlay_file(tmp_path, [])
    address, file = addresses["b1"], Path(path)
    before = file.read_text()
    file.unlink()
    os.mkfifo(file)
    with started("broker", "--config", path, "--name", "b1") as broker:
        with file.open("w") as pipe:  # once the broker reads it
            broker.send_signal(signal.SIGHUP)
            file.unlink()
            file.write_text(before.replace("session_lease_s: 30", "session_lease_s: 77"))
            pipe.write(before)
        line_with(broker, f"serving at {address}")
        line_with(broker, "the overlay file was reloaded; changed: limits")
        assert commands.run("health", "--broker", address) in (0, None)
        assert commands.run("follow", "Quote", "price=1", "--broker", address) == 1
        unknown = capsys.readouterr().err
        assert unknown.count("\n") == 1
        assert "Quote" in unknown
        assert "--schema" not in unknown  # which it does not have
        assert commands.run("follow", "Quote", "--event", "feed:1", "--broker", address) == 1
        assert capsys.readouterr().out == "b1: no such event, or evicted\n"
        for variable, value in (("CONFIG", path), ("BROKER", "b1"), ("LOG", "warning")):
            monkeypatch.setenv(f"COVEY_{variable}", value)
        monkeypatch.setattr(logging.getLogger("covey.broker"), "filters", [])
        assert commands.run("broker") == 1
        complaint = f"covey: broker b1 cannot listen at {address}: Address already in use\n"
        assert capsys.readouterr().err == complaint
        asyncio.run(asyncio.wait_for(read_until_it_stops(broker, address, capsys), 120))
        line_with(broker, "stopped")
        assert broker.wait(100) == 0


async def read_until_it_stops(
    broker: subprocess.Popen[str], address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = ""

    async def until_shown(text: str) -> None:
        nonlocal shown
        while text not in shown:
            await asyncio.sleep(0.01)
            shown += capsys.readouterr().err

    reading = asyncio.create_task(
        _subscribe("Quote", "", address, [], SCHEMA, None, None, False, False, NO_ACCESS)
    )
    await until_shown("subscribed to Quote")
    broker.send_signal(signal.SIGTERM)
    await until_shown("connection lost: broker b1 is shutting down; reconnecting")
    reading.cancel()
    await asyncio.wait({reading})


@pytest.mark.thorough
def test_a_broker_that_waits_for_a_neighbour_serves_and_is_not_ready(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, addresses = overlay_file(tmp_path, [["b1", "b2"]])
    with started("broker", "--config", path, "--name", "b1") as broker:
        line_with(broker, f"serving at {addresses['b1']}")
        health = ["health", "--broker", addresses["b1"]]
        assert commands.run(*health) in (0, None)
        assert commands.run(*health, "--ready", "--timeout", "20") == 3
        waiting = capsys.readouterr().out.splitlines()
        assert waiting[-2] == "not ready"
        assert waiting[-1].startswith("  broker/b2: not connected, for ")
        broker.send_signal(signal.SIGHUP)
        line_with(broker, "the overlay file was reloaded; changed: nothing")
        with started("broker", "--config", path, "--name", "b2") as other:
            line_with(other, "broker/b1 connected")
            eventually(lambda: commands.run(*health, "--ready") in (0, None))


@pytest.mark.parametrize(
    ("readiness", "state", "status", "lines"),
    [
        ("NOT_SERVING", {"missing": []}, 0, ["ready"]),
        (
            "SERVING",
            {"missing": [{"what": "broker/b2", "why": "not connected", "seconds": 2.0}]},
            3,
            ["not ready", "  broker/b2: not connected, for 2 s"],
        ),
        ("SERVING", {}, 0, ["ready"]),
        (
            "NOT_SERVING",
            {},
            3,
            ["not ready", "  what is missing is in the broker's state: not readable here"],
        ),
    ],
)
def test_readiness_is_judged_by_one_reading_and_has_a_reason(
    readiness: str, state: dict[str, Any], status: int, lines: list[str],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    async def check(*_: object) -> list[str]:
        return ["SERVING", "SERVING", readiness]

    async def read(*_: object) -> dict[str, Any]:
        return state

    monkeypatch.setattr("covey.cli.inspect._check", check)
    monkeypatch.setattr("covey.cli.inspect._state", read)
    assert (commands.run("health", "--ready") or 0) == status
    assert capsys.readouterr().out.splitlines()[2:] == lines


# --- clients ------------------------------------------------------------------------------------------------


def test_refused_rows_of_a_file_are_named_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["x" * 70_000 if row % 1_024 in (5, 6) else "a" for row in range(8_000)]
    notes, broken = tmp_path / "notes.csv", tmp_path / "broken.csv"
    notes.write_text("\n".join(["text", *texts]) + "\n")
    broken.write_text("\n".join(["text,size", *["a" * 100 + ",1"] * 12_000, "b,no"]) + "\n")
    with live_brokers() as live:
        feed = ["publish", "--broker", live.brokers.address("b1"), "Note"]
        assert commands.run(*feed, notes, "--schema", "text:string", "--json") == 1
        done = capsys.readouterr()
        counts = json.loads(done.out)
        assert (counts["published"], counts["refused"]) == (8_000 - 16, 16)
        lines = done.err.splitlines()
        assert lines[0].startswith(f"covey: {notes}: row 6 of Note has 70")
        assert lines[1].startswith(f"covey: {notes}: row 1,030 of Note has 70")
        assert lines[5:] == [f"covey: {notes}: 3 more refusals"]
        assert commands.run(*feed, broken, "--schema", "text:string,size:int64") == 2
        cut = capsys.readouterr()
        assert (cut.out, cut.err.count("\n")) == ("", 1)
        assert cut.err.endswith(" events were published\n")


@pytest.mark.thorough
def test_gapless_updates_reach_the_publishers_broker_even_if_covered(tmp_path: Path) -> None:
    """A covered plain update sends nothing to other brokers; a gapless one does."""
    path, addresses = overlay_file(tmp_path, [["b1", "b2"]])

    def updates() -> int:
        return int(inspect(addresses["b2"])["core"]["totals"]["received"].get("Update", 0))

    options = ["Quote", "--schema", SCHEMA, "--broker"]
    reader = ["subscribe", *options, addresses["b1"]]
    below = [*reader, "price < $limit", "--set", "limit=10"]
    with started("up", path) as up:
        line_with(up, "ready")
        with started("publish", *options, addresses["b2"]), started(*reader) as everything:
            line_with(everything, "subscribed to Quote")
            until_published(addresses["b1"])
            before = updates()
            for flags, count in (([], 0), (["--gapless"], 1)):
                with started(*below, *flags) as typing:
                    line_with(typing, "subscribed to Quote")
                    typing.stdin.write("limit=20\n")
                    line_with(typing, "limit=20: applied in ")
                    assert updates() - before == count


@pytest.mark.thorough
def test_waiting_for_an_unreachable_broker_is_reported_and_ends_at_a_signal(tmp_path: Path) -> None:
    path, addresses = overlay_file(tmp_path, [["b1", "b2"]])
    options = ["Quote", "--schema", SCHEMA, "--broker", addresses["b1"]]
    with started("broker", "--config", path, "--name", "b1") as broker:
        line_with(broker, "serving at")
        with (
            started("publish", *options) as feed,
            started("subscribe", *options, "--name", "reader") as reader,
        ):
            line_with(feed, "b2, next to b1, is out of reach; still waiting")
            line_with(reader, "has not taken effect everywhere within 3 s: broker b2")
            with started("follow", "Quote", "price=1", "--broker", addresses["b1"]) as traced:
                line_with(traced, "b2, next to b1, is out of reach; still waiting")
                traced.send_signal(signal.SIGTERM)
                assert traced.wait(100) == 143
            feed.send_signal(signal.SIGINT)
            reader.send_signal(signal.SIGTERM)
            assert (feed.wait(100), reader.wait(100)) == (130, 143)


@pytest.mark.thorough
def test_updates_are_sent_while_earlier_ones_are_pending(tmp_path: Path) -> None:
    path, addresses = overlay_file(tmp_path, [["b1", "b2"]])

    with started("broker", "--config", path, "--name", "b1") as near:
        line_with(near, "serving at")
        with started("broker", "--config", path, "--name", "b2") as far:
            line_with(far, "broker/b1 connected")
            options = ["Quote", "--schema", SCHEMA, "--broker"]
            with (
                started("publish", *options, addresses["b2"]),
                started(
                    "subscribe", *options, addresses["b1"], "price < $limit", "--set", "limit=1"
                ) as reader,
            ):
                line_with(reader, "subscribed")
                until_published(addresses["b1"])
                far.send_signal(signal.SIGTERM)
                assert far.wait(100) == 0
                reader.stdin.write("limit=2\n")
                line_with(reader, "is out of reach; still waiting")
                reader.stdin.write("limit=3\nlimit\n")
                line_with(reader, "'limit': expected name=value")
                eventually(lambda: inspect(addresses["b1"])["core"]["totals"]["received"]["Update"] >= 2)
                with started("broker", "--config", path, "--name", "b2") as again:
                    line_with(again, "broker/b1 connected")
                    line_with(reader, "limit=2: applied in ")
                    line_with(reader, "limit=3: applied in ")
                    reader.send_signal(signal.SIGINT)
                    assert reader.wait(100) == 0


# --- mistakes and help --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (["inspect", "--broker", "127.0.0.1:1"], 1, "covey: no broker answers at 127.0.0.1:1\n"),
        (
            ["health", "--authority", "nowhere.pem"],
            2,
            "covey: --authority nowhere.pem: cannot be read: No such file or directory\n",
        ),
        (["inspect", "--token-file", "."], 2, "covey: --token-file .: cannot be read: Is a directory\n"),
        (["publish", "Quote", "nowhere.csv"], 2, "covey: nowhere.csv: no such file\n"),
        (["publish", "Quote", "--schema", "price"], 2, "covey: --schema has 'price': expected name:kind,"),
        (["publish", "Quote", "--schema", "price:text"], 2, "kind 'text', expected one of int64, float64"),
        (["broker"], 2, "covey: no overlay file: give --config, or COVEY_CONFIG"),
        (["broker", "--config", "nowhere.yaml", "--name", "b1"], 2, "covey: nowhere.yaml: cannot be read"),
        (["up", "nowhere.yaml"], 2, "covey: nowhere.yaml: cannot be read"),
        (["fly"], 2, "covey: No such command 'fly'. (see covey --help)\n"),
        (["subscribe"], 2, "covey: Missing argument 'TYPE'. (see covey subscribe --help)\n"),
        (["follow", "Quote"], 2, "covey: Invalid value: expected an event to publish, or --event with a"),
        (["follow", "Quote", "price=1", "--event", "feed:1"], 2, "expected an event to publish, or --event"),
        (["follow", "Quote", ""], 2, "covey: event '': expected at least one attribute, such as price=9.5\n"),
        (["follow", "Quote", "{}"], 2, "covey: event '{}': expected at least one attribute"),
        (["explain", " ", "buyer#1"], 2, "covey: event ' ': expected at least one attribute"),
        (
            ["follow", "Quote", "--event", "feed:" + 20 * "9"],
            2,
            "'feed:99999999999999999999': expected PUBLISHER",
        ),
        (
            ["explain", "price=1", "buyer#" + 20 * "9"],
            2,
            "'buyer#99999999999999999999': expected CLIENT#NUMBER",
        ),
        (["inspect", "--limit", str(1 << 32)], 2, "covey: Invalid value for '--limit'"),
        (["sim", "--trace", "foo://x"], 2, "covey: foo://x: Unrecognized filesystem type"),
        (["sim", "--report", "."], 2, "covey: Invalid value for --report: . is a folder, expected a file"),
        (["sim", "--master", "local[1]"], 2, "for --master: expected with --report, whose metrics Spark"),
        (["sim", "--report", "x.html", "--master", "x"], 2, "covey: master is 'x': expected local[CORES], "),
        (["metrics", "x", "--html", "/nowhere/x.html"], 2, "for --html: /nowhere is no folder"),
        (["metrics", "x", "--csv", "/nowhere/x.csv"], 2, "for --csv: /nowhere is no folder"),
        (["metrics", "x", "--out", __file__], 2, "is a file, expected a folder"),
        (["metrics", "x", "--plots", __file__], 2, "is a file, expected a folder"),
        (["subscribe", "Quote", "--count", "none"], 2, "covey: Invalid value for '--count'"),
        (["subscribe", "Quote", "--count", "0"], 2, "Invalid value for '--count': 0"),
        (["certs", "out", "--days", "0"], 2, "Invalid value for '--days': 0"),
        (["subscribe", "Quote", "--broker", "foo"], 2, "--broker 'foo': expected \"host:port\""),
        (["publish", "Quote", "--broker", "foo:0"], 2, "--broker 'foo:0': expected \"host:port\""),
        (["inspect", "--broker", "foo"], 2, "--broker 'foo': expected \"host:port\""),
        (["health", "--broker", "unix:"], 2, "--broker 'unix:': expected a path"),
        (["follow", "Quote", "price=1", "--broker", "foo"], 2, "--broker 'foo': expected"),
        (["explain", "price=1", "a#1", "--broker", "foo"], 2, "--broker 'foo': expected"),
        (["gateway", "--listen", "x"], 2, "--listen 'x': expected \"host:port\""),
        (
            ["gateway", "--listen", "0.0.0.0:8080"],
            2,
            "--listen '0.0.0.0:8080': tokens and events would cross",
        ),
        (["gateway", "--origin", "foo"], 2, "origin is 'foo': expected SCHEME://HOST[:PORT] in"),
        (["gateway", "--origin", "https://app.example/"], 2, "origin is 'https://app.example/': expected"),
        (["gateway", "--broker", "x"], 2, "--broker 'x': expected \"host:port\""),
        (["gateway", "--queue-bytes", "0"], 2, "queue_bytes is 0: expected an integer from 1 to"),
        (["gateway", "--max-view-keys", "0"], 2, "max_view_keys is 0: expected an integer from 1 to"),
        (["gateway", "--serve-key", "k"], 2, "--serve-certificate and --serve-key: expected both or none"),
        (["verify", "."], 2, "expected the directory of a broker"),
        (["bridge", "kafka", "x"], 2, "No such command 'kafka'"),
        (["bridge", "mqtt", "nowhere.yaml"], 2, "covey: nowhere.yaml: cannot be read: No such file"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str], status: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.run(*words) == status
    output = capsys.readouterr()
    assert output.out == ""
    assert complaint in output.err
    assert output.err.startswith("covey: ")
    assert output.err.count("\n") == 1


def test_every_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        assert ended.value.code == 0
        return capsys.readouterr().out

    overview = shown("--help")
    for name, module, attribute, _ in COMMANDS:
        assert f" {name} " in overview
        text = shown(name, "--help")
        if not isinstance(getattr(import_module(module), attribute), typer.Typer):  # a group's have their own
            assert f"covey {name}" in text.split("Usage")[1].split("\n", 1)[1]


def test_help_of_a_group_has_its_description_and_paragraphs_fill_the_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words, lines in (
        (["sim"], ["Without a subcommand, runs a scenario:", "Example: covey sim mine.yaml"]),
        (["demo"], ["publishes the daily quotes of five firms from 2000 to 2013 in the order of"]),
    ):
        commands.run(*words, "--help")
        text = capsys.readouterr().out
        assert all(line in text for line in lines)


REASON = "covey: broker localhost:1: UNAVAILABLE: no broker answers at localhost:1\n"


@pytest.mark.parametrize(
    ("words", "error"), [(["--help"], ""), (["health", "--broker", "localhost:1"], REASON)]
)
def test_help_and_health_load_nothing_heavy(words: list[str], error: str) -> None:
    """Containers run `health` every ten seconds."""
    script = (
        "import sys; from covey.cli.main import main\n"
        f"try: main({words})\n"
        "except SystemExit: pass\n"
        "heavy = {'grpc', 'numba', 'pyarrow', 'numpy'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, error)
