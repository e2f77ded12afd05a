"""Looks at an HTML page in Chromium: pictures of it, and whether it fits, complains or asks for anything.

    python -m studies.page_check page.html shots/

Writes shots/page-<width>-<light|dark>.png and prints one line per look. Exit code 1 where the page is wider than the window,
writes to the console, or asks for a file other than itself. Needs the Debian packages chromium and fonts-dejavu-core.

Chromium is driven over its own pipe (the DevTools protocol), because a window of 400 px cannot be had otherwise: headless
windows are at least 500 px wide, and only the protocol says what was asked for.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

WIDTHS = (1200, 400)
SCHEMES = ("light", "dark")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe")  # fmt: skip
COMPLAINTS = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")


@dataclass(frozen=True)
class Look:
    """What one window of the page showed."""

    width: int
    scheme: str
    scroll_width: int
    complaints: tuple[str, ...]
    requests: tuple[str, ...]
    """Of anything but the page itself."""
    picture: Path
    told: Mapping[str, Any] = field(default_factory=dict)
    """What else was asked of the page there."""

    @property
    def good(self) -> bool:
        """Whether the page fits and keeps quiet."""
        return self.scroll_width <= self.width and not self.complaints and not self.requests


@dataclass
class _Browser:
    """Commands to one tab, and the events it sent."""

    to: BinaryIO
    back: BinaryIO
    session: str = ""
    events: list[Mapping[str, Any]] = field(default_factory=list)
    asked: int = 0

    def ask(self, method: str, **parameters: Any) -> Mapping[str, Any]:
        """The answer to a command."""
        self.asked += 1
        session = {"sessionId": self.session} if self.session else {}
        self.to.write(json.dumps({"id": self.asked, "method": method, "params": parameters, **session}).encode() + b"\0")
        self.to.flush()
        while True:
            message = self._read()
            if message.get("id") == self.asked:
                if "error" in message:
                    raise RuntimeError(f"Chromium refused {method}: {message['error']}")
                return dict(message["result"])

    def wait_for(self, event: str) -> None:
        """Returns once the tab has sent an event of that name."""
        while not any(each["method"] == event for each in self.events):
            self._read()

    def _read(self) -> Mapping[str, Any]:
        raw = bytearray()
        while (byte := self.back.read(1)) != b"\0":
            if not byte:
                raise RuntimeError("Chromium ended; does it start on its own?")
            raw += byte
        message: Mapping[str, Any] = json.loads(raw)
        if "method" in message:
            self.events.append(message)
        return message


def look(page: Path, folder: Path, ask: Mapping[str, str] | None = None) -> list[Look]:
    """The page at every width and in every scheme.

    Args:
        page: HTML file.
        folder: Where pictures go.
        ask: Name -> expression in JavaScript whose value is wanted of each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _started() as browser:
        return [_look(browser, page.resolve(), folder, width, scheme, ask or {}) for width in WIDTHS for scheme in SCHEMES]


@contextmanager
def _started() -> Iterator[_Browser]:
    """A browser with one empty tab."""
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(prefix="hwbench-", ignore_cleanup_errors=True) as profile:
        redirected = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'  # where Chromium looks for the pipe
        command = ["bash", "-c", redirected, "bash", "chromium", *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(command, pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        with os.fdopen(ours_out, "wb") as to, os.fdopen(ours_in, "rb") as back:
            browser = _Browser(to, back)
            try:
                tab = browser.ask("Target.createTarget", url="about:blank")["targetId"]
                browser.session = browser.ask("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
                for part in ("Page", "Network", "Runtime", "Log"):
                    browser.ask(f"{part}.enable")
                yield browser
            finally:
                process.kill()
                process.wait()


def _look(browser: _Browser, page: Path, folder: Path, width: int, scheme: str, ask: Mapping[str, str]) -> Look:
    browser.events.clear()
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.ask("Page.navigate", url=page.as_uri())
    browser.wait_for("Page.loadEventFired")

    def value(expression: str) -> Any:
        return browser.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"]["value"]

    size = value("document.documentElement.scrollWidth")
    shot = browser.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]
    picture = folder / f"page-{width}-{scheme}.png"
    picture.write_bytes(base64.b64decode(shot))
    asked = [each["params"]["request"]["url"] for each in browser.events if each["method"] == "Network.requestWillBeSent"]
    return Look(
        width=width,
        scheme=scheme,
        scroll_width=int(size),
        complaints=tuple(json.dumps(each["params"])[:300] for each in browser.events if each["method"] in COMPLAINTS),
        requests=tuple(url for url in asked if url != page.as_uri() and not url.startswith("data:")),
        picture=picture,
        told={name: value(expression) for name, expression in ask.items()},
    )


def main() -> None:
    """The command line."""
    if len(sys.argv) != 3 or not Path(sys.argv[1]).is_file():
        sys.exit("usage: python -m studies.page_check PAGE.html FOLDER")
    if shutil.which("chromium") is None:
        sys.exit("There is no chromium; run: apt-get install -y chromium fonts-dejavu-core")
    looks = look(Path(sys.argv[1]), Path(sys.argv[2]))
    for each in looks:
        print(f"{each.picture}: {each.scroll_width} of {each.width} px", *each.complaints, *each.requests, sep="; ")
    sys.exit(0 if all(each.good for each in looks) else 1)


if __name__ == "__main__":
    main()
