"""`covey gateway`: what it says, how it ends, and one line for each mistake."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from covey.cli.main import main
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


@pytest.mark.parametrize(
    ("options", "status", "why"),
    [
        (["--listen", "x"], 2, "--listen 'x': expected \"host:port\""),
        (["--listen", "0.0.0.0:8080"], 2, "--listen '0.0.0.0:8080': tokens and events would cross"),
        (["--origin", "foo"], 2, "origin is 'foo': expected SCHEME://HOST[:PORT] in"),
        (["--origin", "https://app.example/"], 2, "origin is 'https://app.example/': expected"),
        (["--broker", "x"], 2, "--broker 'x': expected \"host:port\""),
        (["--queue-bytes", "0"], 2, "queue_bytes is 0: expected an integer from 1 to"),
        (["--max-view-keys", "0"], 2, "max_view_keys is 0: expected an integer from 1 to"),
        (["--serve-key", "k"], 2, "--serve-certificate and --serve-key: expected both or none"),
        (["--listen", "TAKEN"], 1, "cannot listen: Address already in use"),
    ],
)
def test_mistakes(options: list[str], status: int, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = [word.replace("TAKEN", f"127.0.0.1:{taken.getsockname()[1]}") for word in options]
        with pytest.raises(SystemExit) as ended:
            main(["gateway", *words])
    assert ended.value.code == status
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert why in lines[0]


def test_without_its_packages(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for module in [name for name in sys.modules if name.startswith(("covey.gateway", "uvicorn"))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "starlette", None)
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    with pytest.raises(SystemExit) as ended:
        main(["gateway"])
    assert ended.value.code == 2
    assert "covey gateway needs starlette: `pip install '.[gateway]'`" in capsys.readouterr().err
