"""The tutorial and the how-tos: their commands and blocks run, unchanged but for ports.

Commands that need a Docker engine or systemd do not run; tests/test_compose.py and tests/test_deploy.py have
their files. docs/how-to-spark.md is in tests/spark/test_spark_page.py.
"""

import asyncio
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from subprocess import Popen
from textwrap import dedent
from time import monotonic, sleep

import pytest
import yaml
from chromium import chromium
from commands import COMMAND, line_with, run, started
from mosquitto import PROGRAM, needs_mosquitto
from running import eventually, free_port_of_init, free_ports

from covey.overlay.client import inspect_broker
from covey.overlay.node.config import load_overlay

ROOT = Path(__file__).resolve().parent.parent
PORTS = (1883, *range(7001, 7006), *range(9101, 9106), 7501, 8000, 8080)
PROGRAMS = {
    "covey": COMMAND,
    "mosquitto": [PROGRAM or "mosquitto"],
    "python": [sys.executable],
    "python3": [sys.executable],
}
_PATIENCE_S = 60

pytestmark = pytest.mark.xdist_group("guides")  # one overlay serves all


def terminal(command: str, folder: Path) -> AbstractContextManager[Popen[str]]:
    program, *words = shlex.split(command)
    return started(*words, program=PROGRAMS[program], cwd=folder)


def write(process: Popen[str], line: str) -> None:
    process.stdin.write(line + "\n")


class Pages:
    """The documents with other ports, and a folder with examples/five.yaml, whose brokers run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        (folder / "examples").mkdir()
        self.copy("examples/five.yaml")

    def copy(self, name: str) -> None:
        (self.folder / name).write_text(self.moved((ROOT / name).read_text()))

    def moved(self, text: str) -> str:
        ports = "|".join(map(str, PORTS))
        return re.sub(rf"\b(?:{ports})\b", lambda port: str(self._ports[int(port[0])]), text)

    def text(self, name: str) -> str:
        return self.moved((ROOT / "docs" / name).read_text())


def blocks(text: str, language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", text, re.MULTILINE | re.DOTALL)
    return [dedent(code) for _, code in found]


def commands(text: str) -> list[str]:
    return "".join(blocks(text, "sh")).splitlines()


def execute(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)


def answer(url: str) -> str:
    """A server's first answer."""
    deadline = monotonic() + _PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as reply:
                return str(reply.read().decode())
        except OSError:
            assert monotonic() < deadline, f"{url} does not answer"
            sleep(0.1)


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    pages = Pages(tmp_path_factory.mktemp("guides"))
    with terminal("covey up examples/five.yaml", pages.folder) as up:
        line_with(up, "ready: ")
        yield pages


def test_the_tutorial(five: Pages) -> None:
    text = five.text("tutorial.md")
    assert len(text.split()) <= 1_200
    lines = [line for line in commands(text) if line != ". .venv/bin/activate"]
    make, install, up, subscribe, publish, drive, look, gateway, serve = lines
    assert (make, up) == ("python3 -m venv .venv", "covey up examples/five.yaml")
    assert install == "pip install '.[gateway]'"
    (event,), (python,), (page,) = (blocks(text, language) for language in ("json", "python", "html"))
    (move,) = blocks(text, "text")
    with terminal(subscribe, five.folder) as reader, terminal(publish, five.folder) as writer:
        line_with(reader, "subscribed to Quote")
        write(writer, event.strip())
        assert "price=95.0" in line_with(reader, "Quote ")
        write(writer, event.strip().replace("95.0", "105.0"))
        write(reader, move.strip())
        line_with(reader, "applied in")
        write(writer, event.strip())
        write(writer, event.strip().replace("95.0", "85.0"))
        assert "price=85.0" in line_with(reader, "Quote ")
    (five.folder / "drive.py").write_text(python)
    (five.folder / "page").mkdir()
    (five.folder / "page" / "index.html").write_text(page)
    dark = "((x, y) => map.getContext('2d').getImageData(x, y, 180, 180).data.some((value) => value))"
    with ExitStack() as running:
        for command in (drive, gateway, serve):
            running.enter_context(terminal(command, five.folder))
        broker = look.split()[3]
        eventually(lambda: "Vehicle" in asyncio.run(inspect_broker(broker))[1]["core"]["types"])
        with terminal(look, five.folder) as looking:
            line_with(looking, "Vehicle id=v")
        (url,), (listen,) = re.findall(r"<(http://\S+)>", text), re.findall(r"--listen (\S+)", text)
        answer(f"http://{listen}/health")
        answer(url)
        tab = running.enter_context(chromium()).new_page()
        tab.call("Page.navigate", url=url)
        tab.until("document.readyState === 'complete'")
        tab.until(f"{dark}(110, 110)")
        tab.move_to(9 + 400, 9 + 400)
        tab.until(f"{dark}(310, 310) && !{dark}(110, 110)")
        usual = ("favicon", "404", "willReadFrequently")  # the last is of this test's own reading
        assert [each for each in tab.logged if not any(text in each for text in usual)] == []


