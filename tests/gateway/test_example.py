"""The examples with FastAPI: a page whose threshold moves, in Chromium, and the backend of a map."""

import asyncio
import json
import runpy
import shutil
import tempfile
import urllib.request
from pathlib import Path

import pytest
from chromium import Page, chromium
from gateways import Browser, page_of
from running import QUOTE, Brokers, on_a_loop

from covey.overlay import Client

pytest.importorskip("fastapi", reason="FastAPI is not installed")

FOLDER = Path(__file__).resolve().parent.parent.parent / "examples"
SHOWN = "[...document.querySelectorAll('#prices li')].map(each => Number(each.textContent.split(' ')[1]))"


def play(page: Page, address: str) -> None:
    page.call("Page.navigate", url=f"http://{address}/")
    page.until(f"{SHOWN}.length > 2")
    assert all(price < 20 for price in page.value(SHOWN))
    page.value("limit.value = 90; limit.oninput()")
    assert page.value("shown.value") == "90"
    page.until(f"Math.max(...{SHOWN}) > 50")
    assert page.value(f"Math.max(...{SHOWN})") < 90
    assert [each for each in page.logged if "favicon" not in each and "404" not in each] == []


@pytest.mark.thorough  # another start of Chromium
@on_a_loop
async def test_the_page_shows_what_is_below_the_threshold() -> None:
    assert len((FOLDER / "prices.py").read_text().splitlines()) < 40
    async with Brokers([("b1", "b5")]) as overlay, Client(overlay.address("b5")) as declaring:
        await declaring.advertise(QUOTE)
        with tempfile.TemporaryDirectory() as folder:
            for name in ("prices.py", "prices.html"):
                content = (FOLDER / name).read_text()
                content = content.replace("localhost:7001", overlay.address("b1"))
                (Path(folder) / name).write_text(content.replace("localhost:7005", overlay.address("b5")))
            app = runpy.run_path(str(Path(folder) / "prices.py"))["app"]
            async with page_of(app) as address:
                with chromium() as browser:
                    await asyncio.to_thread(lambda: play(browser.new_page(), address))


def post(address: str, vehicle: str, x: float, y: float) -> int:
    body = json.dumps({"x": x, "y": y}).encode()
    request = urllib.request.Request(
        f"http://{address}/vehicles/{vehicle}", body, {"content-type": "application/json"}
    )
    return int(urllib.request.urlopen(request, timeout=60).status)


def place_and_look(page: Page, address: str) -> None:
    """The vehicle "inside" is at (5, 1), "outside" at (15, 1): both are in a box around the corner."""
    page.call("Page.navigate", url=f"http://{address}/")
    page.until("typeof document.getElementById('map')?.onclick === 'function'")
    left, top = page.value("(({ left, top }) => [left + 1, top + 1])(map.getBoundingClientRect())")
    page.click(left + 200, top + 200)
    page.until("document.getElementById('count').value === '1'")
    page.move_to(left + 20, top + 20)
    page.until("document.getElementById('count').value === '2'")
    assert [each for each in page.logged if "favicon" not in each and "404" not in each] == []


@on_a_loop
async def test_the_backend_of_a_map() -> None:
    text = (FOLDER / "map_backend.py").read_text()
    assert len(text.splitlines()) < 40
    async with Brokers([("b1", "b5")]) as overlay:
        with tempfile.TemporaryDirectory() as folder:
            text = text.replace("localhost:7001", overlay.address("b1"))
            path = Path(folder) / "map_backend.py"
            path.write_text(text.replace("localhost:7005", overlay.address("b5")))
            shutil.copy(FOLDER / "map_backend.html", folder)
            app = runpy.run_path(str(path), run_name="map_backend")["app"]
            async with page_of(app) as address:
                await move_a_box(address)
                with chromium() as browser:
                    await asyncio.to_thread(lambda: place_and_look(browser.new_page(), address))


async def move_a_box(address: str) -> None:
    async with Browser(f"{address}/covey", overflow="conflate") as browser:
        box = {"filter": "x between $x0 and $x1", "values": {"x0": 0, "x1": 10}}
        answer = await browser.request("view", subscription=1, type="Vehicle", **box)
        assert answer["attributes"] == {"id": "string", "x": "float64", "y": "float64"}
        for vehicle, x in (("inside", 5), ("outside", 15)):
            assert await asyncio.to_thread(post, address, vehicle, x, 1) == 202
        entered = await browser.until("changes")
        assert entered["changes"] == ["enter"]
        assert entered["events"] == [{"id": "inside", "x": 5.0, "y": 1.0}]
        await browser.request("update", subscription=1, values={"x0": 10, "x1": 20})
        moved: dict[str, str] = {}
        while len(moved) < 2:  # what was posted last may still be on its way
            message = browser.other.pop(0) if browser.other else await browser.until("changes")
            names = [event["id"] for event in message["events"]]
            moved.update(zip(message["changes"], names, strict=True))
        assert moved == {"leave": "inside", "enter": "outside"}
