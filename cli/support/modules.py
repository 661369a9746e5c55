"""Modules that register named operators, imported by commands whose filters may call these."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated

import typer

Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--module",
        help="A module that registers operators, installed or in this folder; repeatable.",
        show_default=False,
    ),
]


def import_modules(names: Iterable[str]) -> None:
    """Import modules, also of the current folder, where the brokers of `covey up` find them as well.

    `InputError` for one that cannot be imported.
    """
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