def test_browser(five: Pages) -> None:
    text = five.text("how-to-browser.md")
    _, up, gateway = commands(text)
    assert up == "covey up examples/five.yaml"
    (page,) = blocks(text, "html")
    folder = five.folder / "quotes"
    folder.mkdir()
    (folder / "index.html").write_text(page)
    (url,) = set(re.findall(r"`(http://127\.0\.0\.1:\d+)`", text))
    (serve, publish) = re.findall(r"`((?:python3|covey publish) [^`]*)`", text)
    (event,) = re.findall(r"`(\{.*?\})`", text)
    with ExitStack() as running:
        running.enter_context(terminal(gateway, five.folder))
        running.enter_context(terminal(serve, folder))
        writer = running.enter_context(terminal(publish, five.folder))
        answer(re.findall(r'Client\("(.*?)"', page)[0] + "/health")
        answer(url)
        tab = running.enter_context(chromium()).new_page()
        tab.call("Page.navigate", url=url)
        tab.until("typeof document.getElementById('limit')?.oninput === 'function'")
        write(writer, event)
        tab.until("quotes.textContent.includes('IBM 9.5')")
        tab.value("limit.value = 90; limit.oninput({target: limit})")
        deadline = monotonic() + _PATIENCE_S
        while not tab.value("quotes.textContent.includes('IBM 50')"):
            assert monotonic() < deadline
            write(writer, event.replace("9.5", "50.0"))
            sleep(0.2)


@needs_mosquitto
def test_mqtt(five: Pages) -> None:
    pytest.importorskip("aiomqtt")
    text = five.text("how-to-mqtt.md")
    assert len(text.split()) <= 400
    assert len((ROOT / "docs" / "bridges.md").read_text().split()) <= 500
    assert len((ROOT / "examples" / "sensors.py").read_text().splitlines()) < 40
    for name in ("sensors.yaml", "sensors.py"):
        five.copy(f"examples/{name}")
    (mapping,), (code,) = blocks(text, "yaml"), blocks(text, "python")
    assert yaml.safe_load(mapping) == yaml.safe_load((five.folder / "examples" / "sensors.yaml").read_text())
    install, serve, up, connect = commands(text)
    assert (install, up) == ("pip install '.[mqtt]'", "covey up examples/five.yaml")
    with terminal(serve, five.folder) as server:
        line_with(server, "running")
        with terminal(connect, five.folder) as bridge:
            line_with(bridge, "bridge between MQTT and")
            done = execute("-c", code, folder=five.folder)
            fleet = execute("examples/sensors.py", folder=five.folder)
        assert bridge.returncode == 0
    assert done.stdout == '{"celsius":31.5}\n', done.stderr
    alarms = [
        'alarms/oven {"sensor":"oven","celsius":85.0}',
        'alarms/press {"sensor":"press","celsius":90.0}',
    ]
    assert fleet.stdout.splitlines() == alarms, fleet.stderr


def test_pandas(five: Pages) -> None:
    pytest.importorskip("pandas")
    (code,) = blocks(five.text("how-to-pandas.md"), "python")
    done = execute("-c", code, folder=five.folder)
    assert "IBM" in done.stdout, done.stderr
    assert "HP" not in done.stdout


