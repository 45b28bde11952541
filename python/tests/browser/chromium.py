"""A headless Chromium over its debugging pipe: real clicks, pointer moves, colour schemes, screenshots."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def find() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One tab. Messages are JSON that ends with a zero byte, on file descriptors 3 (to it) and 4."""

    def __init__(self) -> None:
        program = find()
        assert program
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self.out = os.pipe()
        self.inward, from_write = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
                 f"--user-data-dir={self.folder.name}", "--remote-debugging-pipe", "about:blank"]
        far = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (to_read, from_write)]
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{far[0]} 4>&{far[1]}', program, *flags], pass_fds=far,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for fd in (to_read, from_write, *far):
            os.close(fd)
        self.number, self.rest, self.events = 0, b"", []  # type: int, bytes, list[dict[str, Any]]
        self.session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def message(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            more = os.read(self.inward, 1 << 20)
            assert more, "Chromium has ended"
            self.rest += more
        line, self.rest = self.rest.split(b"\0", 1)
        return json.loads(line)  # type: ignore[no-any-return]

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.number += 1
        what: dict[str, Any] = {"id": self.number, "method": method, "params": params}
        if self.session:
            what["sessionId"] = self.session
        os.write(self.out, json.dumps(what).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]  # type: ignore[no-any-return]
            self.events.append(answer)

    def size(self, width: int, height: int, phone: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=2 if phone else 1, mobile=phone)

    def media(self, scheme: str, kind: str = "screen") -> None:
        self.call("Emulation.setEmulatedMedia", media=kind,
                  features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, page: Path | str) -> None:
        self.events.clear()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.message())

    def in_every_mode(self, page: Path | str) -> Iterator[str]:
        """Opens the page light, dark and in print, wide and on a phone; yields "screen" or "print" each time."""
        for scheme, kind in (("light", "screen"), ("dark", "screen"), ("light", "print")):
            for width, phone in ((1100, False), (390, True)):
                self.size(width, 800, phone)
                self.media(scheme, kind)
                self.open(page)
                yield kind
        self.media("light")

    def run(self, script: str) -> Any:
        """The value of an expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def place(self, selector: str, nth: int = 0) -> tuple[float, float]:
        """The middle of an element, scrolled into view."""
        x, y = self.run(f"""(() => {{ const e = document.querySelectorAll({json.dumps(selector)})[{nth}];
            e.scrollIntoView({{block: 'center', behavior: 'instant'}});
            const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }})()""")
        return x, y

    def hover(self, selector: str, nth: int = 0) -> None:
        x, y = self.place(selector, nth)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str, nth: int = 0) -> None:
        x, y = self.place(selector, nth)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def problems(self) -> list[str]:
        """Errors and warnings of the console, exceptions, and requests that leave the page."""
        self.run("1")
        found = []
        for event in self.events:
            method, params = event.get("method", ""), event.get("params", {})
            if method == "Runtime.exceptionThrown" or (
                    method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning")) or (
                    method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning")) or (
                    method == "Network.requestWillBeSent"
                    and not params["request"]["url"].startswith(("file:", "data:", "about:"))):
                found.append(json.dumps(params))
        return found

    def screenshot(self, path: Path, whole: bool = True) -> None:
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(10)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.inward)
        self.folder.cleanup()
