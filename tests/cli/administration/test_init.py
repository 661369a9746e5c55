"""`covey init`: its file runs unchanged, and replaces nothing."""

from __future__ import annotations

import io
import stat
import sys
from pathlib import Path

import commands
import pytest

from covey.cli.administration.first_overlay import Wanted, overlay_text
from covey.overlay.node.config import (
    check_certificate,
    check_storage,
    check_tokens,
    load_overlay,
    parse_overlay,
)


def test_defaults_make_three_brokers_of_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shop" / "overlay.yaml"
    file.parent.mkdir()
    assert commands.run("init", file, "--yes") in (0, None)
    overlay = load_overlay(file, {})
    assert (overlay.name, list(overlay.brokers)) == ("shop", ["b1", "b2", "b3"])
    assert overlay.links == (("b1", "b2"), ("b1", "b3"))
    assert [each.address for each in overlay.brokers.values()] == [f"localhost:700{at}" for at in (1, 2, 3)]
    assert overlay.metrics["b3"] == "127.0.0.1:9103"
    assert [each.name for each in overlay.event_types] == ["Quote"]
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"next: covey doctor {file}, then covey up {file}"
    before = file.read_text()
    assert commands.run("init", file, "--yes") == 2
    assert capsys.readouterr().err == f"covey: {file} is there already: expected the name of a new file\n"
    assert file.read_text() == before


def test_questions_have_defaults_and_options_answer_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n2\n\n7201\ny\ny\nQuote, Order\n"))
    file = tmp_path / "overlay.yaml"
    assert commands.run("init", file) in (0, None)
    asked = capsys.readouterr().out
    assert "How many brokers [3]: " in asked
    overlay = load_overlay(file, {})
    assert list(overlay.durable) == ["Quote", "Order"]
    for check in (check_tokens, check_storage):
        check(overlay)
    for broker in overlay.brokers:
        check_certificate(overlay, broker)
    assert stat.S_IMODE((tmp_path / "tokens.key").stat().st_mode) == 0o600
    key = (tmp_path / "tokens.key").read_text()
    options = ["--name", "a", "--brokers", 1, "--hosts", "127.0.0.1", "--port", 7301, "--no-tls", "--tokens"]
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert commands.run("init", tmp_path / "other.yaml", *options, "--durable", "") in (0, None)
    assert (tmp_path / "tokens.key").read_text() == key
    assert load_overlay(tmp_path / "other.yaml", {}).tls is None


def test_identities_of_an_overlay_in_the_same_folder_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--tls", "--brokers", 1, "--yes"]
    assert commands.run("init", tmp_path / "overlay.yaml", *options) in (0, None)
    certs = tmp_path / "certs"
    before = {path: path.read_bytes() for path in certs.glob("*.*")}
    other = tmp_path / "other.yaml"
    capsys.readouterr()
    assert commands.run("init", other, *options, "--name", "x") == 2
    error = capsys.readouterr().err
    assert error == f"covey: {certs / 'b1.pem'} is there already: expected a folder without it\n"
    assert before == {path: path.read_bytes() for path in certs.glob("*.*")}
    assert not other.exists()


def test_brokers_of_several_machines() -> None:
    wanted = Wanted("far", 5, ["h1", "10.0.0.7", "2001:db8::1"], 7001, False, False, ())
    overlay = parse_overlay(overlay_text(wanted), "far.yaml", {})
    addresses = [broker.address for broker in overlay.brokers.values()]
    assert addresses == ["h1:7001", "10.0.0.7:7001", "[2001:db8::1]:7001", "h1:7002", "10.0.0.7:7002"]
    assert [overlay.brokers[name].listen for name in ("b3", "b4")] == ["[::]:7001", "0.0.0.0:7002"]
    assert [overlay.metrics[name] for name in ("b1", "b4")] == ["127.0.0.1:9101", "127.0.0.1:9102"]
    assert overlay.insecure
    assert not wanted.local


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--brokers", "0"], "--brokers 0: expected 1 to 1,000"),
        (["--hosts", "a,"], "--hosts: expected names or addresses of hosts"),
        (["--hosts", "a b/c"], 'expected "host:port"'),
        (["--port", "80"], "'--port': 80"),
        (["--name", ""], "overlay is '': expected"),
    ],
)
def test_a_wrong_answer_is_one_sentence(
    options: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.run("init", tmp_path / "overlay.yaml", *options, "--yes") == 2
    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "nowhere" / "overlay.yaml"
    assert commands.run("init", file, "--yes") == 2
    assert capsys.readouterr().err == f"covey: {file}: cannot be written: No such file or directory\n"
