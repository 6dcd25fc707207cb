"""A headless Chromium driven over its DevTools pipe, with the standard library alone.

Commands go to the browser's file descriptor 3 and answers come from 4, each a JSON text ended by a zero byte
(Chromium's `--remote-debugging-pipe`).
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)


def find_chromium() -> str | None:
    """Return the path of a Chromium or Chrome, or None."""
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))),
        None,
    )


class Browser:
    """One browser process with one page; a context manager."""

    def __init__(self, binary: str) -> None:
        self.profile = tempfile.mkdtemp(prefix="hangscope-chromium-")
        to_child, self._out = os.pipe()
        self._in, from_child = os.pipe()
        os.set_inheritable(to_child, True)
        os.set_inheritable(from_child, True)
        # The shell moves both ends to the numbers where Chromium looks for them.
        self._process = subprocess.Popen(
            [
                "/bin/bash",
                "-c",
                f'exec "$@" 3<&{to_child} 4>&{from_child}',
                "sh",
                binary,
                *FLAGS,
                f"--user-data-dir={self.profile}",
                "about:blank",
            ],
            pass_fds=(to_child, from_child),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_child)
        os.close(from_child)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._out)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command and return its result; events that arrive meanwhile go to `events`."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        deadline = time.monotonic() + 60
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self.events.append(answer)

    def wait_for(self, method: str) -> dict[str, Any]:
        """Return the first event of this name since `events` was last emptied."""
        deadline = time.monotonic() + 60
        while True:
            for event in self.events:
                if event.get("method") == method:
                    return event
            self.events.append(self._receive(deadline))

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self._in, 1 << 16) if ready else b""
            if not chunk:
                raise TimeoutError("Chromium does not answer")
            self._buffer += chunk
        text, self._buffer = self._buffer.split(b"\0", 1)
        return dict(json.loads(text))

    def open(
        self,
        file: Path,
        *,
        width: int = 1280,
        height: int = 800,
        dark: bool = False,
        print_media: bool = False,
        scripts: bool = True,
    ) -> None:
        """Load a file at a viewport in CSS pixels; `events` then holds what this load caused."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call(
            "Emulation.setEmulatedMedia",
            media="print" if print_media else "",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        # Console messages of the page before are not this page's.
        self.call("Page.navigate", url="about:blank")
        self.evaluate("document.readyState")
        self.events.clear()
        self.call("Page.navigate", url=file.as_uri())
        self.wait_for("Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """Return the JSON value of a JavaScript expression (a promise is awaited)."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """Return console messages, errors, policy violations and outside requests since `open`."""
        self.evaluate("new Promise(done => setTimeout(() => done(1), 50))")
        found = []
        for event in self.events:
            method, params = event.get("method", ""), event.get("params", {})
            if method in (
                "Runtime.consoleAPICalled",
                "Runtime.exceptionThrown",
                "Log.entryAdded",
                "Audits.issueAdded",
            ):
                found.append(f"{method}: {json.dumps(params)[:400]}")
            elif method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith(("file:", "data:", "blob:", "about:")):
                    found.append(f"request: {url}")
        return found


PANEL = "document.querySelector('#panel').hidden ? '' : document.querySelector('#panel').innerText"


def settled(browser: Browser, expression: str) -> bool:
    """Return whether an expression becomes true soon: data is decoded asynchronously."""
    for _ in range(60):
        if browser.evaluate(expression):
            return True
        browser.evaluate("new Promise(done => setTimeout(done, 25))")
    return False


def press(browser: Browser, key: str) -> None:
    event = f"new KeyboardEvent('keydown', {{key: {key!r}, bubbles: true}})"
    browser.evaluate(f"(document.activeElement || document.body).dispatchEvent({event})")


def search(browser: Browser, words: str) -> None:
    browser.evaluate(
        f"(() => {{ const q = document.querySelector('#query'); q.value = {words!r};"
        " q.dispatchEvent(new Event('input')); })()"
    )
