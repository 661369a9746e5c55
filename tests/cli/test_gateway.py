"""`covey gateway`: its output and its end; the packages that it and `covey bridge` need."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from commands import run

from covey.sim.experiments.local_overlay import free_addresses


def test_it_serves_until_it_is_stopped() -> None:
    (address,) = free_addresses(1)
    command = [sys.executable, "-m", "covey.cli.main", "gateway", "--broker", "127.0.0.1:1"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*command, "--listen", address], **pipes, text=True) as process:
        try:
            assert process.stdout.readline() == f"gateway to 127.0.0.1:1 at http://{address}\n"
            assert process.stderr.readline().startswith("warning: no broker answers at 127.0.0.1:1 (")
            with urllib.request.urlopen(f"http://{address}/health", timeout=60) as answer:
                assert json.load(answer)["sessions"] == 0
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_an_address_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run("gateway", "--listen", f"127.0.0.1:{taken.getsockname()[1]}") == 1
    assert "cannot listen: Address already in use" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "modules", "needed", "extra"),
    [
        (["gateway"], ("covey.gateway", "uvicorn"), "starlette", "gateway"),
        (["bridge", "mqtt", "mapping.yaml"], ("covey.bridge", "aiomqtt"), "aiomqtt", "mqtt"),
    ],
)
def test_without_its_packages(
    words: list[str], modules: tuple[str, ...], needed: str, extra: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for module in [name for name in sys.modules if name.startswith(modules)]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, needed, None)
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    assert run(*words) == 2
    command = "gateway" if extra == "gateway" else "bridge mqtt"
    assert f"covey {command} needs {needed}: `pip install 'covey[{extra}]'`" in capsys.readouterr().err
