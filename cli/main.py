"""The command `covey`: a table of subcommands, each loaded only when it is called. An error of a user
(`CoveyError`), or a missing package, is one line on stderr and a status other than 0."""

from __future__ import annotations

import inspect
import os
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typer import Typer

COMMANDS: tuple[tuple[str, str, str, str], ...] = (
    ("init", "covey.cli.init", "init", "Write an overlay file by a few questions."),
    ("doctor", "covey.cli.doctor", "doctor", "Check this machine, and whether an overlay file can work."),
    ("up", "covey.cli.up", "up", "Start the brokers of an overlay file on this machine."),
    ("broker", "covey.cli.broker", "broker", "Run one broker of an overlay; let one join or leave."),
    ("publish", "covey.cli.publish", "publish", "Publish events from a CSV file, or typed in as JSON lines."),
    ("subscribe", "covey.cli.subscribe", "subscribe", "Print the events that match a filter; move it live."),
    ("gateway", "covey.cli.gateway", "gateway", "Serve browsers: WebSocket and server-sent events."),
    ("bridge", "covey.cli.bridge", "bridge", "Bridge an overlay and other brokers: MQTT."),
    ("inspect", "covey.cli.inspect", "inspect", "Show the state of a broker."),
    ("top", "covey.cli.top", "top", "Show all brokers of an overlay in one table, and what is wrong."),
    ("explain", "covey.cli.explain", "explain", "Show where an event would stop, and why."),
    ("filter", "covey.cli.filter", "filter_", "Translate filters of SQL and EventBridge."),
    ("operators", "covey.cli.filter", "operators", "List the named operators that a filter may call."),
    ("follow", "covey.cli.explain", "follow", "Follow one event through the overlay."),
    ("health", "covey.cli.inspect", "health", "Ask a broker whether it serves."),
    ("backup", "covey.cli.stored", "backup_command", "Copy what brokers have stored, while they run."),
    ("verify", "covey.cli.stored", "verify_command", "Check what brokers have stored."),
    ("certs", "covey.cli.certs", "certs", "Make a development authority and certificates."),
    ("compile", "covey.cli.up", "compile_ahead", "Compile the matching kernels ahead of the first start."),
    ("demo", "covey.cli.demo", "demo", "Replay real quotes through five brokers, checked by an oracle."),
    ("sim", "covey.cli.sim", "sim", "Run whole overlays in virtual time, judged by checkers."),
    ("plan", "covey.cli.plan", "plan", "Predict what a load will cost each broker of an overlay."),
    ("metrics", "covey.cli.metrics", "metrics", "Compute what runs were like from their traces, by Spark."),
    ("sweep", "covey.cli.sweep", "sweep", "Run a grid of scenarios as tasks of Spark, and compare them."),
    ("topology", "covey.cli.topology", "topology", "Make, check, draw and export overlay topologies."),
    ("bench", "covey.cli.bench", "bench", "Measure how fast Covey is on this machine."),
    (
        "reproduce",
        "covey.cli.reproduce",
        "reproduce",
        "Measure what a paper's figures show, beside its claims.",
    ),
)
"""To add a subcommand, add a row: name, module, function or typer app in it, and one line of help."""

ABOUT = """Publish/subscribe by content, with subscriptions that move.

Example: covey up examples/five.yaml"""

_INTERRUPTED = 130
"""128 and the number of SIGINT."""


def main(
    arguments: list[str] | None = None,
    commands: Sequence[tuple[str, str, str, str]] = COMMANDS,
    program: str = "covey",
    about: str = ABOUT,
) -> None:
    words = sys.argv[1:] if arguments is None else arguments
    runs_a_broker = words[:1] == ["broker"] and words[1:2] not in (["join"], ["leave"])
    if runs_a_broker and hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it reads its file behind the imports, a second later
    try:
        status = _run(words, commands, program, about)
    except BrokenPipeError:
        # The reader of stdout has exited; Python must not flush the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    except KeyboardInterrupt:
        status = _INTERRUPTED
    if status == _INTERRUPTED:
        _complain("interrupted", status)
    sys.exit(status)


