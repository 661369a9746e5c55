"""What the site of the documents has beside docs/*.md: a hook of mkdocs (mkdocs.yml).

The README is its front page. Files of the repository that documents link to are copied. Reference pages are
generated: the command line by Typer, overlay files from their pydantic models, brokers' metrics from their
table, names of Python by mkdocstrings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_origin

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from covey.cli.main import ABOUT, COMMANDS, app_of
from covey.overlay.node.metrics import METRICS
from covey.overlay.node.overlay_file import OverlayFile

ROOT = Path(__file__).resolve().parent.parent
TOP = {"index.md": "README.md", "ARCHITECTURE.md": "ARCHITECTURE.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
NAMES = {
    "client.md": ("The client library", ["covey.overlay.client"]),
    "matcher.md": ("The matcher", ["covey.matcher", "covey.matcher.operators.named_operator"]),
    "errors.md": (
        "Errors",
        ["covey.matcher.errors", "covey.overlay.client.errors", "covey.overlay.core.endpoint.limits"],
    ),
}
"""Pages of modules, by mkdocstrings: their title and the modules."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    pages = {page: (ROOT / source).read_text() for page, source in TOP.items()}
    pages["command-line.md"] = command_line()
    pages["overlay-file.md"] = overlay_file()
    for page, (title, modules) in NAMES.items():
        pages[page] = "\n\n".join([f"# {title}", *(f"::: {module}" for module in modules)])
    for page in files.documentation_pages():
        for link in re.findall(r"\]\(\.\./([^)#]+)", page.content_string):
            if link not in TOP.values() and (ROOT / link).is_file():
                pages[link] = (ROOT / link).read_text()
    for name, content in pages.items():
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as from docs/ to docs/, and the table of metrics at its mark."""
    if page.file.src_uri in TOP:
        markdown = re.sub(r"\]\(docs/", "](", markdown)
    markdown = re.sub(r"\]\((?:\.\./)?README\.md", "](index.md", markdown)
    markdown = re.sub(r"\]\(\.\./", "](", markdown)
    return markdown.replace("<!-- table of metrics -->", metrics())


def metrics() -> str:
    rows = [f"| `{m.name}` | {m.kind} | {', '.join(m.labels)} | {m.help} |" for m in METRICS]
    return "\n".join(["| metric | type | labels | meaning |", "|---|---|---|---|", *rows])


def command_line() -> str:
    from typer.cli import get_docs_for_click
    from typer.main import get_command

    command = get_command(app_of(COMMANDS, "covey", ABOUT, [name for name, *_ in COMMANDS]))
    return get_docs_for_click(obj=command, ctx=command.make_context("covey", ["sim"]), title="Command line")


def overlay_file() -> str:
    """Every field and its default."""
    about = "A dot leads into a section, `[]` to each of several."
    head = ["# The overlay file", "", about, "", "| field | default |", "|---|---|"]
    return "\n".join([*head, *fields(OverlayFile, "")])


def fields(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = section_of(field)
        if inner is None:
            default = "required" if field.is_required() else field.get_default(call_default_factory=True)
            yield f"| `{prefix}{name}` | {'' if default in ('', None, (), [], {}) else default} |"
        else:
            several = get_origin(field.annotation) in (list, dict)
            yield from fields(inner, f"{prefix}{name}{'[].' if several else '.'}")


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The section that a field holds, by itself, as one of several or where it is given."""
    pending = [field.annotation]
    while pending:
        kind = pending.pop()
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
        pending.extend(get_args(kind))
    return None
