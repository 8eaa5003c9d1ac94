"""A browser without a window: Chromium, installed or of Debian's packages, driven by the W3C WebDriver protocol of its driver."""

from __future__ import annotations

import base64
import http.client
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from services import debian
from services.processes import LOCALHOST, free_port, started, wait_until

LOCK = debian.LOCKS / "chromium-debian-12.txt"
LIBRARIES = (debian.LIBRARIES, debian.LIBRARIES / "pulseaudio", Path("lib/x86_64-linux-gnu"))
READY_SECONDS = 60
PAGE_SECONDS = 15
# Nothing of the machine but what is shown: no sandbox of its own in a container, nothing in the background, no network but ours.
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb",
    "--disable-background-networking", "--disable-component-update", "--no-first-run", "--lang=en-US",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)  # fmt: skip
FONTS = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{folder}/usr/share/fonts</dir>
  <cachedir>{cache}</cachedir>
  <alias><family>system-ui</family><prefer><family>Inter</family></prefer></alias>
  <alias><family>sans-serif</family><prefer><family>Inter</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
"""


@dataclass(frozen=True)
class Program:
    """A browser, what its driver calls it, the driver, and the environment that both need."""

    name: str
    binary: Path
    driver: Path
    environment: dict[str, str]


class WebDriverFailed(Exception):
    """The driver refused a command."""


class Browser:
    """One window, and what happened in it."""

    def __init__(self, port: int, session: str) -> None:
        self._port = port
        self._session = session
        self._log: list[dict[str, Any]] = []

    def open(self, url: str) -> None:
        """Goes to an address, and waits until the page is loaded."""
        self._call("POST", "/url", {"url": url})

    def shape(self, width: int, height: int, *, phone: bool = False) -> None:
        """How large the window is."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone
        )

    def prefer(self, scheme: str) -> None:
        """What the machine prefers: `light` or `dark`."""
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def js(self, script: str, *arguments: Any) -> Any:
        """What a script returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script: str, what: str) -> Any:
        """Waits until a script returns something true, and returns that."""
        return wait_until(lambda: self.js(f"return {script}"), PAGE_SECONDS, what)

    def keys(self, text: str) -> None:
        """Types into whatever has the focus: characters, or one of the codes of WebDriver for keys."""
        strokes = [{"type": kind, "value": mark} for mark in text for kind in ("keyDown", "keyUp")]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]})

    def click(self, selector: str) -> None:
        """Clicks on an element."""
        found = self._call("POST", "/element", {"using": "css selector", "value": selector})
        (element,) = found.values()
        self._call("POST", f"/element/{element}/click", {})

    def text(self, selector: str = "body") -> str:
        """The text of an element as it is shown."""
        shown: str = self.js("return document.querySelector(arguments[0]).innerText", selector)
        return shown

    def picture(self, path: Path) -> None:
        """Takes a picture of the whole page."""
        height = self.js("return document.documentElement.scrollHeight")
        width = self.js("return document.documentElement.clientWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def console(self) -> list[str]:
        """What pages have complained about since the last time: errors of scripts, refused contents, failed requests."""
        entries = self._call("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("WARNING", "SEVERE")]

    def requests(self) -> list[str]:
        """The addresses that were asked for since the last time."""
        entries = self._call("POST", "/se/log", {"type": "performance"})
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        return [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]

    def devtools(self, command: str, **parameters: Any) -> Any:
        """A command of Chromium's own."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return _ask(self._port, method, f"/session/{self._session}{path}", body)


def _ask(port: int, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    connection = http.client.HTTPConnection(LOCALHOST, port, timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        value = json.loads(connection.getresponse().read())["value"]
    finally:
        connection.close()
    if isinstance(value, dict) and "error" in value:
        raise WebDriverFailed(f"{value['error']}: {value.get('message', '')}")
    return value


@contextmanager
def running_chromium(folder: Path) -> Iterator[Browser]:
    """A browser of its own in the folder, as long as the block."""
    program, port = _program(folder), free_port()
    command = [str(program.driver), f"--port={port}"]
    with started("chromedriver", command, folder / "driver.log", env=program.environment) as child:
        wait_until(lambda: _is_ready(port), READY_SECONDS, "chromedriver", child)
        session = _begin(port, program, folder / "profile")
        try:
            yield Browser(port, session)
        finally:
            _ask(port, "DELETE", f"/session/{session}")


def _is_ready(port: int) -> bool:
    try:
        return bool(_ask(port, "GET", "/status")["ready"])
    except OSError:
        return False


def _begin(port: int, program: Program, profile: Path) -> str:
    options = {"binary": str(program.binary), "args": [*ARGUMENTS, f"--user-data-dir={profile}"]}
    logs = {"browser": "ALL", "performance": "ALL"}
    wanted = {"browserName": program.name, "goog:chromeOptions": options, "goog:loggingPrefs": logs}
    session: str = _ask(port, "POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
    return session


def _program(scratch: Path) -> Program:
    """The browser of the machine, or Debian's."""
    installed = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if all(installed):
        return Program("chrome", Path(str(installed[0])), Path(str(installed[1])), {})
    if not debian.is_possible():
        pytest.skip("there is no Chromium here, and no Debian for x86-64 whose archive has one")
    folder = debian.unpacked("chromium", LOCK)
    fonts = scratch / "fonts.conf"
    fonts.write_text(FONTS.format(folder=folder, cache=scratch / "fonts-cache"))
    libraries = os.pathsep.join(str(folder / path) for path in LIBRARIES)
    environment = {"LD_LIBRARY_PATH": libraries, "FONTCONFIG_FILE": str(fonts)}
    shell = folder / "usr/lib/chromium/chromium-headless-shell"
    return Program("chrome-headless-shell", shell, folder / "usr/bin/chromedriver", environment)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for the test run."""
    with running_chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found
