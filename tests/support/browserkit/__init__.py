"""A headless Chromium, driven over the DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from testkit import wait_until

#: Names of the program on different distributions.
_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str:
    """Return the path of Chromium, or skip the test."""
    for name in _NAMES:
        if (path := shutil.which(name)) is not None:
            return path
    pytest.skip("there is no Chromium: apt-get install chromium")


class Page:
    """A page in a browser of its own; use it as a context manager."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="pliant-chromium-")
        command = [
            find_chromium(),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-breakpad",
            "--no-first-run",
            "--remote-debugging-port=0",
            f"--user-data-dir={self._folder}",
            "about:blank",
        ]
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "HOME": self._folder},
        )
        self._open = ExitStack()
        try:
            self._link = self._open.enter_context(connect(self._address(), max_size=None))
        except BaseException:
            self._end()
            raise
        self._number = 0
        #: Errors that the console has shown.
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def _address(self) -> str:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if found := re.search(r"DevTools listening on ws://([^/]+)/", line):
                request = urllib.request.Request(
                    f"http://{found[1]}/json/new?about:blank", method="PUT"
                )
                with urllib.request.urlopen(request) as answer:
                    return str(json.load(answer)["webSocketDebuggerUrl"])
        raise AssertionError("Chromium did not start")

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._open.close()
        os.killpg(self._process.pid, signal.SIGKILL)  # the browser has a dozen processes
        self._process.wait(30)
        if self._process.stderr is not None:
            self._process.stderr.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol; return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        self._link.send(json.dumps(message))
        while True:
            answer = json.loads(self._link.recv(60))
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        data = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(data["exceptionDetails"])[:500])
        elif event.get("method") == "Log.entryAdded" and data["entry"]["level"] == "error":
            self.errors.append(data["entry"]["text"])

    def open(self, url: str) -> None:
        """Load an address."""
        self.call("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        result = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def until(self, expression: str, what: str = "") -> None:
        """Wait until an expression in the page is true."""
        code = f"(() => {{ try {{ return !!({expression}) }} catch {{ return false }} }})()"
        wait_until(lambda: self.evaluate(code) is True, what=what or expression)

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size of the window and the colours that the system prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        """Save a picture of the window."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))
