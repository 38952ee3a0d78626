"""A headless Chromium that tests drive over its DevTools pipe; no library is needed for that."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)


def browser() -> str | None:
    """The path of a Chromium on this machine, or None; one is driven under POSIX alone."""
    if sys.platform == "win32":
        return None
    return next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """One browser with one page. Use it as a context manager."""

    def __init__(self, width: int = 1200, height: int = 760, flags: Sequence[str] = ()) -> None:
        import fcntl

        program = browser()
        assert program is not None, "no Chromium"
        self.folder = tempfile.mkdtemp()
        read, self._out = os.pipe()
        self._in, write = os.pipe()
        # the browser reads commands from 3 and writes to 4
        read_high, write_high = (fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (read, write))

        def wire() -> None:
            os.dup2(read_high, 3)
            os.dup2(write_high, 4)

        size = (f"--window-size={width},{height}", f"--user-data-dir={self.folder}")
        self.process = subprocess.Popen(
            [program, *_FLAGS, *flags, *size, "about:blank"],
            preexec_fn=wire,
            pass_fds=(3, 4),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for fd in (read, write, read_high, write_high):
            os.close(fd)
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        found = self.send("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **metrics)

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._out)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(5)
        os.close(self._in)
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- protocol

    def send(self, method: str, *, within: float = 60.0, **params: Any) -> dict[str, Any]:
        """The result of a command, which takes some seconds at most."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(within)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def _next(self, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError("Chromium does not answer")
            data = os.read(self._in, 1 << 20)
            if not data:
                raise EOFError("Chromium has ended")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)

    # -- what tests do

    def open(self, path: str | Path) -> None:
        """Load a file, or an address with `://`, and wait until it is drawn."""
        self.events.clear()
        address = str(path)
        self.send(
            "Page.navigate",
            url=address if "://" in address else Path(address).resolve().as_uri(),
        )
        for _ in range(400):
            if self.run("document.readyState") == "complete":
                break
            time.sleep(0.01)
        self.frames()

    def run(self, script: str, *, within: float = 60.0) -> Any:
        """The value of an expression; promises are awaited, for some seconds at most.

        Raises:
            AssertionError: the script raises.
        """
        how = {"expression": script, "returnByValue": True, "awaitPromise": True}
        found = self.send("Runtime.evaluate", within=within, **how)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def frames(self, count: int = 2) -> None:
        """Wait until some frames are drawn."""
        self.run(
            f"new Promise(done => {{ let n = {count};"
            " const next = () => n-- > 0 ? requestAnimationFrame(next) : done(1); next(); })"
        )

    def key(self, key: str, text: str = "", modifiers: int = 0) -> None:
        """Press and release a key; `text` is what it types."""
        more = {"text": text} if text else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, modifiers=modifiers, **more)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, modifiers=modifiers)

    def type(self, text: str) -> None:
        """Type a text into what has the focus."""
        self.send("Input.insertText", text=text)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """A mouse event: mousePressed, mouseMoved, mouseReleased or mouseWheel."""
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float, count: int = 1) -> None:
        """Click at a place of the window; twice where `count` is 2."""
        for number in range(1, count + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.mouse(kind, x, y, button="left", clickCount=number)
        self.frames()

    def picture(self, path: str | Path | None = None) -> bytes:
        """A screenshot as PNG; written to a file, if one is given."""
        data = base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])
        if path is not None:
            Path(path).write_bytes(data)
        return data

    def seconds(self) -> float:
        """Processor time of the browser and all its processes until now; under Linux alone."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has just ended
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[2]) == self.process.pid:  # the process group
                    ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def theme(self, name: str) -> None:
        """Let the system look `dark` or `light`."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, of the policy too, and exceptions since `open`."""
        found = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            elif event.get("method") == "Log.entryAdded":
                found.append(params["entry"]["text"])
            elif event.get("method") == "Runtime.consoleAPICalled":
                found.append(str(params["args"]))
        return found

    def requests(self) -> list[str]:
        """The addresses that were asked for since `open`."""
        asked = [
            e["params"]["request"]["url"]
            for e in self.events
            if e.get("method") == "Network.requestWillBeSent"
        ]
        return asked
