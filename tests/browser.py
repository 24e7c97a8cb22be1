"""Controls a headless Chromium through the DevTools protocol over two pipes. Tests read what a page shows, which URLs
it requests, and its errors. This module needs Debian's package chromium or Google Chrome, and nothing else. (Ubuntu has
Chromium only as a snap, so third_party/apt-packages-tests.txt cannot name it.)"""

import base64
import contextlib
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

LONG_S = 60  # time limit in seconds for each answer of the browser
PHONE, DESK = (390, 844), (1440, 900)


def program():
    """Returns the path of Chromium or Google Chrome, or None if neither is installed."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for path in map(shutil.which, names) if path), None)


class Browser:
    """Runs a browser with one tab. Use it as a context manager, whose exit closes the browser."""

    def __init__(self):
        self._exit = contextlib.ExitStack()
        folder = self._exit.enter_context(tempfile.TemporaryDirectory(prefix="lockstep-browser-", ignore_cleanup_errors=True))
        # Chromium reads from file descriptor 3 and writes to 4. The pipes get descriptors from 10 on: if a pipe had the
        # descriptor 3 or 4, a redirection in bash would overwrite it.
        theirs_in, ours_out = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in os.pipe())
        ours_in, theirs_out = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in os.pipe())
        self._out, self._in = ours_out, ours_in
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", program(), "--headless=new", "--no-sandbox",
             "--remote-debugging-pipe", f"--user-data-dir={folder}", "--no-first-run", "--disable-gpu",
             "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
             "--disable-default-apps", "--disable-sync", "--hide-scrollbars", "about:blank"],
            pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._bytes, self._events, self._number, self._session = b"", [], 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self._events.clear()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        with contextlib.suppress(OSError, AssertionError):
            self._session = None
            self.call("Browser.close")
        try:
            self._process.wait(LONG_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._exit.close()

    def _receive(self, deadline):
        while b"\0" not in self._bytes:
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self._in], [], [], left)[0], "the browser does not answer"
            piece = os.read(self._in, 1 << 20)
            assert piece, "the browser has ended"
            self._bytes += piece
        message, self._bytes = self._bytes.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + LONG_S
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            if "method" in answer:
                self._events.append((answer["method"], answer["params"]))

    def show(self, size=DESK, is_dark=False):
        """Sets the size of the screen in CSS pixels, and whether pages see that the user prefers dark colours."""
        width, height = size
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=2 if size == PHONE else 1, mobile=size == PHONE)  # fmt: skip
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}])  # fmt: skip

    def open(self, url):
        """Opens a page of Lockstep and waits until the page has drawn itself. Returns the milliseconds from the request
        of the page to the end of its drawing."""
        # A blank page replaces the page that was open, so that the old page requests nothing more.
        self.call("Page.navigate", url="about:blank")
        self.evaluate("0")
        self._events.clear()
        self.call("Page.navigate", url=str(url))
        return self.evaluate("""new Promise((resolve) => {
            const look = () => {
              const [mark] = performance.getEntriesByName('drawn');
              if (mark) resolve(mark.startTime); else requestAnimationFrame(look);
            };
            look();
          })""")

    def evaluate(self, script):
        """Returns the value of a JavaScript expression. If the value is a promise, waits for it and returns the
        promise's value."""
        deadline = time.monotonic() + LONG_S
        while True:
            try:
                result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
                break
            except AssertionError as error:  # when the browser leaves a page, the page's pending promises fail
                if "navigat" not in str(error) and "context" not in str(error) or time.monotonic() > deadline:
                    raise
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait_until(self, condition):
        """Waits until the JavaScript `condition` is true, and fails if it is still false after LONG_S - 5 = 55 s."""
        assert self.evaluate(f"""new Promise((resolve) => {{
            const end = performance.now() + {LONG_S * 1000 - 5000};
            const look = () => {{
              if ({condition}) resolve(true);
              else if (performance.now() > end) resolve(false);
              else setTimeout(look, 20);
            }};
            look();
          }})"""), f"it did not come to be: {condition}"

    def text(self, selector):
        """Returns the visible text of an element."""
        return self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    def requests(self):
        """Returns the URLs that the page has requested since it was opened."""
        self.evaluate("0")  # events of earlier requests arrive before the answer to this call
        return [p["request"]["url"] for name, p in self._events if name == "Network.requestWillBeSent"]

    def complaints(self):
        """Returns the errors and warnings on the console since the page was opened."""
        self.evaluate("0")
        found = []
        for name, parameters in self._events:
            if name == "Runtime.exceptionThrown":
                found.append(parameters["exceptionDetails"].get("exception", {}).get("description", "exception"))
            elif name == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                found.append(parameters["entry"]["text"])
            elif name == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
                found.append(str(parameters["args"]))
        return found

    def picture(self, path, whole=True):
        """Writes a PNG of the whole page, or only of its part on the screen if `whole` is false."""
        options = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            options = {"captureBeyondViewport": True, "clip": {**size, "scale": 1}}
        shot = self.call("Page.captureScreenshot", format="png", **options)
        pathlib.Path(path).write_bytes(base64.b64decode(shot["data"]))

    def drag(self, begin, end):
        """Moves the pointer from `begin` to `end`, both (x, y) on the screen in CSS pixels, with the left button down.
        """
        for kind, (x, y), buttons in (("mouseMoved", begin, 0), ("mousePressed", begin, 1), ("mouseMoved", end, 1),
                                      ("mouseReleased", end, 0)):  # fmt: skip
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=buttons, clickCount=1)

    def move(self, place):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
