"""Looks at an HTML page in Chromium: pictures of it, and whether it fits, complains or asks for anything.

    python -m studies.page_check page.html shots/

Writes shots/page-<width>-<light|dark>.png and prints one line per look. Exit code 1 where the page is wider than the window,
writes to the console, or asks for what is no file beside it. Chromium is the machine's, else Debian's, unpacked without root.

Chromium is driven over its own pipe (DevTools protocol): only that has windows of 400 px (headless ones are at least
500 wide) and says what was asked for. Playwright would do the same over the same pipe with 50 MB of its own node.
"""

from __future__ import annotations

import base64
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from hwbench.core import debian

WIDTHS = (1400, 800, 400)
SCHEMES = ("light", "dark")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe")  # fmt: skip
PACKAGES = "chromium fonts-dejavu-core fonts-liberation fontconfig-config"
DRAWN = "document.documentElement.dataset.drawn ?? (document.getElementById('page-data') ? '' : 'yes')"
"""Whether a page's charts are there, where it has some."""
COMPLAINTS = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")


@dataclass(frozen=True)
class Look:
    """What one window of the page showed."""

    width: int
    scheme: str
    scroll_width: int
    complaints: tuple[str, ...]
    requests: tuple[str, ...]
    """Of anything but files below the page's folder or beside it."""
    load_ms: float
    """From the start of the navigation until every chart was drawn."""
    picture: Path
    told: Mapping[str, Any] = field(default_factory=dict)
    """What else was asked of the page there."""

    @property
    def good(self) -> bool:
        """Whether the page fits and keeps quiet."""
        return self.scroll_width <= self.width and not self.complaints and not self.requests


@dataclass
class Browser:
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

    def visit(self, address: str, width: int = 1400, scheme: str = "light") -> float:
        """Opens an address and waits until its charts are drawn; returns the milliseconds that took."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        for each in ("about:blank", address):  # an address that differs after # alone would not load again
            self.events.clear()
            self.ask("Page.navigate", url=each)
            self.wait_for("Page.loadEventFired")
        self.until(DRAWN)
        return float(self.value("performance.now()"))

    def value(self, expression: str) -> Any:
        """What an expression in JavaScript gives, once its promise is kept."""
        told = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise RuntimeError(f"{expression}: {told['exceptionDetails']}")
        return told["result"].get("value")

    def until(self, expression: str, seconds: float = 60.0) -> None:
        """Returns once an expression is true."""
        end = time.monotonic() + seconds
        while not self.value(expression):
            if time.monotonic() > end or self.complaints:
                raise RuntimeError(f"{expression} did not become true; the page said: {self.complaints}")
            time.sleep(0.02)

    def settle(self) -> None:
        """Returns once everything that was begun has been drawn."""
        self.value("new Promise(done => setTimeout(() => requestAnimationFrame(() => done(1)), 80))")

    @property
    def complaints(self) -> tuple[str, ...]:
        """What the page wrote to the console since it was opened."""
        return tuple(json.dumps(each["params"])[:600] for each in self.events if each["method"] in COMPLAINTS)

    def foreign(self, home: Path) -> tuple[str, ...]:
        """What was asked for that is no file below a folder."""
        asked = [each["params"]["request"]["url"] for each in self.events if each["method"] == "Network.requestWillBeSent"]
        return tuple(url for url in asked if not url.startswith((home.resolve().as_uri(), "data:", "blob:")))

    def picture(self, path: Path, whole: bool = True) -> Path:
        """Of the page as it is now."""
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(shot))
        return path

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


def chromium() -> tuple[list[str], dict[str, str]]:
    """How a command line begins, and the environment it needs.

    Raises:
        MeasurementError: there is none, and Debian's cannot be unpacked.
    """
    if found := shutil.which("chromium"):
        return [found], {}
    return _unpacked(debian.unpacked("chromium", PACKAGES, _prove))


def _unpacked(folder: Path) -> tuple[list[str], dict[str, str]]:
    libraries = folder / "usr" / "lib" / f"{platform.machine()}-linux-gnu"
    path = os.pathsep.join([str(libraries / "pulseaudio"), debian.library_path(folder), str(folder / "usr/lib/chromium")])
    return [str(folder / "usr/lib/chromium/chromium")], {"LD_LIBRARY_PATH": path, "FONTCONFIG_SYSROOT": str(folder)}


def _prove(folder: Path) -> None:
    command, environment = _unpacked(folder)
    debian.run([*command, "--version"], "start the unpacked chromium", environment)


def look(page: Path, folder: Path, ask: Mapping[str, str] | None = None) -> list[Look]:
    """The page at every width and in every scheme.

    Args:
        page: HTML file.
        folder: Where pictures go.
        ask: Name -> expression in JavaScript whose value is wanted of each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with started() as browser:
        return [_look(browser, page.resolve(), folder, width, scheme, ask or {}) for width in WIDTHS for scheme in SCHEMES]


@contextmanager
def started() -> Iterator[Browser]:
    """A browser with one empty tab."""
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(prefix="hwbench-", ignore_cleanup_errors=True) as profile:
        redirected = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'  # where Chromium looks for the pipe
        program, environment = chromium()
        command = ["bash", "-c", redirected, "bash", *program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        env = {**os.environ, **environment}
        process = subprocess.Popen(command, pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL, env=env)
        os.close(theirs_in)
        os.close(theirs_out)
        with os.fdopen(ours_out, "wb") as to, os.fdopen(ours_in, "rb") as back:
            browser = Browser(to, back)
            try:
                tab = browser.ask("Target.createTarget", url="about:blank")["targetId"]
                browser.session = browser.ask("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
                for part in ("Page", "Network", "Runtime", "Log"):
                    browser.ask(f"{part}.enable")
                yield browser
            finally:
                process.kill()
                process.wait()


def _look(browser: Browser, page: Path, folder: Path, width: int, scheme: str, ask: Mapping[str, str]) -> Look:
    took = browser.visit(page.as_uri(), width, scheme)
    return Look(
        width=width,
        scheme=scheme,
        scroll_width=int(browser.value("document.documentElement.scrollWidth")),
        complaints=browser.complaints,
        requests=browser.foreign(page if alone(page) else page.parent),
        load_ms=took,
        picture=browser.picture(folder / f"page-{width}-{scheme}.png"),
        told={name: browser.value(expression) for name, expression in ask.items()},
    )


def alone(page: Path) -> bool:
    """Whether a page should ask for nothing beside itself: it is no page of a site."""
    return not (page.parent / "assets").is_dir()


def main() -> None:
    """The command line."""
    if len(sys.argv) != 3 or not Path(sys.argv[1]).is_file():
        sys.exit("usage: python -m studies.page_check PAGE.html FOLDER")
    looks = look(Path(sys.argv[1]), Path(sys.argv[2]))
    for each in looks:
        print(
            f"{each.picture}: {each.scroll_width} of {each.width} px, drawn after {each.load_ms:.0f} ms",
            *each.complaints,
            *each.requests,
            sep="; ",
        )
    sys.exit(0 if all(each.good for each in looks) else 1)


if __name__ == "__main__":
    main()
