"""The options of TLS and tokens, one group for all commands that connect to a broker."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey.cli.support.options import option, taking

if TYPE_CHECKING:
    from covey.overlay.transport.credentials import Credentials, Token
    from covey.overlay.transport.tls import Tls

_TOKEN = "COVEY_TOKEN"


@dataclass(frozen=True, slots=True)
class Access:
    """What the options, or the environment, say."""

    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    token_file: Path | None = None

    @property
    def tls(self) -> Tls | None:
        if self.authority is None and self.certificate is None and self.key is None:
            return None
        from covey.overlay.transport.tls import Tls

        if self.authority is None or (self.certificate is None) is not (self.key is None):
            from covey.matcher.errors import InputError

            raise InputError("--certificate and --key: expected both, with --authority")
        return Tls(self.authority, self.certificate, self.key)

    @property
    def token(self) -> Token | None:
        """That of COVEY_TOKEN, or a function that reads the file: it may be renewed."""
        if self.token_file is None:
            return os.environ.get(_TOKEN) or None
        from covey.overlay.transport.credentials import TokenFile

        return TokenFile(self.token_file)

    @property
    def credentials(self) -> Credentials:
        from covey.overlay.transport.credentials import credentials

        return credentials(self.tls, self.token)


NO_ACCESS = Access()


_OPTIONS = tuple(
    option(
        name,
        Path,
        text,
        f"--{name.replace('_', '-')}",
        envvar=f"COVEY_{name.upper()}",
        show_default=False,
        rich_help_panel="TLS and tokens",
    )
    for name, text in (
        ("authority", "PEM file of the authority by which a broker with TLS is verified."),
        ("certificate", "PEM file of this client's certificate."),
        ("key", "PEM file of its key."),
        ("token_file", f"File with a bearer token; {_TOKEN} is the token itself."),
    )
)


def _check_readable(option: str, file: Path | None) -> None:
    """`InputError` at the start of the command; a file that is replaced later is read again by its user."""
    if file is None:
        return
    try:
        with file.open("rb"):
            pass
    except OSError as error:
        from covey.matcher.errors import InputError

        raise InputError(f"{option} {file}: cannot be read: {error.strerror}") from None


def _check_address(broker: str) -> None:
    """`InputError` for what is no address, before anything is tried at it."""
    from covey.overlay.transport.address import parse_address

    try:
        parse_address(broker)
    except ValueError as error:
        from covey.matcher.errors import InputError

        raise InputError(f"--broker {broker!r}: {error}") from None


def _access(files: dict[str, Path | None]) -> Access:
    for name, file in files.items():
        _check_readable(f"--{name.replace('_', '-')}", file)
    return Access(**files)


def with_access(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `access` is the four options; `broker`, if it has one, is an address."""

    @wraps(command)
    def checked(**arguments: Any) -> None:
        if "broker" in arguments:
            _check_address(arguments["broker"])
        command(**arguments)

    return taking("access", _OPTIONS, _access)(checked)
