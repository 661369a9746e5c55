"""Options that several commands share, and parsers of their values."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

if TYPE_CHECKING:
    from covey.overlay.transport.credentials import Credentials, Token
    from covey.overlay.transport.tls import Tls

Broker = Annotated[str, typer.Option(help="Address of the broker, HOST:PORT or unix:PATH.")]
BROKER = "localhost:7001"
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_DIGITS = 18
"""Any number of so many digits fits an int64."""

Master = Annotated[
    str | None,
    typer.Option(
        help="Where Spark runs: local[2], spark://HOST:PORT, yarn, sc://HOST:PORT of Spark Connect.",
        show_default="all cores of this machine",
    ),
]

Seed = Annotated[int, typer.Option(help="Seed of the random numbers.")]

Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--module",
        help="A module that registers operators, installed or in this folder; repeatable.",
        show_default=False,
    ),
]


def option(
    name: str, kind: Any, text: str, *flags: str, default: Any = None, **settings: Any
) -> inspect.Parameter:
    """A row of a table for `taking`; `flags` and `settings` are for `typer.Option`."""
    annotation: Any = Annotated[
        kind if default is not None else kind | None, typer.Option(*flags, help=text, **settings)
    ]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def options_of(described: type[Any], least: Mapping[str, float]) -> tuple[inspect.Parameter, ...]:
    """The options of a dataclass whose fields are annotated with help; `least` are lower bounds by field."""
    hints = get_type_hints(described, include_extras=True)
    return tuple(
        option(each.name, *get_args(hints[each.name]), default=each.default, min=least.get(each.name))
        for each in fields(described)
    )


def taking(
    name: str, table: Sequence[inspect.Parameter], read: Callable[[dict[str, Any]], Any] = dict
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace the parameter `name` of a command by the options of a table; the command gets `read` of their
    values."""

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        parameters = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for own in signature.parameters.values()
            for parameter in (table if own.name == name else [own])
        ]

        @wraps(command)
        def run(**arguments: Any) -> None:
            values = {row.name: arguments.pop(row.name) for row in table}
            command(**arguments, **{name: read(values)})

        del run.__wrapped__  # its signature is another
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorated


def import_modules(names: Iterable[str]) -> None:
    """Import modules, from the current folder too, as the brokers of `covey up` do. `InputError` for a failed
    import."""
    from importlib import import_module

    from covey.matcher.errors import InputError

    for name in names:
        if "" not in sys.path:
            sys.path.insert(0, "")
        try:
            import_module(name)
        except Exception as error:  # of code that Covey does not know
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise InputError(f"--module {name}: expected a module that can be imported ({why})") from None


def words(text: str, mark: str = ",") -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(mark))


def numbered(what: str, text: str, form: str, example: str) -> tuple[str, int]:
    """Parse a name and a number, separated as in `form`, such as CLIENT#NUMBER; `InputError` if that
    fails."""
    from covey.matcher.errors import InputError

    mark = next(sign for sign in form if not sign.isalpha())
    name, separator, number = text.rpartition(mark)
    if not separator or not name or not number.isdecimal() or len(number) > _DIGITS:
        raise InputError(f"{what} {text!r}: expected {form}, such as {example}")
    return name, int(number)


def counts(name: str, text: str) -> tuple[int, ...]:
    """Positive integers separated by commas. `InputError` names the option."""
    from covey.matcher.errors import InputError

    try:
        numbers = tuple(int(word.replace("_", "")) for word in words(text))
    except ValueError:
        numbers = (0,)
    if min(numbers) < 1:
        raise InputError(f"{name} {text!r}: expected positive integers separated by commas")
    return numbers


def choices(name: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Known words separated by commas. `InputError` names the option."""
    from covey.matcher.errors import InputError

    chosen = words(text)
    for word in chosen:
        if word not in known:
            raise InputError(f"{name} {word!r}: expected some of {', '.join(known)}, separated by commas")
    return chosen


def check_output(option: str, path: Path) -> None:
    """`typer.BadParameter`, before any work is done, for a path that no file can be written to."""
    if not path.parent.is_dir():
        raise typer.BadParameter(f"{path.parent} is no folder", param_hint=option)
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder, expected a file", param_hint=option)


@contextmanager
def writing(place: object) -> Iterator[None]:
    """Turn an `OSError` of a write into a `CoveyError` of one sentence, with `place`."""
    from covey.matcher.errors import CoveyError

    try:
        yield
    except OSError as error:
        raise CoveyError(f"{place}: cannot be written: {error.strerror or error}") from None


def check_one(option: str, value: str, known: Iterable[str]) -> None:
    """`InputError`, which names the option, for an unknown value."""
    from covey.matcher.errors import InputError

    if value not in (known := tuple(known)):
        raise InputError(f"{option} {value!r}: expected one of {', '.join(known)}")


_TOKEN = "COVEY_TOKEN"


@dataclass(frozen=True, slots=True)
class Access:
    """How a command authenticates, by its options or the environment."""

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
        """The token of COVEY_TOKEN, or a function that reads the file, whose token may be renewed."""
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
    """`InputError` before any work is done; the file is read again later."""
    if file is None:
        return
    try:
        with file.open("rb"):
            pass
    except OSError as error:
        from covey.matcher.errors import InputError

        raise InputError(f"{option} {file}: cannot be read: {error.strerror}") from None


def _check_address(broker: str) -> None:
    """`InputError`, before any connection, for a malformed address."""
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
    """Give a command the four options as `access`; its `broker`, if it has one, is checked as an address."""

    @wraps(command)
    def checked(**arguments: Any) -> None:
        if "broker" in arguments:
            _check_address(arguments["broker"])
        command(**arguments)

    return taking("access", _OPTIONS, _access)(checked)
