"""`covey demo`: quotes through five live brokers, checked by an oracle; `map` and `traders`: browser
pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from covey.cli.support.options import Json, check_one
from covey.cli.support.output import print_json
from covey.matcher.errors import InputError
from covey.overlay.transport.event_loop import run
from covey.sim.extras import GATEWAY, need

if TYPE_CHECKING:
    from covey.sim.experiments.demo.run import Demonstration, DemoOutcome

_WITHOUT_A_PAGE = "Without a page"
_MEASURED_S = 20.0

NoOpen = Annotated[bool, typer.Option("--no-open", help="Print the address and open no browser.")]
Listen = Annotated[
    str, typer.Option(help="Address of the page on this machine.", show_default="127.0.0.1 and a free port")
]
Screenshot = Annotated[
    Path | None, typer.Option(help="Make a picture of the page (PNG) with Chromium, and end.")
]


def map_page(
    vehicles: Annotated[int, typer.Option(help="Vehicles on the roads.")] = 400,
    boxes: Annotated[int, typer.Option(help="Vehicles with a moving box.")] = 24,
    side: Annotated[float, typer.Option(help="Edge of a box; the city is 1,000 wide.")] = 120.0,
    rate: Annotated[float, typer.Option(help="Reports per second of each vehicle.")] = 5.0,
    changes: Annotated[float, typer.Option(help="Changes per second of each box.")] = 10.0,
    how: Annotated[
        str, typer.Option(help="How a box changes: update, unsubscribe-first or subscribe-first.")
    ] = "update",
    no_open: NoOpen = False,
    listen: Listen = "",
    screenshot: Screenshot = None,
    headless: Annotated[
        bool, typer.Option("--headless", help="Measure without a page.", rich_help_panel=_WITHOUT_A_PAGE)
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="How long to measure.", show_default=f"{_MEASURED_S:g}", rich_help_panel=_WITHOUT_A_PAGE
        ),
    ] = None,
    json_output: Json = False,
) -> None:
    """Show boxes that move over a map of vehicles, in the browser.

    Starts six broker processes on this machine. The vehicles of the highway benchmark report their places to
    the nearest one; some of them have a box, a subscription that drives along. An oracle that has every
    report and every box with its times counts what is missed and what comes twice. On the page a box is
    dragged by hand, through the gateway, and boxes may be changed by subscribing again instead, to see what
    that costs.

    Runs until Ctrl-C. Exits with 1 if an event was missed, repeated, late, or in no possible box by update.

    Needs Covey's extra `gateway`.

    Example: covey demo map
    """
    need("covey demo map", *GATEWAY)
    from covey.sim.experiments.pages.city import Settings
    from covey.sim.experiments.pages.map_page import faults_line, measure, serve_map, summary
    from covey.sim.experiments.pages.moving_boxes import Change

    check_one("--how", how, Change)
    if seconds is not None and not seconds > 0:
        raise InputError(f"--seconds {seconds:g}: expected a number above 0")
    page_options = {"--no-open": no_open, "--listen": listen, "--screenshot": screenshot}
    other_options = {"--seconds": seconds is not None, "--json": json_output}
    for option, given in (page_options if headless else other_options).items():
        if given:
            raise InputError(f"{option}: expected it {'without' if headless else 'with'} --headless")
    settings = Settings(vehicles, boxes, side, rate, changes, how=Change(how))
    if headless:
        outcome = run(measure(settings, seconds or _MEASURED_S))
        if json_output:
            print_json(outcome.as_json())
        else:
            Console().print(summary(outcome))
        raise typer.Exit(1 if outcome.failed and how == Change.UPDATE else 0)
    _check_page(listen, screenshot)
    print("starting six brokers", flush=True)
    announce = _announced(open_it=not no_open and screenshot is None)
    counts = run(serve_map(settings, listen, announce, screenshot))
    expected = f"{counts.expected:,} events expected while boxes changed by update"
    print(f"ended: {expected}, {faults_line(counts)}", flush=True)
    raise typer.Exit(1 if counts.faults else 0)


def traders_page(
    rate: Annotated[float, typer.Option(help="Quotes per second.")] = 150.0,
    no_open: NoOpen = False,
    listen: Listen = "",
    screenshot: Screenshot = None,
) -> None:
    """Show the replay of real quotes with its moving thresholds, in the browser.

    The five brokers, the exchange and the three traders of `covey demo`, drawn as they run: the quotes, which
    of them a trader gets, and the thresholds that these move. A fourth threshold is dragged by hand, through
    the gateway. The oracle counts what is missed and what comes twice.

    Runs until Ctrl-C. Exits with 1 if the replay ended and an event was missed or repeated.

    Needs Covey's extra `gateway`, and `pip install --no-deps bokeh-sampledata`.

    Example: covey demo traders
    """
    from covey.sim.scenario.recorded import load_quotes

    need("covey demo traders", *GATEWAY)
    from covey.sim.experiments.pages.traders_page import Floor, failed

    if not rate > 0:
        raise InputError(f"--rate {rate:g}: expected a number of quotes per second above 0")
    _check_page(listen, screenshot)
    print("starting five brokers", flush=True)
    announce = _announced(open_it=not no_open and screenshot is None)

    floor = Floor(load_quotes(), rate, listen)
    verdicts = run(floor.serve(announce, screenshot))
    print(f"ended: {floor.summary()}", flush=True)
    raise typer.Exit(1 if failed(verdicts) else 0)


def _check_page(listen: str, screenshot: Path | None) -> None:
    from covey.sim.experiments.pages.site import check_address, check_screenshot

    if listen:
        check_address(listen)
    if screenshot is not None:
        check_screenshot(screenshot)


def _announced(*, open_it: bool) -> Callable[[str], None]:
    from covey.sim.experiments.pages.site import open_page

    def announce(url: str) -> None:
        print(f"the page is at {url} (Ctrl-C ends the demonstration)", flush=True)
        if open_it:
            open_page(url)

    return announce


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
        int | None, typer.Option(min=1, help="Number of quotes, from the oldest; by default all 12,154.")
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
    check_one("--routing", routing, ("both", "parametric", "static"))
    check_one("--resubscribe", resubscribe, ("unsubscribe-first", "subscribe-first"))
    if rate is not None and not rate > 0:
        raise typer.BadParameter(
            f"{rate:g}: expected a number of quotes per second above 0", param_hint="--rate"
        )
    if restart is not None:
        check_one("--restart", restart, BROKERS)

    from covey.sim.experiments.demo import report
    from covey.sim.experiments.demo.run import Demonstration
    from covey.sim.scenario.recorded import load_quotes

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
