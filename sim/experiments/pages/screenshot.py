"""A picture of a page, by Chromium where it is installed.

Chromium takes the picture when the page has loaded, and a page that is opened with `?hold` has loaded when
the server has answered `hold` (drawing.js).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from covey.matcher.errors import CoveyError, InputError
from covey.sim.experiments.pages.site import Site

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_PATIENCE_S = 120.0


def check_screenshot(path: Path) -> None:
    """`InputError` if no picture can be made there."""
    find_chromium()
    if path.is_dir() or not os.access(path.resolve().parent, os.W_OK):
        raise InputError(f"--screenshot {path}: expected a file in a folder that can be written to")


def find_chromium() -> str:
    """Its path. `InputError` if there is none."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        raise InputError("--screenshot needs Chromium: install chromium or google-chrome (Debian: chromium)")
    return path


async def picture(
    site: Site, path: Path, size: tuple[int, int], show: Callable[[], Awaitable[None]]
) -> None:
    """Open the page of a site that is served, await `show`, and write a PNG of the page."""
    width, height = size
    path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="covey-", ignore_cleanup_errors=True) as profile:
        options = [
            "--headless",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
            f"--user-data-dir={profile}",
            f"--window-size={width},{height}",
            f"--screenshot={path.resolve()}",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            f"{site.url}?hold",
        ]
        process = await asyncio.create_subprocess_exec(
            find_chromium(), *options, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await site.opened.wait()
                await show()
                site.release()
                await process.wait()
        except TimeoutError:
            raise CoveyError(f"--screenshot: Chromium did not answer within {_PATIENCE_S:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    if not path.exists():
        raise CoveyError(f"--screenshot {path}: Chromium wrote no picture")
