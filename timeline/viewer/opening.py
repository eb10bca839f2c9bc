"""Opens an export in a browser, or prints how to open it from another machine."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import sys
import time
import webbrowser
from collections.abc import Mapping
from pathlib import Path

from timeline.errors import OutputError
from timeline.printable import say
from timeline.reports.comparison_report import ComparisonReport
from timeline.reports.export_report import ExportReport
from timeline.units import format_bytes
from timeline.viewer.links import View, address, view_of
from timeline.viewer.serving import HOST, PORT, Offer, TraceServer

UI = "https://ui.perfetto.dev"
MOST_BYTES = 200 * 1024 * 1024
"""Maximum size of a file that a browser tab loads easily."""
PATIENCE_SECONDS = 60.0
"""Time in which a browser has to request the file."""
QUIET_SECONDS = 30.0
"""Time without requests after which a local UI is assumed to have loaded completely."""


def show(
    report: ExportReport | ComparisonReport,
    pages: Mapping[str, Path] | None = None,
    *,
    quiet: bool = False,
) -> None:
    """Show a file in the Perfetto UI, with the slowest or most changed step in view.

    Serves the file once, to a browser on this machine, and returns when it was fetched. If no
    browser can be opened, prints how to open one elsewhere, and waits. The file is written: if it
    cannot be shown, prints why.

    Args:
        report: the report of the export or comparison.
        pages: the files of a local UI, from `installed_pages`; None for ui.perfetto.dev.
        quiet: print only what the user has to do.
    """
    if not report.outputs:
        _say("There is no timeline to open.")
        return
    view = view_of(report)
    if len(report.outputs) > 1 and not quiet:
        at = report.outputs.index(view.output) + 1
        _say(f"Opening part {at} of {len(report.outputs)}, {view.output.path}.")
    try:
        show_view(view, pages, quiet=quiet)
    except OutputError as error:
        _say(*error.lines())


def show_view(view: View, pages: Mapping[str, Path] | None = None, *, quiet: bool = False) -> None:
    """Show the view of a file; see `show`.

    Raises:
        OutputError: it is too large, the port is in use, or no browser fetches it.
    """
    if view.output.size_bytes > MOST_BYTES:
        size = format_bytes(view.output.size_bytes)
        raise OutputError(
            f"{view.output.path} has {size}, more than a browser tab holds with ease.",
            do=f"Run trace_processor server http {view.output.path}, and open {UI}, which finds "
            "it.",
        )
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(_server(view, pages))
        except OSError as error:
            raise OutputError(
                f"Port {PORT} of this machine cannot be used: {error.strerror}.",
                do="End what holds it, such as another --open or trace_processor, and run this "
                "again, or " + _drag(view.output.path, pages),
            ) from error
        _show(view, server, quiet=quiet)


def _server(view: View, pages: Mapping[str, Path] | None) -> TraceServer:
    """Start the server at PORT; for a local UI at any free port if PORT is in use."""
    offer = Offer(view.output.path.resolve(), "" if pages else UI, pages or {})
    try:
        return TraceServer(offer, PORT)
    except OSError:
        if not pages:
            raise
        return TraceServer(offer, 0)


def _show(view: View, server: TraceServer, *, quiet: bool) -> None:
    file, pages = view.output.path, server.offer.pages
    where = server.url if pages else UI
    url = address(where, server.url + server.offer.trace_path, view)
    try:
        is_opened = _has_browser()
        if is_opened:
            if not quiet:
                _say(f"Opening {file} at {where}, {view.description} in view ...")
            is_opened = _open(url)
        if not is_opened:
            _say(
                *_how_to_open(url, server.port),
                f"Serving {file} until it is fetched; Ctrl-C ends that.",
            )
        if not _is_fetched(server, PATIENCE_SECONDS if is_opened else math.inf):
            asked = "" if pages else "If the browser asked for access to this device, allow it. "
            raise OutputError(
                f"{file} was not fetched within {PATIENCE_SECONDS:.0f} s.",
                do=f"{asked}Run this again, or " + _drag(file, pages),
            )
        if not quiet:
            _say(f"Opened {file}.")
        if pages:
            _finish_pages(server, quiet=quiet)
    except KeyboardInterrupt:
        if not server.fetched.is_set():
            _say(f"Stopped. {file} is written; to see it, " + _drag(file, pages))


def _finish_pages(server: TraceServer, *, quiet: bool) -> None:
    """Serve a local UI until it has loaded, since it loads parts of itself after the trace."""
    if not quiet:
        _say(f"Serving the UI until it asks nothing for {QUIET_SECONDS:.0f} s; Ctrl-C ends that.")
    while time.monotonic() - server.asked_at < QUIET_SECONDS:
        time.sleep(0.1)


def is_worth_serving() -> bool:
    """Return whether somebody is here to open a file: there is a browser, or a terminal."""
    return _has_browser() or sys.stderr.isatty()


def _has_browser() -> bool:
    """Return whether a browser on this machine would be visible to the user."""
    if os.environ.get("BROWSER"):
        return True
    if os.environ.get("SSH_CONNECTION"):
        return False
    has_screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.platform in ("win32", "darwin") or bool(has_screen)


def _open(url: str) -> bool:
    try:
        return webbrowser.open_new_tab(url)
    except webbrowser.Error:
        return False


def _how_to_open(url: str, port: int) -> tuple[str, ...]:
    return (
        "No browser here. On the machine with the browser, run",
        f"  ssh -N -L {port}:{HOST}:{port} {_ssh_target()}",
        "and open there",
        f"  {url}",
    )


def _ssh_target() -> str:
    """Return this machine as an SSH target: as the current client reached it, or by host name."""
    user = os.environ.get("USER") or os.environ.get("LOGNAME")
    at = f"{user}@" if user else ""
    words = os.environ.get("SSH_CONNECTION", "").split()
    if len(words) != 4:
        return at + socket.gethostname()
    _, _, host, port = words
    return at + host if port == "22" else f"-p {port} {at}{host}"


def _is_fetched(server: TraceServer, seconds: float) -> bool:
    """Wait until the file is fetched, and return whether it was requested within `seconds`."""
    until = time.monotonic() + seconds
    while not server.fetched.wait(0.2):
        if time.monotonic() > until and not server.is_sending:
            return False
    return True


def _drag(file: Path, pages: Mapping[str, Path] | None) -> str:
    return f"drag {file} into {'a Perfetto UI' if pages else UI}."


def _say(*lines: str) -> None:
    say(*lines, stream=sys.stderr)
