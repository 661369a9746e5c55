"""The options of TLS and tokens, one group for all commands that connect to a broker."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from covey.overlay.transport.credentials import Credentials, Token
    from covey.overlay.transport.tls import Tls

_TOKEN = "COVEY_TOKEN"
_PANEL = "TLS and tokens"


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


def _option(name: str, text: str) -> inspect.Parameter:
    flag = name.replace("_", "-")
    option = typer.Option(
        f"--{flag}",
        envvar=f"COVEY_{name.upper()}",
        help=text,
        show_default=False,
        rich_help_panel=_PANEL,
    )
    annotation = Annotated[Path | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


_OPTIONS = (
    _option("authority", "PEM file of the authority by which a broker with TLS is verified."),
    _option("certificate", "PEM file of this client's certificate."),
    _option("key", "PEM file of its key."),
    _option("token_file", f"File with a bearer token; {_TOKEN} is the token itself."),
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


def with_access(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `access` is the four options; `broker`, if it has one, is an address."""
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "access"]

    @wraps(command)
    def run(**arguments: Any) -> None:
        files = {option.name: arguments.pop(option.name) for option in _OPTIONS}
        for name, file in files.items():
            _check_readable(f"--{name.replace('_', '-')}", file)
        access = Access(**files)
        if "broker" in arguments:
            _check_address(arguments["broker"])
        command(**arguments, access=access)

    del run.__wrapped__  # its signature is another
    parameters = [*own, *_OPTIONS]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