def _run(words: list[str], commands: Sequence[tuple[str, str, str, str]], program: str, about: str) -> int:
    """The exit status: 2 for wrong input (`ValueError`) or a missing package, 1 for other errors."""
    called = next((word for word in words if not word.startswith("-")), None)
    app = app_of(commands, program, about, (called,))
    command = program
    if any(name == called for name, *_ in commands):
        command = f"{program} {called}"
        after = words[words.index(str(called)) + 1 :][:1]
        for group in app.registered_groups:
            if group.typer_instance and after in [[i.name] for i in group.typer_instance.registered_commands]:
                command += f" {after[0]}"
    try:
        status = app(args=words, prog_name=program, standalone_mode=False)
        return status if isinstance(status, int) else 0
    except Exception as error:
        sentence = _sentence(error, command)
        if sentence is not None:
            # Input that is wrong, or a package that is missing.
            return _complain(sentence, 2 if isinstance(error, ValueError | ModuleNotFoundError) else 1)
        # Errors of the parser: exceptions of click, or of typer's own copy.
        message: Callable[[], str] | None = getattr(error, "format_message", None)
        if message is None:
            if type(error).__name__ == "Abort":
                return _INTERRUPTED
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            print(message())
            return 2
        said = _expected(" ".join(message().split()), error)
        return _complain(f"{said} (see {command} --help)", 2)


def app_of(
    commands: Sequence[tuple[str, str, str, str]], program: str, about: str, loaded: Collection[str | None]
) -> Typer:
    """The parser of a command line. Subcommands outside `loaded` are not imported: they have one line of
    help."""
    import typer

    def group(
        version: bool = typer.Option(
            False, "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
        ),
    ) -> None: ...

    app = typer.Typer(
        name=program, help=about, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
    )
    app.callback()(group)
    for name, module, attribute, text in commands:
        if name not in loaded:
            app.command(name, help=text)(_stub)
            continue
        subcommand: Any = getattr(import_module(module), attribute)
        if isinstance(subcommand, typer.Typer):
            for inner in subcommand.registered_commands:
                inner.help = inner.help or _paragraphs(inner.callback)
            described = subcommand.registered_callback
            text = (described and _paragraphs(described.callback)) or text
            app.add_typer(subcommand, name=name, help=text)
        else:
            app.command(name, help=_paragraphs(subcommand))(subcommand)
    return app


def _expected(message: str, error: Exception) -> str:
    """A parser's message about an option, with the value, which pydantic's messages lack."""
    found: Callable[[], list[Any]] | None = getattr(error.__cause__, "errors", None)
    if found is None:
        return message
    first = found()[0]
    bounds = first.get("ctx", {})
    expected = first["msg"].removeprefix("Input should be ").partition(",")[0]
    for name, words in (("ge", "at least"), ("le", "at most"), ("gt", "more than"), ("lt", "less than")):
        if name in bounds:
            expected = f"{words} {bounds[name]}"
    return f"{message.removesuffix(first['msg'])}{first['input']}: expected {expected}"


def _paragraphs(function: Callable[..., object] | None) -> str | None:
    """A docstring with one line per paragraph, which the terminal wraps."""
    text = inspect.getdoc(function)
    return text and "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _sentence(error: Exception, command: str) -> str | None:
    """The message for a `CoveyError` or a missing package; else None."""
    # Loaded late: the help of the whole command needs none of the rest.
    from covey.matcher.errors import CoveyError
    from covey.sim.extras import missing

    if isinstance(error, ModuleNotFoundError):
        error = missing(command, error)
    return str(error) if isinstance(error, CoveyError) else None


def _complain(message: str, status: int) -> int:
    print(f"covey: {message}", file=sys.stderr)
    return status


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        print(f"covey {version('covey')}")
        raise SystemExit(0)


def _stub() -> None:
    """Stands for a subcommand that is not loaded."""


if __name__ == "__main__":
    main()
