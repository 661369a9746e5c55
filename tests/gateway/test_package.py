"""The browser's client as an npm package: packed, installed beside React, bundled, and run in headless
Chromium."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
from pathlib import Path

import pytest
from chromium import Page, chromium
from gateways import page_of
from running import Brokers, on_a_loop
from starlette.applications import Starlette
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route

from covey.gateway import Limits, application
from covey.matcher import EventType
from covey.overlay import Client

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "gateway" / "browser"
SHIP = EventType("Ship", {"id": "int64", "x": "int64"}, key="id")
APPLICATION = {
    "private": True,
    "type": "module",
    "dependencies": {"esbuild": "^0.25.0", "react": "^19.0.0", "react-dom": "^19.0.0"},
}
PAGE = '<!doctype html><meta charset="utf-8"><div id="root"></div><script src="/bundle.js"></script>'
OFFLINE = re.compile("ENOTFOUND|ECONN|EAI_AGAIN|ETIMEDOUT|ENETUNREACH|network|E403|E404|E50")
_PATIENCE_S = 240


def run(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)


def packed(folder: Path) -> Path:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed (Debian: npm)")
    done = run("npm", "pack", PACKAGE, "--silent", folder=folder)
    assert done.returncode == 0, done.stderr
    (tarball,) = folder.glob("*.tgz")
    return tarball


def test_the_package_has_its_files_and_the_version_of_covey(tmp_path: Path) -> None:
    described = json.loads((PACKAGE / "package.json").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (described["version"], described["license"]) == (project["version"], project["license"])
    with tarfile.open(packed(tmp_path)) as archive:
        names = {name.removeprefix("package/") for name in archive.getnames()}
    assert names == {"package.json", *described["files"]}
    entries = [path for entry in described["exports"].values() for path in entry.values()]
    assert {Path(path).name for path in entries} == set(described["files"])


def bundle(folder: Path) -> Path:
    """The bundle of a page that has installed the package."""
    tarball = packed(folder)
    (folder / "package.json").write_text(json.dumps(APPLICATION))
    shutil.copy(Path(__file__).parent / "react_page.jsx", folder / "page.jsx")
    done = run("npm", "install", "--silent", "--prefer-offline", "--no-package-lock", tarball, folder=folder)
    if done.returncode and OFFLINE.search(done.stdout + done.stderr):
        pytest.skip("npm does not reach its registry, which has esbuild and React")
    assert done.returncode == 0, done.stdout + done.stderr
    options = ["--bundle", "--jsx=automatic", "--outfile=bundle.js"]
    done = run(folder / "node_modules" / ".bin" / "esbuild", "page.jsx", *options, folder=folder)
    assert done.returncode == 0, done.stderr
    return folder / "bundle.js"


def play(page: Page, address: str) -> None:
    page.call("Page.navigate", url=f"http://{address}/")
    page.until("document.getElementById('inside')?.textContent === '1'")
    page.until("document.getElementById('ready').textContent === 'Ship'")
    page.value("document.getElementById('wider').click()")
    page.until("document.getElementById('inside').textContent === '1 2'")
    page.until("document.getElementById('limit').textContent === '30'")
    page.value("covey.publish('Ship', {id: 2, x: 50})")
    page.until("document.getElementById('inside').textContent === '1'")
    page.until("document.getElementById('events').textContent === '50'")
    page.value("document.getElementById('wrong').click()")
    page.until("document.getElementById('error').textContent.includes('expected a number')")
    page.value("document.getElementById('wider').click()")
    page.until("document.getElementById('error').textContent === ''")
    page.value("document.getElementById('other').click()")
    page.until("document.getElementById('inside').textContent === '2'")
    shown = page.value("shown.filter((each) => each.startsWith('x > '))")
    assert set(shown) <= {"x > $limit: ", "x > $limit: 2"}
    page.value("document.getElementById('away').click()")
    page.until("document.getElementById('inside') === null")
    assert page.logged == []


@on_a_loop
async def test_a_bundled_page_moves_its_view_by_its_state() -> None:
    with tempfile.TemporaryDirectory(prefix="covey-package-") as folder:
        script = await asyncio.to_thread(bundle, Path(folder))
        await serve_and_play(script)


async def serve_and_play(script: Path) -> None:
    async with Brokers() as brokers, Client(brokers.address("b1")) as fleet:
        await fleet.advertise(SHIP)
        await fleet.publish("Ship", id=1, x=5)
        await fleet.publish("Ship", id=2, x=20, confirm=True)
        limits = Limits()
        mounted = application(brokers.address("b1"), publish=["Ship"], limits=limits)

        async def page(request: object) -> Response:
            return Response(PAGE, media_type="text/html")

        async def bundled(request: object) -> FileResponse:
            return FileResponse(script)

        routes = [Route("/", page), Route("/bundle.js", bundled), Route("/favicon.ico", bundled)]
        routes.append(Mount("/covey", mounted))
        app = Starlette(routes=routes, lifespan=mounted.router.lifespan_context)
        async with page_of(app, limits) as address:
            with chromium() as browser:
                await asyncio.to_thread(play, browser.new_page(), address)
