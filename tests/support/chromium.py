"""Headless Chromium, driven by the DevTools protocol over a pipe."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
_PATIENCE_S = 60


def find_chromium() -> str:
    """The path of Chromium; fails the test, with what to install, if there is none."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.fail("Pages are tried in Chromium: install it (Debian: chromium).", pytrace=False)
    return path


class Page:
    """A page. `logged` are errors and warnings of its scripts, `requests` the addresses that it loaded."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.logged: list[str] = []
        self.requests: list[str] = []

    def call(self, method: str, **parameters: Any) -> Any:
        return self._browser.call(method, parameters, self._session)

    def on_event(self, method: str, event: dict[str, Any]) -> None:
        match method:
            case "Runtime.exceptionThrown":
                details = event["exceptionDetails"]
                self.logged.append(details.get("exception", {}).get("description", details["text"]))
            case "Runtime.consoleAPICalled" if event["type"] in ("error", "warning", "assert"):
                self.logged.append(" ".join(str(each.get("value", each)) for each in event["args"]))
            case "Log.entryAdded" if event["entry"]["level"] in ("error", "warning"):
                self.logged.append(event["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(event["request"]["url"])

    def open(self, path: Path, width: int, height: int = 1000) -> None:
        """Load a file, in a window of this size in pixels, and wait until all figures are drawn."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.until("document.readyState === 'complete'")
        self.until("typeof Bokeh === 'undefined' || Bokeh.documents.every(each => each.is_idle)")

    def value(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        end = monotonic() + _PATIENCE_S
        while not self.value(expression):
            assert monotonic() < end, f"{expression} stays false"

    def move_to(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float) -> None:
        self.move_to(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path) -> None:
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(b64decode(shot["data"]))


class Browser:
    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._rest = b""
        self._calls = 0
        self._pages: dict[str, Page] = {}

    def call(self, method: str, parameters: dict[str, Any], session: str | None = None) -> Any:
        self._calls += 1
        number = self._calls
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer.get('error')}"
                return answer["result"]
            page = self._pages.get(answer.get("sessionId", ""))
            if page is not None and "method" in answer:
                page.on_event(answer["method"], answer["params"])

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            chunk = os.read(self._from, 1 << 16)
            assert chunk, "Chromium has ended"
            self._rest += chunk
        message, _, self._rest = self._rest.partition(b"\0")
        parsed: dict[str, Any] = json.loads(message)
        return parsed

    def new_page(self) -> Page:
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        return page


@contextmanager
def chromium() -> Iterator[Browser]:
    path = find_chromium()
    to_browser, from_browser = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        options += ["--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        ends = to_browser[0], from_browser[1]  # which Chromium expects as 3 and 4
        program = f'exec 3<&{ends[0]} 4>&{ends[1]}; exec "$0" "$@" 2>/dev/null'
        process = subprocess.Popen(["bash", "-c", program, path, *options], pass_fds=ends)
        os.close(to_browser[0])
        os.close(from_browser[1])
        try:
            yield Browser(to_browser[1], from_browser[0])
        finally:
            os.close(to_browser[1])
            os.close(from_browser[0])
            process.terminate()
            process.wait(30)
