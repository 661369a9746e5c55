"""Certificates of an overlay "test" with brokers b1 and b2, made once per session of tests."""

import tempfile
from datetime import timedelta
from functools import cache
from pathlib import Path

from covey.cli.administration.certificates import Authority
from covey.overlay.core.access.identity import broker_uri, client_uri
from covey.overlay.node.overlay import TlsFiles
from covey.overlay.transport.tls import Tls

HOSTS = ("127.0.0.1", "localhost")
EXPIRED = timedelta(hours=-1)


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="covey-certificates-"))
    for name in ("authority", "other"):
        authority = Authority()
        (folder / name).mkdir()
        authority.write(folder / name)
        for broker in ("b1", "b2", "b9"):
            issue(folder / name / broker, authority, broker=broker)
        for client in ("alice", "bob"):
            authority.issue(folder / name / client, uri=client_uri("test", client))
        authority.issue(folder / name / "expired", uri=broker_uri("test", "b2"), hosts=HOSTS, valid=EXPIRED)
        authority.issue(folder / name / "elsewhere", uri=broker_uri("test", "b2"), hosts=["example.org"])
    return folder


def issue(path: Path, authority: Authority, *, broker: str, valid: timedelta | None = None) -> None:
    authority.issue(path, uri=broker_uri("test", broker), hosts=HOSTS, valid=valid)


def tls_of(name: str | None = None, *, authority: str = "authority", trusts: str = "authority") -> Tls:
    """The files of this name, signed by one authority, for an owner who trusts the same or another."""
    folder = _folder()
    trusted = folder / trusts / "authority.pem"
    if name is None:
        return Tls(trusted)
    return Tls(trusted, folder / authority / f"{name}.pem", folder / authority / f"{name}.key")


def overlay_files() -> TlsFiles:
    folder = _folder() / "authority"
    return TlsFiles(str(folder / "authority.pem"), str(folder / "{name}.pem"), str(folder / "{name}.key"))


def files_as(name: str, *, trusts: str = "authority") -> TlsFiles:
    """The files of this name for every broker."""
    tls = tls_of(name, trusts=trusts)
    return TlsFiles(str(tls.authority), str(tls.certificate), str(tls.key))
