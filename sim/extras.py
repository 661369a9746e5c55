"""The packages of the extra `sim`, and the error if one is missing."""

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
"""By module, the package to install."""


def missing(what: str, error: ModuleNotFoundError) -> Exception:
    """A `CoveyError` that names the package to install for `what`; other modules' errors unchanged."""
    package = EXTRAS.get((error.name or "").partition(".")[0])
    if package is None:
        return error
    return CoveyError(f"{what} needs {package}: `pip install '.[sim]'` in the clone")


def need(what: str, *modules: str) -> None:
    """Raise `missing` unless all `modules` can be imported; for a check before long work."""
    for module in modules:
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            raise missing(what, error) from None