def test_monitoring(five: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    text = five.text("how-to-monitor.md")
    (metrics,) = blocks(text, "yaml")
    shown = load_overlay(five.folder / "examples" / "five.yaml", {}).metrics
    assert yaml.safe_load(metrics)["metrics"].items() <= shown.items()
    subscribing = five.moved("covey subscribe --broker localhost:7001 --name trader-1 Quote 'price < 10'")
    publishing = five.moved("covey publish --broker localhost:7005 Quote")
    with terminal(subscribing, five.folder) as reader, terminal(publishing, five.folder) as writer:
        line_with(reader, "subscribed to Quote")
        write(writer, '{"firm": "IBM", "price": 9.5}')
        line_with(reader, "price=9.5")
        for line in commands(text):
            program, *words = shlex.split(line)
            if program == "curl":
                assert "covey_ready" in answer(words[-1])
            else:
                assert run(*words) == 0, line
    printed = capsys.readouterr().out
    assert "SERVING" in printed
    assert "trader-1" in printed


def test_secure(five: Pages, tmp_path: Path) -> None:
    pytest.importorskip("jwt")
    text = five.text("how-to-secure.md")
    ports = sorted(set(re.findall(r"localhost:(\d+)", text)))
    for port, other in zip(ports, free_ports(len(ports)), strict=True):  # those of five.yaml are in use
        text = text.replace(port, str(other))
    (file,), (code,) = blocks(text, "yaml"), blocks(text, "python")
    (tmp_path / "overlay.yaml").write_text(file)
    *keys, up = commands(text)
    for line in keys:
        command = line.replace("covey ", f"{shlex.join(PROGRAMS['covey'])} ", 1)
        subprocess.run(command, shell=True, cwd=tmp_path, check=True, timeout=200)
    with terminal(up, tmp_path) as overlay:
        line_with(overlay, "ready: ")
        done = execute("-c", code, folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "500.0\n"), done.stderr


def simulated(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[list[str]]:
    """The words of the page's commands, in a folder with its scenario."""
    text = (ROOT / "docs" / "how-to-simulate.md").read_text()
    (scenario,) = blocks(text, "yaml")
    (folder / "mine.yaml").write_text(scenario)
    monkeypatch.chdir(folder)
    return [shlex.split(line)[1:] for line in commands(text)]


def test_simulating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [each for each in simulated(monkeypatch, tmp_path) if "--real" not in each]
    assert len(words) == 5
    assert [run(*each) for each in words] == [0] * 5
    assert (tmp_path / "run" / "manifest.json").exists()


@pytest.mark.thorough  # a process for each broker
def test_simulating_over_real_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (words,) = [each for each in simulated(monkeypatch, tmp_path) if "--real" in each]
    assert run(*words) == 0


def test_beginning_with_an_overlay_of_one_s_own(tmp_path: Path) -> None:
    """The first block of docs/operations.md; its questions are answered by a broker at a free port, with TLS,
    tokens and a durable type."""
    page = (ROOT / "docs" / "operations.md").read_text()
    init, doctor, up = [line.partition("  ")[0] for line in blocks(page, "sh")[0].splitlines()]
    port = free_port_of_init()
    command = [*PROGRAMS["covey"], *shlex.split(init)[1:]]
    answers = f"\n1\n\n{port}\ny\ny\nQuote\n"
    done = subprocess.run(command, cwd=tmp_path, input=answers, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    checked = execute("-m", "covey.cli.main", *shlex.split(doctor)[1:], folder=tmp_path)
    assert checked.stdout.endswith("nothing is wrong\n"), checked.stdout + checked.stderr
    with terminal(up, tmp_path) as overlay:
        line_with(overlay, "ready: b1 at ")


@pytest.mark.thorough  # a process for each broker
def test_sizing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With the scenario of docs/how-to-simulate.md, on three brokers."""
    simulated(monkeypatch, tmp_path)
    page = (ROOT / "docs" / "how-to-size.md").read_text()
    assert len(page.split()) <= 400
    (line,) = [each for each in commands(page) if each.startswith("covey plan")]
    assert run("init", "overlay.yaml", "--yes") in (0, None)
    capsys.readouterr()
    assert run(*shlex.split(line)[1:]) in (0, None)
    printed = capsys.readouterr().out
    assert [printed.count(f" {kind} ") for kind in ("predicted", "measured")] == [3, 3]
