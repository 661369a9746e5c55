"""`covey certs`, and commands that connect over TLS."""

import stat
from pathlib import Path

import commands
import pytest
from running import free_ports

from covey.overlay.core.access.identity import broker_uri
from covey.overlay.node.config import check_certificate, load_overlay
from covey.overlay.node.overlay import TlsFiles
from covey.overlay.transport.tls import Tls, certified


def overlay_file(folder: Path, *ports: int) -> Path:
    brokers = "\n".join(f'  b{i}: {{address: "127.0.0.1:{port}"}}' for i, port in enumerate(ports, 1))
    file = folder / "overlay.yaml"
    file.write_text(
        f"overlay: a b\nbrokers:\n{brokers}\nlinks: [[b1, b2]]\n"
        'tls: {authority: certs/authority.pem, certificate: "certs/{name}.pem", key: "certs/{name}.key"}\n'
    )
    return file


def test_certificates_of_an_overlay_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, certs = overlay_file(tmp_path, 1, 2), tmp_path / "certs"
    for _ in range(2):  # a second call renews them
        assert commands.run("certs", certs, "--config", file, "--clients", "alice,c/d") in (0, None)
        overlay = load_overlay(file, {})
        for broker in ("b1", "b2"):
            check_certificate(overlay, broker)
        for client in ("alice", "c%2Fd"):
            path = certs / "clients" / client
            tls = Tls(certs / "authority.pem", path.with_suffix(".pem"), path.with_suffix(".key"))
            assert certified(tls).client("a b") == client.replace("%2F", "/")
            assert certified(tls).client("a") is None
    assert capsys.readouterr().out.splitlines()[-1] == f"{certs}/clients/c%2Fd.pem"
    for key in certs.rglob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_names_without_an_overlay_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--brokers", "b1", "--overlay", "o", "--hosts", "h1,10.0.0.7"]
    assert commands.run("certs", tmp_path, *words) in (0, None)
    assert certified(Tls(*(tmp_path / f for f in ("authority.pem", "b1.pem", "b1.key")))).uris == {
        "covey://o/broker/b1"
    }
    for words, why in (
        (["--brokers", "b1"], "--brokers without --overlay"),
        ([], "expected --config with an overlay file, or --brokers"),
        (["--brokers", "b1,", "--overlay", "o"], "expected names separated by commas"),
        (["--brokers", "authority", "--overlay", "o"], "broker 'authority': expected another name"),
    ):
        assert commands.run("certs", tmp_path, *words) == 2
        assert why in capsys.readouterr().err
    (tmp_path / "authority.key").write_text("x")
    assert commands.run("certs", tmp_path, "--brokers", "b1", "--overlay", "o") == 2
    assert "authority.pem and authority.key are no such pair" in capsys.readouterr().err
    (tmp_path / "authority.pem").unlink()
    assert commands.run("certs", tmp_path, "--brokers", "b1", "--overlay", "o") == 2
    assert (tmp_path / "authority.key").read_text() == "x"


def test_the_name_of_a_broker_leads_into_no_other_folder(tmp_path: Path) -> None:
    certs = tmp_path / "certs"
    files = TlsFiles(str(certs / "authority.pem"), str(certs / "{name}.pem"), str(certs / "{name}.key"))
    names = ["../b1", "a/b", ".."]
    assert commands.run("certs", certs, "--brokers", ",".join(names), "--overlay", "o") in (0, None)
    assert list(tmp_path.iterdir()) == [certs]
    for name in names:
        assert certified(files.of(name)).uris == {broker_uri("o", name)}


def test_a_broker_and_commands_over_tls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = free_ports(2)
    file, certs = overlay_file(tmp_path, *ports), tmp_path / "certs"
    assert commands.run("broker", "--config", file, "--name", "b1") == 2
    assert capsys.readouterr().err.startswith(f"covey: tls: authority {certs}/authority.pem cannot be read")
    commands.run("certs", certs, "--config", file)
    with commands.started("broker", "--config", str(file), "--name", "b2") as broker:
        commands.line_with(broker, "retrying")
        health = ["health", "--ready", "--timeout", 60, "--broker", f"127.0.0.1:{ports[1]}"]
        assert commands.run(*health) == 1
        assert "it expects TLS: give its authority" in capsys.readouterr().err
        monkeypatch.setenv("COVEY_AUTHORITY", str(certs / "authority.pem"))
        assert commands.run(*health) == 3
        missing = f"broker/b1: not connected: no broker answers at 127.0.0.1:{ports[0]}, for"
        assert missing in capsys.readouterr().out
