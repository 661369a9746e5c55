"""`covey bridge`: one line for each mistake, and the exit status."""

from pathlib import Path

import pytest
from commands import run
from running import free_ports

MAPPING = """
name: plant
mqtt: {address: "localhost:1"}
to_covey: [{topic: a, event_type: Reading}]
"""


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mapping.yaml"
    file.write_text(MAPPING.replace("a,", "'#/a',"))
    assert run("bridge", "mqtt", file) == 2
    assert "to_covey[0].topic is '#/a': expected a topic filter of MQTT" in capsys.readouterr().err
    file.write_text(MAPPING)
    assert run("bridge", "mqtt", file, "--broker", "x") == 2
    assert "--broker 'x': expected \"host:port\"" in capsys.readouterr().err


def test_without_a_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.bridge.mqtt.CONNECT_S", 0.2)
    file = tmp_path / "mapping.yaml"
    file.write_text(MAPPING)
    assert run("bridge", "mqtt", file, "--broker", f"localhost:{free_ports(1)[0]}") == 1
    assert "covey: no broker answers at localhost:" in capsys.readouterr().err.splitlines()[-1]
