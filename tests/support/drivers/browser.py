"""A headless Chromium, driven over its DevTools protocol: enough to look at a page and press a button."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

__all__ = ["CHROMIUM", "PAGE_BYTES", "Page", "browsing"]

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
PAGE_BYTES = """[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
.reduce((sum, each) => sum + each.decodedBodySize, 0)"""
"""A script that gives the size of the page with its files, as a browser holds them."""
_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-port=0"),
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",  # a page of its own beside each that is looked at
)


_PAGE_IS_LEFT = -32_000
"""The code of a command that the page's own way to another address ended."""


class PageLeft(AssertionError):
    """The page went to another address in the middle of a command."""


class Page:
    """One tab."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._number = 0

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One DevTools command and its answer."""
        self._number += 1
        self._connection.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._connection.recv(timeout=300))
            if message.get("id") == self._number:
                if message.get("error", {}).get("code") == _PAGE_IS_LEFT:
                    raise PageLeft(message)
                assert "error" not in message, message
                return dict(message["result"])

    def open(self, url: str, **cookies: str) -> None:
        """Go to an address."""
        for name, value in cookies.items():
            self.call("Network.setCookie", url=url, name=name, value=value)
        self.call("Page.navigate", url=url)

    def value(self, script: str) -> Any:
        """What a script comes to."""
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def until(self, script: str, *, timeout_s: float = 300.0) -> Any:
        """The script's value once it is true; where the page is left meanwhile, the next one is asked."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with suppress(PageLeft):
                if found := self.value(script):
                    return found
            time.sleep(0.25)
        raise AssertionError(f"{script} did not come true; the page says: {self.value('document.body.innerText')}")

    def press(self, label: str) -> None:
        """Press the button with this label."""
        wanted = json.dumps(label)
        button = f"[...document.querySelectorAll('button')].find(b => b.innerText.trim() === {wanted} && !b.disabled)"
        self.until(f"!!{button}")
        self.value(f"{button}.click()")

    def picture(self, file: Path) -> None:
        """What can be seen of the page, as PNG."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def browsing(profile: Path, *, width: int = 1400, height: int = 1000) -> Iterator[Page]:
    """A browser with one empty page, ended afterwards."""
    command = [str(CHROMIUM), *_OPTIONS, f"--user-data-dir={profile}", f"--window-size={width},{height}", "about:blank"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            with connect(_address(profile), max_size=None, proxy=None) as connection:
                yield Page(connection)
        finally:
            process.terminate()


def _address(profile: Path) -> str:
    """Where the page's DevTools listen: the browser writes its port down once it is ready."""
    file = profile / "DevToolsActivePort"
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        if file.exists() and (lines := file.read_text().splitlines()):
            connection = HTTPConnection("127.0.0.1", int(lines[0]), timeout=120)
            connection.request("GET", "/json/list")
            pages = [page for page in json.loads(connection.getresponse().read()) if page["type"] == "page"]
            if pages:
                return str(pages[0]["webSocketDebuggerUrl"])
        time.sleep(0.1)
    raise AssertionError("the browser did not come up")
