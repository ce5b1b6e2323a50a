"""A headless Chromium for tests, driven over WebDriver on the loopback."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync"
    " --disable-background-networking --disable-component-update --disable-dev-shm-usage"
    " --hide-scrollbars --window-size=1280,1400"
)


class Browser:
    """A headless Chromium, driven over WebDriver on the loopback."""

    def __init__(self, port: int, profile: Path) -> None:
        self.root = f"http://127.0.0.1:{port}"
        options = {
            "binary": CHROMIUM,
            "args": [*FLAGS.split(), f"--user-data-dir={profile}"],
            "perfLoggingPrefs": {"enableNetwork": True},
        }
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        started = self._send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.session = f"/session/{started['sessionId']}"

    def _send(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.root + path,
            data,
            {"Content-Type": "application/json", "Host": "localhost"},
            method=method,
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def command(self, path: str, **body: Any) -> Any:
        return self._send("POST", self.session + path, body)

    def open(self, path: Path | str) -> None:
        """Open a file or a URL, and clear the logs of the previous page."""
        self.command("/url", url="about:blank")
        self.log("browser"), self.log("performance")
        self.command("/url", url=path if isinstance(path, str) else path.as_uri())

    def run(self, script: str, *args: Any) -> Any:
        return self.command("/execute/sync", script=script, args=list(args))

    def wait(self, script: str) -> Any:
        """Run a script until its result is true, and return the result."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if found := self.run(script):
                return found
        raise AssertionError(f"never true: {script}")

    def devtools(self, cmd: str, **params: Any) -> Any:
        return self.command("/goog/cdp/execute", cmd=cmd, params=params)

    def log(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.command("/se/log", type=kind)
        return found

    def requested(self) -> set[str]:
        """Return the URLs that the browser requested since the page was opened.

        Images that are part of the page (`data:`) and blank pages (`about:`) are left out.
        """
        events = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        sent = (event for event in events if event["method"] == "Network.requestWillBeSent")
        return {
            url
            for event in sent
            if not (url := event["params"]["request"]["url"]).startswith(("data:", "about:"))
        }

    def type(self, text: str) -> None:
        script = "const field = document.getElementById('search'); field.value = arguments[0];"
        self.run(script + "field.dispatchEvent(new Event('input'))", text)

    def key(self, key: str, *, shift: bool = False) -> None:
        options = "{key: arguments[0], shiftKey: arguments[1], bubbles: true}"
        event = f"new KeyboardEvent('keydown', {options})"
        self.run(f"document.getElementById('search').dispatchEvent({event})", key, shift)

    def screenshot(self, path: Path) -> None:
        shot = self.devtools("Page.captureScreenshot", format="png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        self._send("DELETE", self.session)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Start Chromium once for a module of tests."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("needs chromium and chromedriver; `make browser` installs them on Debian")
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Start Chromium with its driver; end both when the block ends."""
    assert DRIVER is not None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen(
        [DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as driver:
        try:
            _wait_for_port(port, driver)
            started = Browser(port, profile)
            yield started
            started.close()
        finally:
            driver.terminate()


def _wait_for_port(port: int, driver: subprocess.Popen[bytes]) -> None:
    """Wait until the driver accepts connections."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert driver.poll() is None, "chromedriver ended early"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            continue
    raise AssertionError("chromedriver did not begin to listen")
