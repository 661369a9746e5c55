"""The overlay file that `covey init` writes, with its keys and certificates. The file is valid, and nothing
is replaced: an existing token key or authority is used again."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from covey.matcher.errors import InputError
from covey.overlay.node.authentication import LEAST_BYTES
from covey.overlay.node.config import parse_overlay
from covey.overlay.transport.address import TcpAddress, is_local

CERTIFICATES, TOKENS_KEY, STORAGE = "certs", "tokens.key", "storage"
METRICS_ABOVE = 2_100
"""From a broker's port to the port of its metrics: 9101 for 7001."""
_MOST_BROKERS = 1_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the overlay consists of. Brokers take turns on `hosts`, at ports from `port` on; `durable` are
    event types."""

    name: str
    brokers: int
    hosts: Sequence[str]
    port: int
    tls: bool
    tokens: bool
    durable: Sequence[str]

    def __post_init__(self) -> None:
        if not 1 <= self.brokers <= _MOST_BROKERS:
            raise InputError(f"--brokers {self.brokers}: expected 1 to {_MOST_BROKERS:,}")
        if not self.hosts or not all(self.hosts):
            raise InputError("--hosts: expected names or addresses of hosts, separated by commas")
        for option, wanted, module in (("--tls", self.tls, "cryptography"), ("--tokens", self.tokens, "jwt")):
            if wanted and find_spec(module) is None:
                raise InputError(f"{option} needs the extra security: pip install 'covey[security]'")

    @property
    def local(self) -> bool:
        return all(is_local(TcpAddress(host, self.port)) for host in self.hosts)

    @property
    def names(self) -> list[str]:
        return [f"b{number}" for number in range(1, self.brokers + 1)]


def write_overlay(path: Path, wanted: Wanted) -> list[Path]:
    """Write the file and what it names; returns all paths written. `InputError` for a file that exists or
    cannot be written; `ConfigError` where the overlay would not be valid."""
    text = overlay_text(wanted)
    overlay = parse_overlay(text, path, {})
    for file in (f"{name}{suffix}" for name in overlay.brokers for suffix in (".pem", ".key")):
        identity = path.parent / CERTIFICATES / file
        if wanted.tls and identity.exists():
            raise InputError(f"{identity} is there already: expected a folder without it")
    written = [path]
    try:
        if wanted.tokens and not (path.parent / TOKENS_KEY).exists():
            written.append(path.parent / TOKENS_KEY)
            with open(os.open(written[-1], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as key:
                key.write(secrets.token_hex(LEAST_BYTES) + "\n")
        if wanted.tls:
            from covey.cli.administration.certificates import make_certificates

            hosts = {name: [host] for name, host in zip(overlay.brokers, _hosts(wanted), strict=True)}
            written += make_certificates(path.parent / CERTIFICATES, overlay.name, hosts)
        with path.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError as error:
        raise InputError(f"{error.filename} is there already: expected the name of a new file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    return written


def _hosts(wanted: Wanted) -> list[str]:
    return [wanted.hosts[at % len(wanted.hosts)] for at in range(wanted.brokers)]


def overlay_text(wanted: Wanted) -> str:
    """The file's text; the brokers form a binary tree."""
    lines = [
        "# Made by covey init. What else it may contain: docs/operations.md, docs/wire.md#limits.",
        f"overlay: {json.dumps(wanted.name)}",
        "event_types:                    # an example: replace it",
        "  Quote: {firm: string, price: float64, volume: int64}",
        "brokers:",
    ]
    ports = [wanted.port + at // len(wanted.hosts) for at in range(wanted.brokers)]
    for name, host, port in zip(wanted.names, _hosts(wanted), ports, strict=True):
        where = f"[{host}]" if ":" in host else host
        fields = {"address": f"{where}:{port}"}
        if not wanted.local:
            fields["listen"] = f"[::]:{port}" if ":" in host else f"0.0.0.0:{port}"
        lines.append(f"  {name}: {json.dumps(fields)}")
    names = wanted.names
    if wanted.brokers > 1:
        lines.append("links:                          # the second broker connects to the first")
        lines += [f"  - [{names[(at - 1) // 2]}, {names[at]}]" for at in range(1, wanted.brokers)]
    lines.append("metrics:                        # for Prometheus; on / a page with all brokers")
    lines += [
        f'  {name}: "127.0.0.1:{port + METRICS_ABOVE}"' for name, port in zip(names, ports, strict=True)
    ]
    if wanted.tls:
        files = {"authority": "authority.pem", "certificate": "{name}.pem", "key": "{name}.key"}
        paths = json.dumps({field: f"{CERTIFICATES}/{file}" for field, file in files.items()})
        lines.append(f"tls: {paths}")
    elif not wanted.local:
        lines.append("insecure: true                  # neither encrypted nor authenticated")
    if wanted.tokens:
        lines += [
            "clients:",
            f"  tokens: {{key: {TOKENS_KEY}}}",
            "  permissions:                  # whoever has a token may do everything: restrict it",
            '    - {publish: ["*"], subscribe: ["*"], administer: ["*"]}',
        ]
    if wanted.durable:
        lines += [f"storage: {STORAGE}", f"durable: {json.dumps({name: {} for name in wanted.durable})}"]
    return "\n".join(lines) + "\n"
