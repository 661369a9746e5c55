"""`covey topology`: generated topologies, and spanning trees of graphs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from covey.cli.support.options import Json, writing
from covey.cli.support.output import print_json

if TYPE_CHECKING:
    from covey.sim.topology import Topology

topology = typer.Typer(no_args_is_help=True, help="Make, check, draw and export overlay topologies.")


@topology.callback()
def group() -> None:
    """Make, check, draw and export overlay topologies.

    Example: covey topology make trading --brokers 20 -o trading.yaml
    """


@topology.command("make")
def make(
    kind: Annotated[
        str,
        typer.Argument(
            help="line, star, balanced, random, preferential, trading (the hierarchy of AT), "
            "highway (HTM), or spanning (of --graph)."
        ),
    ],
    brokers: Annotated[
        int | None,
        typer.Option(min=1, help="Number of brokers; spanning has those of --graph.", show_default="20"),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="random, preferential, highway: the seed.", show_default="0"),
    ] = None,
    graph: Annotated[
        Path | None,
        typer.Option(help="spanning: a GraphML file, an edge list (.txt), or a CSV of located sensors."),
    ] = None,
    branching: Annotated[
        int | None, typer.Option(min=1, help="balanced: brokers below each broker.", show_default="2")
    ] = None,
    delay_ms: Annotated[float, typer.Option(min=0, help="Delay of a link, one way.")] = 10.0,
    port: Annotated[
        int, typer.Option(min=1, max=65_535, help="The first broker's port; the others' follow.")
    ] = 7001,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Overlay file to write; printed if not given.")
    ] = None,
    compose: Annotated[
        Path | None,
        typer.Option(help="Compose file to write as well; the overlay file is then for its containers."),
    ] = None,
    picture: Annotated[Path | None, typer.Option("--draw", help="Picture to write as well (PNG).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    json_output: Json = False,
) -> None:
    """Make a topology and write it as an overlay file that `covey up` and `covey sim` run.

    Example: covey topology make spanning --graph sensors.csv -o city.yaml --draw city.png
    """
    from covey.sim.topology import (
        KINDS,
        KINDS_BY_PARAMETER,
        compose_file,
        make_topology,
        overlay_file,
        read_graph,
        spanning_tree,
    )

    options = {"brokers": brokers, "seed": seed, "branching": branching}
    parameters = {name: value for name, value in options.items() if value is not None}
    for name in parameters:
        users = KINDS_BY_PARAMETER.get(name, tuple(KINDS))
        if (kind in KINDS or kind == "spanning") and kind not in users:
            does = "do" if len(users) > 1 else "does"
            raise typer.BadParameter(
                f"{kind} takes no {name}; only {', '.join(users)} {does}", param_hint=f"--{name}"
            )
    if kind == "spanning":
        if graph is None:
            raise typer.BadParameter("spanning needs a graph to span", param_hint="--graph")
        result = spanning_tree(read_graph(graph), graph.stem, delay_ms=delay_ms)
    elif graph is not None:
        raise typer.BadParameter(f"{kind} takes no graph; only spanning does", param_hint="--graph")
    else:
        result = make_topology(kind, **{"brokers": 20, **parameters}, delay_ms=delay_ms)
    for path in (output, compose, picture):
        if path is not None and path.exists() and not force:
            raise typer.BadParameter(f"{path} already exists; --force overwrites it")
    text = overlay_file(result, port=port, containers=compose is not None)
    if compose is not None:
        if output is None:
            raise typer.BadParameter("a compose file needs an overlay file", param_hint="--output")
        overlay, folder = output.resolve(), compose.resolve().parent
        overlay = overlay.relative_to(folder) if overlay.is_relative_to(folder) else overlay
        _write(compose, compose_file(result, overlay.as_posix(), port=port))
    if output is not None:
        _write(output, text)
    if picture is not None:
        _draw(result, picture)
    if json_output:
        print_json(result.summary())
    elif output is not None:
        _print(result)
    else:
        print(text, end="")


@topology.command("check")
def check(
    file: Annotated[Path, typer.Argument(help="The overlay file.")],
    json_output: Json = False,
) -> None:
    """Check an overlay file and print its size and depth.

    Example: covey topology check examples/five.yaml
    """
    result = _load(file)
    if json_output:
        print_json(result.summary())
    else:
        _print(result)


@topology.command("draw")
def draw_command(
    file: Annotated[Path, typer.Argument(help="The overlay file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Picture to write (PNG).")],
) -> None:
    """Draw an overlay file as a picture.

    Example: covey topology draw examples/five.yaml -o five.png
    """
    _draw(_load(file), output)


def _load(file: Path) -> Topology:
    from covey.overlay.node.config import load_overlay
    from covey.sim.topology import of_overlay

    return of_overlay(load_overlay(file, {}))


def _write(path: Path, text: str) -> None:
    with writing(path):
        path.write_text(text, encoding="utf-8")


def _draw(result: Topology, path: Path) -> None:
    from covey.sim.topology import TopologyError
    from covey.sim.topology.export import draw

    try:
        draw(result, path)
    except (OSError, ValueError) as error:
        raise TopologyError(f"{path}: cannot be drawn: {error}") from None
    print(f"drawn: {path}", file=sys.stderr)


def _print(result: Topology) -> None:
    facts = result.summary()
    print(f"{facts['name']}: {facts['brokers']} brokers, {facts['links']} links, {facts['leaves']} leaves")
    print(f"  most links at one broker  {facts['largest_degree']}")
    print(f"  longest path              {facts['longest_path_links']} links, {facts['longest_path_ms']:g} ms")
    if facts["roles"]:
        print(f"  roles                     {', '.join(f'{n} {role}' for role, n in facts['roles'].items())}")
