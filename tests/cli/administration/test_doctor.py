"""`covey doctor`: each missing or wrong thing is one sentence, and only wrong ones count."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import tomllib
from collections import namedtuple
from functools import partial
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import commands
import pytest
from made_certificates import issue
from running import Brokers, free_ports, on_a_loop

from covey.cli.administration import machine_checks, overlay_checks
from covey.cli.administration.certificates import Authority
from covey.cli.administration.machine_checks import NEEDED_FOR, Finding, State, machine_findings
from covey.cli.administration.overlay_checks import file_system, overlay_findings
from covey.overlay.client import unary
from covey.overlay.core.access.identity import broker_uri

ROOT = Path(__file__).resolve().parent.parent.parent.parent
TLS = 'tls: {authority: certs/authority.pem, certificate: "certs/{name}.pem", key: "certs/{name}.key"}\n'


def overlay_file(folder: Path, *addresses: str, more: str = "") -> Path:
    brokers = "".join(f'  b{at}: {{address: "{address}"}}\n' for at, address in enumerate(addresses, 1))
    links = "".join(f"  - [b1, b{at}]\n" for at in range(2, len(addresses) + 1))
    file = folder / "overlay.yaml"
    file.write_text(f"overlay: test\nbrokers:\n{brokers}{'links:' if links else ''}\n{links}{more}")
    return file


def found(file: Path, state: State = State.WRONG) -> list[tuple[str, str]]:
    findings = list(overlay_findings(file))
    assert all(each.text and "\n" not in each.text for each in findings)
    assert all(each.page for each in findings if each.state is not State.OK)
    return [(each.subject, each.text) for each in findings if each.state is state]


def local(count: int) -> list[str]:
    return [f"127.0.0.1:{port}" for port in free_ports(count)]


# --- the machine --------------------------------------------------------------------------------------------


def by_subject() -> dict[str, Finding]:
    return {each.subject: each for each in machine_findings()}


def test_every_extra_has_what_needs_it() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert NEEDED_FOR.keys() == extras.keys()
    machine = by_subject()
    assert {f"covey[{extra}]" for extra in extras} <= machine.keys()
    assert machine["packages"].state is machine["Python"].state is State.OK


def test_missing_packages_are_named_with_what_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = machine_checks.version

    def version(name: str) -> str:
        if name in ("shapely", "rich"):
            raise PackageNotFoundError(name)
        return "0.1" if name == "uvicorn" else installed(name)

    monkeypatch.setattr(machine_checks, "version", version)
    machine = by_subject()
    assert machine["packages"].state is State.WRONG
    assert machine["packages"].text == "missing or too old: rich; pip install covey"
    operators, gateway = machine["covey[operators]"], machine["covey[gateway]"]
    assert operators.state is gateway.state is State.NOTE
    text = "for filters that call inside or matches: shapely; pip install 'covey[operators]'"
    assert operators.text == text
    assert "uvicorn 0.1 (expected >=0.40)" in gateway.text


def test_what_a_small_machine_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks, "descriptor_limit", lambda: 1_024)
    monkeypatch.setattr(machine_checks, "available_bytes", lambda: 64 << 20)
    monkeypatch.setattr(machine_checks, "kernels_cached", lambda: False)
    monkeypatch.setattr(machine_checks, "java", lambda: None)
    machine = by_subject()
    assert "1,024, so a broker takes 924 connections at most, not 10,000" in machine["open files"].text
    assert machine["memory"].state is State.WRONG
    assert "covey compile" in machine["kernels"].text
    assert "Java 17" in machine["Java"].text


# --- an overlay file ----------------------------------------------------------------------------------------


def test_a_file_that_can_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = f'metrics: {{b1: "{local(1)[0]}"}}\n'
    file = overlay_file(tmp_path, *local(2), f"unix:{tmp_path}/b3", more=metrics)
    assert commands.run("doctor", file) == 0
    printed = capsys.readouterr().out
    assert "brokers, linked as a tree: 3" in printed
    assert printed.endswith("nothing is wrong\n")
    assert commands.run("doctor", file, "--json") == 0
    printed_json = json.loads(capsys.readouterr().out)
    assert list(printed_json) == ["this machine", str(file)]
    states = [each["state"] for each in printed_json[str(file)] if each["subject"] != "cores"]
    assert states == ["ok"] * 5


def test_a_wrong_file_is_one_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = overlay_file(tmp_path, *local(3), more="  - [b3, b2]\n")
    ((subject, text),) = found(file)
    assert (subject, "closes a cycle, b3 - b1 - b2 - b3: expected a tree" in text) == ("file", True)
    assert commands.run("doctor", file) == 1
    assert capsys.readouterr().out.endswith("wrong: 1\n")
    ((subject, text),) = found(tmp_path / "nowhere.yaml")
    assert (subject, "cannot be read" in text) == ("file", True)


def test_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unary, "call_broker", partial(unary.call_broker, within_s=0.1))
    look_up = socket.getaddrinfo

    def getaddrinfo(host: str, *rest: object, **named: object) -> object:
        if host == "nobody.example":
            raise socket.gaierror(-2, "Name or service not known")
        return look_up("192.0.2.1" if host == "elsewhere.example" else host, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with socket.create_server(("127.0.0.1", 0)) as other:
        used = f"127.0.0.1:{other.getsockname()[1]}"
        file = overlay_file(
            tmp_path, used, "nobody.example:7001", "elsewhere.example:7001", "unix:/nowhere/b4"
        )
        assert dict(found(file)) == {
            "b1: address": f"{used} is in use by another program: stop that, or choose another address",
            "b2: address": "nobody.example:7001: the host nobody.example does not resolve (Name or service "
            "not known): expected one of DNS, or of /etc/hosts",
            "b4: address": "unix:/nowhere/b4: the folder /nowhere cannot be written: make it, or choose "
            "another path",
        }
        assert "elsewhere.example:7001 is of another machine" in dict(found(file, State.OK))["b3: address"]
        file = overlay_file(tmp_path, *local(1), more=f'metrics: {{b1: "{used}"}}\n')
        assert found(file) == [
            ("b1: metrics", f"{used} is in use by another program: expected a free address of this machine")
        ]
    file = overlay_file(tmp_path, f"0.0.0.0:{free_ports(1)[0]}")
    ((_, text),) = found(file)
    assert "beyond this machine, in plain text" in text


def test_listeners_of_one_host_have_addresses_of_their_own(tmp_path: Path) -> None:
    first, second, metrics = local(3)
    port = second.rpartition(":")[2]
    assert found(overlay_file(tmp_path, first, second, more=f'metrics: "{metrics}"\n')) == [
        ("b2: metrics", f"{metrics} is wanted by b1: metrics on the same host, too: choose another address")
    ]
    file = overlay_file(tmp_path, first, second, more=f'metrics: {{b1: "0.0.0.0:{port}"}}\n')
    assert [subject for subject, _ in found(file)] == ["b2: address"]
    more = f'insecure: true\nmetrics: "{metrics}"\n'
    far = overlay_file(tmp_path, "192.0.2.1:7001", "192.0.2.2:7001", more=more)
    assert found(far) == []


@on_a_loop
async def test_an_address_that_the_broker_itself_serves_is_right() -> None:
    import tempfile

    async with Brokers([("b1", "b2")]) as brokers:
        with tempfile.TemporaryDirectory() as folder:
            addresses = [brokers.address("b1"), brokers.address("b2")]
            file = overlay_file(Path(folder), *addresses)
            assert await asyncio.to_thread(found, file) == []
            file = overlay_file(Path(folder), *reversed(addresses))
            wrong = dict(await asyncio.to_thread(found, file))
            assert "is in use by broker b2 of overlay test: stop that" in wrong["b1: address"]


def test_certificates(tmp_path: Path) -> None:
    file = overlay_file(tmp_path, *local(2), more=TLS)
    certs = tmp_path / "certs"
    certs.mkdir()
    assert [subject for subject, _ in found(file)] == ["b1: certificate", "b2: certificate"]
    authority = Authority()
    authority.write(certs)
    for broker in ("b1", "b2"):
        issue(certs / broker, authority, broker=broker)
    assert found(file) == []
    assert ("b1: certificate", "valid for 364 days") in found(file, State.OK)
    issue(certs / "b1", authority, broker="b1", valid=machine_days(7))
    authority.issue(certs / "b2", uri=broker_uri("test", "b2"), hosts=["example.org"])
    assert ("b1: certificate", "it ends in 6 days: renew it; brokers read it at the next handshake") in found(
        file, State.NOTE
    )
    ((subject, text),) = found(file)
    assert subject == "b2: certificate"
    assert "does not name 127.0.0.1, so clients refuse it" in text
    issue(certs / "b1", authority, broker="b2")
    issue(certs / "b2", authority, broker="b2", valid=machine_days(-1))
    texts = [text for _, text in found(file)]
    assert "does not name broker b1" in texts[0]
    assert "has expired" in texts[1]


def machine_days(count: int) -> object:
    from datetime import timedelta

    return timedelta(days=count)


def test_keys(tmp_path: Path) -> None:
    more = "clients: {tokens: {key: tokens.key}}\ntickets: tickets.key\n"
    file = overlay_file(tmp_path, *local(1), more=more + "operators: {modules: [nothing.of_that_name]}\n")
    wrong = dict(found(file))
    assert wrong.keys() == {"tokens", "tickets", "operators"}
    assert "tickets.key cannot be read" in wrong["tickets"]


def test_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    durable = "durable: {Quote: {retain_bytes: 100000}, Order: {retain_bytes: 100000}}\n"
    address = local(1)[0]
    ((subject, text),) = found(overlay_file(tmp_path, address, more=durable))
    assert (subject, "expected a directory" in text) == ("storage", True)
    file = overlay_file(tmp_path, address, more=f"{durable}storage: storage\n")
    monkeypatch.setattr(overlay_checks, "file_system", lambda folder: "ext4")
    assert found(file) == []
    assert not list(tmp_path.glob(".covey*"))
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(1 << 40, 0, 1 << 20))
    ((subject, text),) = found(file)
    assert (subject, "1 MiB are free: expected 128 MiB for the first" in text) == ("storage", True)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(1 << 40, 0, 1 << 30))
    for kind, why in (("tmpfs", "in memory"), ("nfs4", "syncs and locks")):
        monkeypatch.setattr(overlay_checks, "file_system", lambda folder, kind=kind: kind)
        assert any(why in text for _, text in found(file, State.NOTE))
    large = overlay_file(tmp_path, address, more="durable: {Quote: {}, Order: {}}\nstorage: storage\n")
    assert any("retention permits 2,048 MiB" in text for _, text in found(large, State.NOTE))
    stored = tmp_path / "storage" / "b1" / "log-Quote"
    stored.mkdir(parents=True)
    with (stored / "segment").open("wb") as segment:
        segment.truncate(1_000 << 20)
    assert any("retention permits 1,048 MiB more" in text for _, text in found(large, State.NOTE))
    (tmp_path / "storage" / "b2").mkdir()
    both = overlay_file(tmp_path, *local(2), more="durable: {Quote: {}}\nstorage: storage\n")
    texts = [text for subject, text in found(both, State.NOTE) if subject == "storage"]
    shared = (
        f"{tmp_path / 'storage'}: 1,024 MiB are free; retention permits 1,048 MiB more: lower retain_bytes"
    )
    assert shared in texts
    shutil.rmtree(tmp_path / "storage")
    (tmp_path / "storage").write_text("a file")
    ((subject, text),) = found(file)
    assert (subject, "is not a directory" in text) == ("storage", True)


def test_the_kind_of_a_file_system() -> None:
    if Path("/proc/self/mountinfo").exists():
        assert file_system(Path("/proc")) == "proc"
        assert file_system(Path("/proc/self")) == "proc"


def test_more_brokers_than_the_machine_has_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay_checks, "available_bytes", lambda: 200 << 20)
    monkeypatch.setattr(overlay_checks, "usable_cores", lambda: 1)
    file = overlay_file(tmp_path, *local(2))
    assert found(file) == [("memory", "200 MiB are free, and 2 brokers take 250 MiB idle: run fewer here")]
    assert any(subject == "cores" for subject, _ in found(file, State.NOTE))
