"""The demonstrations in the browser: the page shows the oracle's counts."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pytest
from chromium import Page, chromium
from interrupting import interrupted
from running import Brokers, on_a_loop

from covey.sim.experiments import pages
from covey.sim.experiments.pages.city import EXTENT, LINKS, City, Fleet, RoadNetwork, Settings
from covey.sim.experiments.pages.live_oracle import Counts
from covey.sim.experiments.pages.map_page import faults_line, site_of
from covey.sim.experiments.pages.traders_page import Floor
from covey.sim.scenario.recorded import load_quotes

NODE = shutil.which("node")


def test_vehicles_stay_on_the_roads() -> None:
    roads = RoadNetwork()
    fleet = Fleet(roads, 300)
    points = np.vstack(roads.highways)
    start = fleet.x.copy(), fleet.y.copy()
    for _ in range(200):
        before = fleet.x.copy(), fleet.y.copy()
        fleet.drive(0.5, 1.0)
        steps = np.hypot(fleet.x - before[0], fleet.y - before[1])
        assert (steps < 30).all()  # they drive, and turn at crossings
        assert ((fleet.x >= 0) & (fleet.x <= EXTENT) & (fleet.y >= 0) & (fleet.y <= EXTENT)).all()
    distances = np.hypot(fleet.x[:, None] - points[:, 0], fleet.y[:, None] - points[:, 1]).min(axis=1)
    assert (distances < 6).all()
    assert (np.hypot(fleet.x - start[0], fleet.y - start[1]) > 20).mean() > 0.9


def drag(page: Page, to: tuple[float, float]) -> float:
    """Drag the page's box by hand until its middle is at vehicle 0's place; returns the ms from the first
    movement until the vehicle is lit."""
    left, top, width = page.value(
        "(r => [r.left, r.top, r.width])(document.getElementById('map').getBoundingClientRect())"
    )
    x0, x1, y0, y1 = page.value("page.box.rectangle")
    unit = width / EXTENT
    page.value(
        """void (window.lit = new Promise((resolve) => {
          let start;
          document.getElementById('map').addEventListener('pointermove', () => (start ??= performance.now()));
          (function look() {
            if (start && page.box.contents().includes(0)) resolve(performance.now() - start);
            else requestAnimationFrame(look);
          })();
        }))"""
    )
    page.move_to(left + (x0 + x1) / 2 * unit, top + (y0 + y1) / 2 * unit)
    hand = {"button": "left", "clickCount": 1}
    at = {"x": left + (x0 + x1) / 2 * unit, "y": top + (y0 + y1) / 2 * unit}
    page.call("Input.dispatchMouseEvent", type="mousePressed", **at, **hand)
    at = {"x": left + to[0] * unit, "y": top + to[1] * unit}
    page.call("Input.dispatchMouseEvent", type="mouseMoved", **at, buttons=1, **hand)
    page.call("Input.dispatchMouseEvent", type="mouseReleased", **at, **hand)
    return float(page.value("window.lit"))


def choose(page: Page, how: str) -> None:
    page.value(f"document.querySelector('input[value={how}]').click()")
    page.until(f"page.stats.how === '{how}' && page.box.how === '{how}'")


def shown(page: Page, how: str) -> list[int]:
    """Expected, missed and duplicate, as in the page's table."""
    cells = page.value(f"[...document.getElementById('{how}').cells].map((cell) => cell.textContent)")
    return [int(cell.replace(",", "") or 0) for cell in cells[3:]]


