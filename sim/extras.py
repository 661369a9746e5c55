"""Packages that only the extra `sim` brings, and the sentence for who does without one."""

from __future__ import annotations

from importlib import import_module

from covey.matcher.errors import CoveyError

EXTRAS = {
    "bokeh_sampledata": "bokeh-sampledata",
    "matplotlib": "matplotlib",
    "networkx": "networkx",
    "pandas": "pandas",
    "pyspark": "pyspark",
}
"""What each is imported as, and installed as."""


def missing(what: str, error: ModuleNotFoundError) -> Exception:
    """What to raise where `what` needs a module that is missing: a `CoveyError` that says what to install if
    the extra has it, else the error as it is.
    """
    package = EXTRAS.get((error.name or "").partition(".")[0])
    if package is None:
        return error
    return CoveyError(f"{what} needs {package}: `pip install '.[sim]'` in the clone")


def need(what: str, *modules: str) -> None:
    """Raise what `missing` says unless all `modules` are there; asked before long work that ends in them."""
    for module in modules:
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            raise missing(what, error) from None
