"""`covey demo`: real quotes through five live brokers, under both kinds of routing, checked by an oracle."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from covey.cli.demo_pages import map_page, traders_page
from covey.cli.support.options import Json
from covey.cli.support.output import print_json

if TYPE_CHECKING:
    from rich.console import Console

    from covey.sim.experiments.demo.run import Demonstration, DemoOutcome

demo = typer.Typer(help="Replay real quotes through five brokers, checked by an oracle; or show a page.")
demo.command("map")(map_page)
demo.command("traders")(traders_page)

BROKERS = ("b1", "b2", "b3", "b4", "b5")


@demo.callback(invoke_without_command=True)
def quotes_demo(
    context: typer.Context,
    routing: Annotated[str, typer.Option(help="parametric, static, or both in sequence.")] = "both",
    resubscribe: Annotated[
        str, typer.Option(help="Under static routing: subscribe-first or unsubscribe-first.")
    ] = "unsubscribe-first",
    rate: Annotated[float | None, typer.Option(help="Quotes per second; unlimited by default.")] = None,
    events: Annotated[
        int | None, typer.Option(help="Number of quotes, from the oldest; by default all 12,154.")
    ] = None,
    restart: Annotated[
        str | None, typer.Option(help="Kill and restart this broker (b1 to b5) half-way.")
    ] = None,
    page: Annotated[Path | None, typer.Option("--report", help="Page to write (HTML).")] = None,
    json_output: Json = False,
) -> None:
    """Replay real quotes through five brokers while three subscribers move their thresholds.

    Starts five broker processes on this machine (three levels, free ports), publishes the daily quotes of
    five firms from 2000 to 2013 in the order of their dates, and checks each subscriber's deliveries with an
    oracle: under parametric routing, and under the static routing of the literature, where a change is a new
    subscription.

    The update delay is the time from a change until all affected brokers have applied it. Exits with 1 if
    parametric routing missed or repeated an event, or delivered one that never matched.

    With a subcommand, shows a page in the browser instead.

    Example: covey demo --routing parametric --restart b3
    """
    if context.invoked_subcommand is not None:
        return
    if routing not in ("both", "parametric", "static"):
        raise typer.BadParameter(f"{routing!r}: expected both, parametric or static", param_hint="--routing")
    if resubscribe not in ("unsubscribe-first", "subscribe-first"):
        raise typer.BadParameter(
            f"{resubscribe!r}: expected unsubscribe-first or subscribe-first", param_hint="--resubscribe"
        )
    if rate is not None and not rate > 0:
        raise typer.BadParameter(
            f"{rate:g}: expected a number of quotes per second above 0", param_hint="--rate"
        )
    if events is not None and events < 1:
        raise typer.BadParameter(f"{events}: expected at least 1", param_hint="--events")
    if restart is not None and restart not in BROKERS:
        raise typer.BadParameter(f"{restart!r}: expected one of {', '.join(BROKERS)}", param_hint="--restart")

    from rich.console import Console

    from covey.sim.experiments.demo import report
    from covey.sim.experiments.demo.run import Demonstration
    from covey.sim.extras import need
    from covey.sim.scenario.quotes import load_quotes

    if page is not None:
        need("a report", "bokeh")
    console = Console(stderr=json_output)
    quotes = load_quotes()
    if events is not None:
        if events > quotes.num_rows:
            raise typer.BadParameter(f"{events}: expected at most {quotes.num_rows:,}", param_hint="--events")
        quotes = quotes.slice(0, events)
    outcomes = []
    for each in ("parametric", "static") if routing == "both" else (routing,):
        console.print(f"{each} routing: starting five brokers", highlight=False)
        demonstration = Demonstration(
            quotes, routing=each, resubscribe=resubscribe, rate=rate, restart=restart
        )
        outcomes.append(asyncio.run(_run_with_display(demonstration, console)))
    if json_output:
        print_json(report.as_json(outcomes))
    else:
        console.print(report.summary(outcomes))
    if page is not None:
        from covey.sim.experiments.demo.report import page as page_of
        from covey.sim.reports import write_report

        options = {"routing": routing, "resubscribe": resubscribe, "rate": rate or "unlimited"}
        write_report(page, page_of(outcomes, options | {"restart": restart or "none"}))
    raise typer.Exit(1 if report.failed(outcomes) else 0)


async def _run_with_display(demonstration: Demonstration, console: Console) -> DemoOutcome:
    from covey.sim.experiments.demo import report

    viewer = asyncio.create_task(report.show(demonstration.replay, console))
    try:
        return await demonstration.run()
    finally:
        viewer.cancel()
        await asyncio.gather(viewer, return_exceptions=True)