def play(page: Page, url: str, city: City) -> None:
    """A user of the map, in a thread."""
    page.call("Page.navigate", url=url)
    page.until("window.page?.ready && page.stats !== null && page.fps > 0")
    page.until("page.stats.eras.update?.expected > 200")

    page.value("(input => { input.value = 0; input.oninput(); })(document.getElementById('speed'))")
    while city.settings.speed:
        page.value("1")
    place = float(np.clip(city.fleet.x[0], 110, 890)), float(np.clip(city.fleet.y[0], 110, 890))
    print(f"lit {drag(page, place):.0f} ms after the box was dragged")
    page.until("page.lit > 0 && page.lit === page.stats.inside")  # nothing moves: all is known

    x0, x1, y0, y1 = page.value("page.box.rectangle")
    inside = (city.fleet.x >= x0) & (city.fleet.x <= x1) & (city.fleet.y >= y0) & (city.fleet.y <= y1)
    assert sorted(page.value("page.box.contents()")) == np.flatnonzero(inside).tolist()

    page.value("(input => { input.value = 1; input.oninput(); })(document.getElementById('speed'))")
    choose(page, "unsubscribe-first")
    page.until("page.stats.eras['unsubscribe-first']?.missed > 0")
    choose(page, "subscribe-first")
    page.until("page.stats.eras['subscribe-first']?.duplicate > 0")
    choose(page, "update")
    before = page.value("page.stats.eras.update.expected")
    page.until(f"page.stats.eras.update.expected > {before} + 100")
    page.until("document.getElementById('subscribe-first').cells[1].textContent > ''")
    assert shown(page, "unsubscribe-first")[1] > 0
    assert shown(page, "subscribe-first")[2] > 0
    assert shown(page, "update")[0] > 200
    assert shown(page, "update")[1:] == [0, 0]
    page.until("page.stats.behind === (document.getElementById('behind').textContent > '')")
    assert page.value("document.getElementById('others').textContent") == ""
    city.oracle.counts["subscribe-first"].late += 3
    page.until("document.getElementById('others').textContent.startsWith('subscribe-first: ')")
    duplicate = city.oracle.counts["subscribe-first"].duplicate
    page.until(f"document.getElementById('subscribe-first').cells[5].textContent === '{duplicate:,}'")
    assert page.logged == []
    assert all(each.startswith(url) for each in page.requests if not each.startswith(("data:", "ws:")))


def test_what_makes_a_run_fail_is_told_by_its_name() -> None:
    counts = Counts(expected=9, missed=1, duplicate=2, late=3, stray=4, undecided=5)
    assert faults_line(counts) == "1 missed, 2 duplicate, 3 late, 4 in no possible box"


@pytest.mark.skipif(NODE is None, reason="Node is not installed (Debian: nodejs)")
def test_the_page_reports_a_mark_behind_the_events_of_its_batch() -> None:
    """They come in messages of their own, between which the page may report."""
    script = """
        let flush;
        globalThis.setInterval = (call) => (flush = call);
        globalThis.location = { href: "http://here/" };
        const got = [];
        globalThis.WebSocket = class {
          readyState = 1;
          send(text) { got.push(...JSON.parse(text).items); }
        };
        const { Live } = await import(process.argv[1]);
        const live = new Live({});
        live.report([1]);
        live.reportMark("mark");
        flush();
        live.report([2]);
        flush();
        flush();
        console.log(JSON.stringify(got));
    """
    live = (Path(pages.__file__ or "").parent / "live.js").as_uri()
    command = (str(NODE), "--input-type=module", "--no-warnings", "--eval", script, live)
    told = subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=True).stdout
    assert json.loads(told) == [[1], [2], "mark"]


@pytest.mark.thorough
@on_a_loop
async def test_the_map_in_the_browser() -> None:
    city = City(Settings(vehicles=120, boxes=6, rate=10), Brokers(LINKS))
    async with city.running():
        with chromium() as browser:
            await served(site_of(city), lambda url: play(browser.new_page(), url, city))
    counts = city.oracle.counts["update"]
    assert counts.expected > 300
    assert counts.faults == 0, counts


async def served(site: Any, user: Any) -> None:
    """Serve a site while a user, in a thread, looks at it."""
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def look() -> None:
        await asyncio.to_thread(user, await address)

    await site.serve(address.set_result, look)


