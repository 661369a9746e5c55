"""examples/prices.py: a page whose threshold moves, in Chromium, behind FastAPI."""

from __future__ import annotations

import asyncio
import runpy
import tempfile
from pathlib import Path

import pytest
import uvicorn
from chromium import Page, chromium
from running import QUOTE, Brokers, free_ports, on_a_loop

from covey.overlay import Client

pytest.importorskip("fastapi", reason="FastAPI is not installed")

FOLDER = Path(__file__).resolve().parent.parent.parent / "examples"
SHOWN = "[...document.querySelectorAll('#prices li')].map(each => Number(each.textContent.split(' ')[1]))"


def play(page: Page, port: int) -> None:
    page.call("Page.navigate", url=f"http://127.0.0.1:{port}/")
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
            (port,) = free_ports(1)
            serving = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning"))
            done = asyncio.create_task(serving.serve())
            while not serving.started:
                await asyncio.sleep(0.01)
            with chromium() as browser:
                await asyncio.to_thread(lambda: play(browser.new_page(), port))
            serving.should_exit = True
            await done