def test_bad_settings_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for words, reason in (
        (("--vehicles", "0"), "vehicles is 0: expected 1 to 20000"),
        (("--boxes", "500"), "boxes is 500: expected 0 to 400"),
        (("--how", "gladly"), "--how 'gladly': expected one of update, unsubscribe-first, subscribe-first"),
        (("--headless", "--seconds", "0"), "--seconds 0: expected a number above 0"),
        (("--seconds", "5"), "--seconds: expected it with --headless"),
        (("--headless", "--no-open"), "--no-open: expected it without --headless"),
        (
            ("--listen", "here"),
            '--listen \'here\': expected "host:port" with a port from 1 to 65535, or "unix:path"',
        ),
        (
            ("--listen", "0.0.0.0:80"),
            "--listen '0.0.0.0:80': expected an address of this machine, such as 127.0.0.1:8080: a "
            "demonstration has neither TLS nor rights",
        ),
        (
            ("--screenshot", "/nowhere/x.png"),
            "--screenshot /nowhere/x.png: expected a file in a folder that can be written to",
        ),
    ):
        assert commands.run("demo", "map", *words) == 2
        assert capsys.readouterr().err == f"covey: {reason}\n"


@pytest.mark.thorough
@pytest.mark.usefixtures("brokers_in_process")
def test_the_map_without_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--headless", "--vehicles", "200", "--boxes", "20", "--seconds", "3", "--json")
    assert commands.run("demo", "map", *words) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["counts"]["expected"] > 0
    assert outcome["counts"]["missed"] == outcome["counts"]["duplicate"] == 0
    assert outcome["changes_per_s"] > 0


@pytest.mark.thorough  # six broker processes
def test_ctrl_c_ends_the_map_with_one_line(tmp_path: Path) -> None:
    """The clients leave before the brokers, and nothing warns of unsent events."""
    words = [sys.executable, "-m", "covey.cli.main", "demo", "map", "--vehicles", "100", "--boxes", "2"]
    ready = tmp_path / "ready"
    browser = tmp_path / "browser"
    browser.write_text(f"#!/bin/sh\ntouch {ready}\n")
    browser.chmod(0o755)
    environment = {**os.environ, "BROWSER": str(browser)}
    status, output = interrupted(words, ready.exists, environment)
    lines = output.splitlines()
    assert status == 0, output
    assert [line.partition(" ")[0] for line in lines] == ["starting", "the", "ended:"], output
    assert lines[-1].endswith("0 missed, 0 duplicate, 0 late, 0 in no possible box")


@pytest.mark.thorough
@pytest.mark.usefixtures("brokers_in_process")
def test_a_picture_of_the_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.sim.experiments.pages.map_page._SHOWN_S", 0.5)
    picture = tmp_path / "map.png"
    assert commands.run("demo", "map", "--vehicles", "100", "--boxes", "5", "--screenshot", str(picture)) == 0
    assert 20_000 < picture.stat().st_size < 300_000


def watch(page: Page, url: str) -> None:
    """A user of the traders' page, in a thread."""
    page.call("Page.navigate", url=url)
    page.until("window.page?.ready && page.stats?.changes > 5 && page.own > 0")
    page.until("page.stats.verdicts['busy days']?.delivered > 20")
    page.until("page.stats.ended")
    rows = "[...document.querySelectorAll('#verdicts tr')]"
    texts = f"{rows}.map((row) => [...row.cells].map((cell) => cell.textContent))"
    for name, delivered, *faults in page.value(texts):
        assert int(delivered.replace(",", "")) > 0, name
        assert faults == ["0", "0", "0"], name
    assert page.logged == []


@pytest.mark.thorough
@pytest.mark.usefixtures("brokers_in_process")
@on_a_loop
async def test_the_traders_in_the_browser() -> None:
    floor = Floor(load_quotes().slice(4_000, 1_500), rate=300.0)
    with chromium() as browser:
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(floor.serve(address.set_result))
        try:
            await asyncio.wait({serving, address}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
            await asyncio.to_thread(watch, browser.new_page(), address.result())
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
