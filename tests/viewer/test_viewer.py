"""Proves that --open shows the file and nothing else of this machine, to the UI and to no other."""

from __future__ import annotations

import _thread
import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.html_page import read
from tests.support.perfetto_sql import TraceProcessor, web_root
from tests.support.profile_shelf import ProfileShelf
from timeline.cli.main import main
from timeline.commands.export import export
from timeline.commands.show import read_timeline
from timeline.encoders.attributes import read_attributes
from timeline.reports.export_report import ExportReport
from timeline.reports.first_look import LOOK, FirstLook
from timeline.reports.html import render_export_page
from timeline.tracks.partition import PARTITION
from timeline.viewer import opening
from timeline.viewer.links import View, address, view_of, view_of_file
from timeline.viewer.opening import show
from timeline.viewer.queries import queries_text
from timeline.viewer.serving import PORT, Offer, TraceServer, installed_pages

if TYPE_CHECKING:
    from tests.support.perfetto_ui import PerfettoUi

UI = "https://ui.perfetto.dev"
BODY = bytes(range(256)) * 4096
SECRET = b"nobody may read this"
ANSWER_SECONDS = 5.0
STALLED = 300
RANK = re.compile(r"\bRank (\d+)")


@dataclass(frozen=True)
class Answer:
    """What came back on a raw connection until the server closed it."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Asking:
    """A server, and requests to it that may be as wrong as one likes."""

    server: TraceServer

    @property
    def path(self) -> str:
        return self.server.offer.trace_path

    def __call__(self, method: str = "GET", path: str | None = None, **headers: str) -> Answer:
        """Ask the way the UI does, except for what is given; an empty header is left out."""
        sent = {"Host": f"127.0.0.1:{self.server.port}", "Origin": UI, **headers}
        lines = [f"{method} {self.path if path is None else path} HTTP/1.1"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in sent.items() if value]
        return self.raw("\r\n".join([*lines, "", ""]).encode())

    def raw(self, request: bytes) -> Answer:
        with self.connected() as connection:
            connection.sendall(request)
            answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        status, *fields = head.decode().split("\r\n")
        headers = dict(field.split(": ", 1) for field in fields)
        return Answer(int(status.split()[1]), headers, body)

    def connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), ANSWER_SECONDS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A trace among files that are nobody's business."""
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "the trace.pftrace").write_bytes(BODY)
    for name in ("secret", "traces/secret", "traces/the trace.pftrace.old"):
        (tmp_path / name).write_bytes(SECRET)
    return tmp_path / "traces"


@pytest.fixture
def ask(folder: Path) -> Iterator[Asking]:
    """What ui.perfetto.dev may ask of a server."""
    with TraceServer(Offer(folder / "the trace.pftrace", UI), 0) as server:
        yield Asking(server)


def test_the_trace_is_sent_as_the_ui_asks_for_it(ask: Asking) -> None:
    assert not ask.server.fetched.is_set()
    answer = ask()
    assert (answer.status, answer.body) == (200, BODY)
    assert answer.headers["Access-Control-Allow-Origin"] == UI
    assert answer.headers["Content-Length"] == str(len(BODY))
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Python" not in answer.headers["Server"]
    assert ask.server.fetched.wait(ANSWER_SECONDS)


def test_nobody_gets_the_trace_a_second_time(ask: Asking) -> None:
    assert ask().status == 200
    refused(ask(), 410)


def test_whoever_hung_up_may_ask_again(folder: Path) -> None:
    """The file does not fit into the buffers of a connection, so the server sees it break."""
    large = folder / "large.pftrace"
    with large.open("wb") as stream:
        stream.truncate(64 << 20)
    with TraceServer(Offer(large, UI), 0) as server:
        ask = Asking(server)
        with ask.connected() as connection:
            head = (
                f"GET {ask.path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nOrigin: {UI}\r\n\r\n"
            )
            connection.sendall(head.encode())
            assert connection.recv(100)
            assert server.is_sending
            refused(ask(), 410)
        while server.is_sending:
            time.sleep(0.01)
        assert not server.fetched.is_set()
        assert len(ask().body) == 64 << 20
        assert server.fetched.wait(ANSWER_SECONDS)


def test_a_connection_that_says_nothing_is_in_nobodys_way(ask: Asking) -> None:
    """Browsers open connections before they need them."""
    with ask.connected():
        assert ask().status == 200


def test_hundreds_that_stall_are_in_nobodys_way(folder: Path) -> None:
    """Each sends half a request and waits; the page is answered, and the server ends at once."""
    with contextlib.ExitStack() as stack:
        with TraceServer(Offer(folder / "the trace.pftrace", UI), 0) as server:
            ask = Asking(server)
            for _ in range(STALLED):
                connection = stack.enter_context(ask.connected())
                connection.sendall(b"GET / HTTP/1.1\r\nHost: ")
            begin = time.monotonic()
            assert ask().status == 200
        assert time.monotonic() - begin < ANSWER_SECONDS


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "PATCH", "TRACE", "get", "X"])
def test_other_methods_are_refused(ask: Asking, method: str) -> None:
    assert ask(method).status == 501
    assert not ask.server.fetched.is_set()


def test_the_search_for_a_trace_processor_finds_none(ask: Asking) -> None:
    """The UI asks port 9001 whether it is one, before and after it loads the trace."""
    refused(ask("POST", "/status", Content_Length="0"), 501)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/the%20trace.pftrace",
        "/the trace.pftrace",
        "{token}",
        "{token}/",
        "{token}/secret",
        "{token}/../secret",
        "{token}/..%2fsecret",
        "{token}/%2e%2e/secret",
        "{trace}/",
        "{trace}.old",
        "{trace}?x=1",
        "{trace}#x",
        "/./{trace}",
        "{folder}/secret",
        "/{folder}/secret",
        "/../../../../../../../../etc/passwd",
        "/..%2f..%2f..%2f..%2f..%2fetc/passwd",
        "/etc/passwd",
        "http://127.0.0.1{trace}",
        "file://{folder}/secret",
        "*",
        "{trace}%00",
        "secret",
        "..",
        "\\..\\secret",
    ],
)
def test_other_paths_are_refused(ask: Asking, folder: Path, path: str) -> None:
    token = ask.path.rpartition("/")[0]
    asked = path.replace("{token}", token).replace("{trace}", ask.path)
    refused(ask(path=asked.replace("{folder}", str(folder))), 404, 400)


def test_the_path_cannot_be_guessed(folder: Path) -> None:
    """No two servers have the same path, and it is as long as a key."""
    tokens = {Offer(folder / "secret").token for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 22


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "localhost",
        "127.0.0.1:80",
        "127.0.0.1.evil.example:{port}",
        "127.0.0.1:{port}.evil.example",
        "[::1]:{port}",
        "0.0.0.0:{port}",
    ],
)
def test_a_name_that_was_rebound_to_this_machine_is_refused(ask: Asking, host: str) -> None:
    refused(ask(Host=host.replace("{port}", str(ask.server.port))), 403)


def test_a_host_that_is_named_twice_is_refused(ask: Asking) -> None:
    port = ask.server.port
    lines = [
        f"GET {ask.path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Host: evil.example",
        f"Origin: {UI}",
        "",
        "",
    ]
    refused(ask.raw("\r\n".join(lines).encode()), 403)


def test_this_machine_may_be_called_localhost(ask: Asking) -> None:
    assert ask(Host=f"localhost:{ask.server.port}").status == 200


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "null",
        "https://evil.example",
        "http://ui.perfetto.dev",
        "https://ui.perfetto.dev.evil.example",
        "https://ui.perfetto.dev:8443",
        "https://UI.perfetto.dev",
        "http://127.0.0.1:{port}",
    ],
)
def test_pages_of_others_are_refused(ask: Asking, origin: str) -> None:
    refused(ask(Origin=origin.replace("{port}", str(ask.server.port))), 403)
    refused(ask("OPTIONS", Origin=origin.replace("{port}", str(ask.server.port))), 403)


def test_a_request_without_headers_is_refused(ask: Asking) -> None:
    """HTTP/0.9 knows none."""
    with ask.connected() as connection:
        connection.sendall(f"GET {ask.path}\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert BODY[:256] not in answer
    assert not ask.server.fetched.is_set()


def test_a_browser_may_ask_whether_the_page_may_read_from_this_machine(ask: Asking) -> None:
    """Chromium 104 to 141 asks so; later ones ask the user."""
    answer = ask(
        "OPTIONS",
        Access_Control_Request_Method="GET",
        Access_Control_Request_Private_Network="true",
    )
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["Access-Control-Allow-Origin"] == UI
    assert answer.headers["Access-Control-Allow-Private-Network"] == "true"
    refused(ask("OPTIONS", "/status"), 404)
    assert ask().status == 200


def test_only_this_machine_is_listened_to(ask: Asking) -> None:
    assert ask.server.server_address[0] == "127.0.0.1"
    assert PORT == 9001, "the only port that the content security policy of the UI names"


def refused(answer: Answer, *statuses: int) -> None:
    """Nothing was sent, and no other page may read even that."""
    assert answer.status in statuses
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert SECRET not in answer.body
    assert BODY[:256] not in answer.body


def exported(
    shelf: ProfileShelf, folder: Path, suffix: str = ".pftrace", **options: Any
) -> ExportReport:
    """A detail of two ranks whose slowest step is the last of three."""
    profile = shelf.get("mindstudio")
    target = folder / f"detail{suffix}"
    return export(profile.path, target, kind="detail", force=True, **options)


def parameters(link: str) -> dict[str, str]:
    """The parameters of a link, decoded the way the UI does it."""
    _, _, query = link.partition("#!/?")
    pairs = (part.split("=") for part in query.split("&"))
    return {name: urllib.parse.unquote(value) for name, value in pairs}


@pytest.mark.parametrize("suffix", [".pftrace", ".pftrace.gz", ".json", ".json.gz"])
def test_the_slowest_step_is_in_view_in_the_time_of_the_file(
    shelf: ProfileShelf, tmp_path: Path, suffix: str
) -> None:
    """In every format, the step that the verdict names lies in view, and the UI accepts the view.

    The UI ignores times before the first or after the last event of the trace.
    """
    report = exported(shelf, tmp_path, suffix)
    view = view_of(report)
    asked = parameters(address(UI, "http://127.0.0.1:9001/x/y", view))
    first_ns, last_ns = int(asked["visStart"]), int(asked["visEnd"])
    slowest = report.verdict.step_extreme
    assert slowest is not None
    processor = TraceProcessor.load(view.output.path.read_bytes())
    start_ns, end_ns = bounds_of(processor)
    name = f"Iteration {slowest.slowest}"
    ((step_start_ns, step_end_ns),) = processor.rows(
        f"SELECT ts, ts + dur FROM slice WHERE name = '{name}' ORDER BY dur DESC LIMIT 1"
    )
    assert start_ns <= first_ns <= step_start_ns < step_end_ns <= last_ns <= end_ns
    assert last_ns - first_ns < 1.2 * (step_end_ns - step_start_ns)


def test_all_device_work_of_the_step_of_the_first_finding_is_in_view(
    shelf: ProfileShelf, tmp_path: Path
) -> None:
    """The device begins and ends a step after the host does."""
    profile = shelf.get("torch-text", ranks=2, steps=5)
    report = export(profile.path, tmp_path / "x.pftrace")
    view, slowest = view_of(report), report.verdict.step_extreme
    assert view.visible_ns is not None
    assert slowest is not None
    (seen,) = report.verdict.steps_to_see
    assert seen != slowest.slowest, "else this says nothing on what is preferred"
    steps = report.verdict.steps.to_dicts()
    (step,) = [row for row in steps if row["step"] == seen]
    device_end_ns = step["device_start_ns"] + step["span_ns"]
    assert device_end_ns > step["end_ns"]
    first_ns, last_ns = (time_ns - view.output.offset_ns for time_ns in view.visible_ns)
    assert first_ns <= step["start_ns"] < device_end_ns <= last_ns


def reopened(path: Path) -> View:
    """Return the view that a written file opens with."""
    written = read_timeline(path)
    return view_of_file(written.output, written.look)


@pytest.mark.parametrize("suffix", [".pftrace", ".pftrace.gz", ".json", ".json.gz"])
def test_a_file_keeps_what_is_seen_first(shelf: ProfileShelf, tmp_path: Path, suffix: str) -> None:
    view = view_of(exported(shelf, tmp_path, suffix))
    again = reopened(view.output.path)
    parts = ("visible_ns", "rows", "commands", "description")
    assert [getattr(again, part) for part in parts] == [getattr(view, part) for part in parts]


def test_each_part_shows_what_it_has_of_the_step(shelf: ProfileShelf, tmp_path: Path) -> None:
    report = exported(shelf, tmp_path, fit="split", limit=16_000)
    views = [reopened(output.path) for output in report.outputs]
    assert view_of(report).visible_ns in [view.visible_ns for view in views]
    for view in views:
        start_ns, end_ns = bounds_of(TraceProcessor.load(view.output.path.read_bytes()))
        if view.visible_ns is None:
            assert view.description == "all of it"
        else:
            assert start_ns <= view.visible_ns[0] < view.visible_ns[1] <= end_ns


def test_a_file_without_a_first_look_is_shown_whole(shelf: ProfileShelf, tmp_path: Path) -> None:
    """As older versions wrote it, or damaged."""
    attributes = read_attributes(exported(shelf, tmp_path).outputs[0].path)
    assert FirstLook.from_attributes(attributes) != FirstLook()
    for changed in ({LOOK: "{"}, {LOOK: '{"ranks": 1}'}):
        assert FirstLook.from_attributes({**attributes, **changed}) == FirstLook()
    older = {key: value for key, value in attributes.items() if key != LOOK}
    assert FirstLook.from_attributes(older) == FirstLook()
    view = view_of_file(exported(shelf, tmp_path).outputs[0], FirstLook())
    assert parameters(address(UI, "http://127.0.0.1:9001/x/y", view)).keys() == {"url"}


def bounds_of(processor: TraceProcessor) -> tuple[int, int]:
    """The first and the last moment of a trace."""
    both = "SELECT ts, ts + dur AS end FROM slice UNION ALL SELECT ts, ts FROM counter"
    ((start_ns, end_ns),) = processor.rows(f"SELECT min(ts), max(end) FROM ({both})")
    assert isinstance(start_ns, int)
    assert isinstance(end_ns, int)
    return start_ns, end_ns


def test_of_several_parts_the_one_with_the_slowest_step_is_opened(
    shelf: ProfileShelf, tmp_path: Path
) -> None:
    report = exported(shelf, tmp_path, fit="split", limit=16_000)
    assert len(report.outputs) > 1
    view = view_of(report)
    slowest = report.verdict.step_extreme
    assert slowest is not None
    assert slowest.slowest in view.output.steps
    assert view.output in report.outputs[len(report.outputs) // 2 :]
    assert view.visible_ns is not None
    processor = TraceProcessor.load(view.output.path.read_bytes())
    start_ns, end_ns = bounds_of(processor)
    assert start_ns <= view.visible_ns[0] < view.visible_ns[1] <= end_ns


@pytest.mark.parametrize("ranks", [1, 2, 12])
@pytest.mark.parametrize("by_layer", [False, True])
def test_rows_of_the_culprit_and_who_waits_longest_are_shown(
    shelf: ProfileShelf, tmp_path: Path, ranks: int, *, by_layer: bool
) -> None:
    """The row where the time of each goes, by its path: names from the root, joined by " > "."""
    profile = shelf.get("mindstudio", ranks=ranks)
    report = export(profile.path, tmp_path / "x.pftrace", group_by="layer" if by_layer else "rank")
    assert report.verdict.step_extreme is not None
    pattern = view_of(report).rows
    paths = paths_of(TraceProcessor.load((tmp_path / "x.pftrace").read_bytes()))
    shown = [path for path in paths if re.search(pattern, path)]
    culprit = report.verdict.culprit
    if ranks == 1:
        telling = {report.verdict.step_extreme.rank}
    else:
        assert culprit is not None
        telling = {culprit.rank, culprit.waiters[0].rank}
    assert len(shown) == len(telling)
    above = f"1 {PARTITION} > " if by_layer else ""
    names = [path.removeprefix(above).strip() for path in shown]
    assert {int(name.split()[1].rstrip(":")) for name in names} == telling
    by_name = [path for path in paths if re.search(pattern, path.rpartition(" > ")[2])]
    assert by_name == ([] if by_layer else shown), "old versions know names alone"


def test_the_only_step_is_in_view(shelf: ProfileShelf, tmp_path: Path) -> None:
    report = export(shelf.get("torch-text", ranks=1, steps=1).path, tmp_path / "x.pftrace")
    assert report.verdict.step_extreme is None
    (first,) = report.verdict.steps.to_dicts()
    view = view_of(report)
    assert view.description == f"step {first['step']},"
    assert view.visible_ns is not None
    first_ns, last_ns = (time_ns - view.output.offset_ns for time_ns in view.visible_ns)
    assert first_ns <= first["start_ns"] < first["end_ns"] <= last_ns
    assert last_ns - first_ns < 1.2 * (first["period_ns"] + first["end_ns"] - first["start_ns"])


def test_a_link_asks_nothing_that_the_ui_refuses_at_startup(
    shelf: ProfileShelf, tmp_path: Path
) -> None:
    """Newer versions tell the user of such commands; with all queries a link is twice as long."""
    view = view_of(exported(shelf, tmp_path))
    (bundle,) = web_root().glob("v*/frontend_bundle.js")
    listed = re.search(r"STARTUP_COMMAND_ALLOWLIST=\[([^]]+)\]", bundle.read_text("utf-8"))
    assert listed is not None
    assert {one.id for one in view.commands} <= set(json.loads(f"[{listed[1]}]"))
    for command in view.commands:
        assert all(isinstance(arg, str) for arg in command.args)
        assert command.args[1:] == ("path",) or "Regex" not in command.id, "else the UI asks"
    link = address(UI, "http://127.0.0.1:9001/token/x.pftrace", view)
    assert len(link) < 16_000 < len(urllib.parse.quote(queries_text()))


@pytest.mark.parametrize("suffix", [".pftrace", ".json"])
def test_the_table_and_the_note_are_answered(
    shelf: ProfileShelf, tmp_path: Path, suffix: str
) -> None:
    """Of what the link holds alone, in its order; the note is of a pinned rank, in view."""
    report = exported(shelf, tmp_path, suffix)
    view, culprit = view_of(report), report.verdict.culprit
    assert culprit is not None
    assert view.visible_ns is not None
    processor = TraceProcessor.load(view.output.path.read_bytes())
    asked = [one for one in view.commands if "Regex" not in one.id]
    prelude, table, note = [one.args[0] for one in asked]
    processor.rows(prelude)
    assert table == "/* Who holds the others up? */ SELECT * FROM who_holds_others_up"
    assert processor.rows(table)[0][0] == culprit.rank
    ((start_ns, dur_ns, name),) = processor.rows(note)
    first_ns, last_ns = view.visible_ns
    assert isinstance(start_ns, int)
    assert first_ns <= start_ns <= last_ns
    waiter = culprit.waiters[0].rank
    assert name == f"Rank {waiter} waits {int(str(dur_ns)) / 1e6:.3f} ms for rank {culprit.rank}"


def paths_of(processor: TraceProcessor) -> list[str]:
    rows = processor.rows("SELECT id, parent_id, name FROM track")
    known = {row[0]: (row[1], str(row[2])) for row in rows}

    def path(at: object) -> str:
        parent, name = known[at]
        return name if parent is None else f"{path(parent)} > {name}"

    return sorted({path(at) for at in known})


@dataclass(frozen=True)
class Shown:
    """What one run of --open said, where it led the browser, and what the browser got there."""

    code: int
    out: str
    err: str
    links: list[str]
    fetched: bytes


BROWSER = """
import sys, urllib.parse, urllib.request
link, log, got, is_public = sys.argv[1:]
with open(log, "a") as stream:
    print(link, file=stream)
url = urllib.parse.unquote(link.partition("url=")[2].partition("&")[0])
headers = {"Origin": "https://ui.perfetto.dev"} if int(is_public) else {}
with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
    body = answer.read()
with open(got, "wb") as stream:
    stream.write(body)
"""


@pytest.fixture
def port() -> int:
    """A port that is free: 9001 may be in use on the machine that tests."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture
def run(
    shelf: ProfileShelf,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    port: int,
) -> Callable[..., Shown]:
    """Run the command with a program as the browser that does what the UI does."""
    program, log, got = tmp_path / "browser.py", tmp_path / "links", tmp_path / "got"
    program.write_text(BROWSER)
    profile = shelf.get("mindstudio").path
    monkeypatch.chdir(tmp_path)
    for name in ("SSH_CONNECTION", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "USER", "LOGNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(opening, "PORT", port)
    monkeypatch.setattr("webbrowser._tryorder", None)  # else it keeps the first $BROWSER it saw

    def shown(
        *arguments: str, browser: bool = True, public: bool = True, of_file: bool = False
    ) -> Shown:
        if browser:
            words = [sys.executable, program, "%s", log, got, int(public)]
            monkeypatch.setenv("BROWSER", shlex.join(map(str, words)))
        export_words = [] if of_file else [str(profile), "-o", "x.pftrace", "--force"]
        code = main([*export_words, *arguments])
        said = capfd.readouterr()
        links = log.read_text().split() if log.exists() else []
        return Shown(code, said.out, said.err, links, got.read_bytes() if got.exists() else b"")

    return shown


def test_open_leads_a_browser_to_the_file_and_ends(run: Callable[..., Shown]) -> None:
    shown = run("--open")
    assert shown.code == 0
    assert shown.fetched == Path("x.pftrace").read_bytes()
    (link,) = shown.links
    assert link.startswith(f"{UI}/#!/?url=http%3A%2F%2F127.0.0.1%3A")
    commands = [one["id"] for one in json.loads(parameters(link)["startupCommands"])]
    assert "dev.perfetto.PinTracksByRegex" in commands
    assert commands.count("dev.perfetto.RunQueryAndShowTab") == 1
    told = "the slowest step, 2, in view ..."
    assert shown.err == f"Opening x.pftrace at {UI}, {told}\nOpened x.pftrace.\n"
    assert "Wrote x.pftrace" in shown.out
    assert "drag" not in shown.out


def test_quiet_and_json_say_nothing_else(run: Callable[..., Shown]) -> None:
    shown = run("--open", "--json", "-q")
    assert shown.fetched
    assert shown.err == ""
    assert json.loads(shown.out)["status"] == "ok"


def test_offline_shows_the_ui_of_this_machine(
    run: Callable[..., Shown], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "QUIET_SECONDS", 0.1)
    shown = run("--open", "--offline", public=False)
    (link,) = shown.links
    assert link.startswith(f"http://127.0.0.1:{port}/#!/?url=")
    assert shown.fetched == Path("x.pftrace").read_bytes()


@pytest.mark.parametrize("words", [("open", "x.pftrace"), ("x.pftrace",), ("x.pftrace", "--open")])
def test_a_written_file_is_opened_as_its_export_was(
    run: Callable[..., Shown], words: tuple[str, ...]
) -> None:
    """By the command or by its name alone, at the same place and with the same commands."""
    first = run("--open")
    again = run(*words, of_file=True)
    assert (again.code, again.out, again.err) == (0, "", first.err)
    assert again.fetched == first.fetched
    of_export, of_file = (parameters(link) for link in again.links)
    del of_export["url"], of_file["url"]
    assert of_file == of_export


def test_rows_of_the_page_open_their_step_and_rank(run: Callable[..., Shown]) -> None:
    """The command beside each row shows all of its step, in every file, and pins its rank."""
    assert run("--report", "x.html").code == 0
    table = read(Path("x.html").read_bytes()).tables["steps"]
    columns = {one["title"].partition(" (")[0]: one["values"] for one in table["columns"]}
    processor = TraceProcessor.load(Path("x.pftrace").read_bytes())
    rows = zip(*(columns[name] for name in ("Step", "Rank", "Open")), strict=True)
    for step, rank, command in rows:
        program, *words = shlex.split(command)
        assert program == "tlexport"
        opened = run(*words, of_file=True)
        assert (opened.code, "the chosen part in view" in opened.err) == (0, True)
        asked = parameters(opened.links[-1])
        ((start_ns, end_ns),) = processor.rows(
            f"SELECT min(ts), max(ts + dur) FROM slice WHERE name GLOB 'Iteration {step}*'"
        )
        first_ns, last_ns = int(asked["visStart"]), int(asked["visEnd"])
        assert first_ns < end_ns
        assert start_ns < last_ns
        assert last_ns - first_ns < 2 * (end_ns - start_ns)
        commands = json.loads(asked["startupCommands"])
        pinned = [one["args"][0] for one in commands if "PinTracks" in one["id"]]
        assert pinned
        assert all(re.search(pattern, f"Rank {rank}") for pattern in pinned)
        assert not any(re.search(pattern, f"Rank {1 - rank}") for pattern in pinned)


def test_a_page_without_a_timeline_has_no_commands_to_open_it(
    shelf: ProfileShelf, tmp_path: Path
) -> None:
    report = replace(exported(shelf, tmp_path, ".pftrace"), outputs=())
    tables = read(render_export_page(report)).tables
    titles = [column["title"] for table in tables.values() for column in table["columns"]]
    assert "Rank" in titles
    assert "Open" not in titles


def test_a_part_outside_of_the_file_is_an_error(run: Callable[..., Shown]) -> None:
    assert run().code == 0
    for words, said in (
        (("--window", "5s:6s"), "the window 5.000 s to 6.000 s lies outside"),
        (("--ranks", "0,7"), "rank 7 is not in x.pftrace: found ranks 0,1."),
    ):
        shown = run("open", "x.pftrace", *words, of_file=True)
        assert (shown.code, shown.links) == (3, [])
        assert said in shown.err


@pytest.mark.parametrize("suffix", [".pftrace", ".json", ".json.gz"])
def test_a_file_that_was_cut_off_is_opened_with_a_warning(
    run: Callable[..., Shown], shelf: ProfileShelf, tmp_path: Path, suffix: str
) -> None:
    whole = exported(shelf, tmp_path, suffix).outputs[0].path
    assert "was cut off" not in run("open", str(whole), of_file=True).err
    whole.write_bytes(whole.read_bytes()[:-9])
    shown = run(str(whole), of_file=True)
    assert (shown.code, len(shown.links)) == (0, 2)
    assert f"{whole} was cut off, or changed after it was written." in shown.err


def test_opening_what_is_not_ours_is_an_error(run: Callable[..., Shown], tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"traceEvents": []}')
    facts = json.dumps({"io.tlexport.version": "0", "io.tlexport.drawn_ns": "some"})
    head = f'{{"displayTimeUnit":"ns","otherData":{facts},"traceEvents":[]}}'
    (tmp_path / "damaged.json").write_text(head)
    os.mkfifo(tmp_path / "pipe")
    for name, said in (
        ("other.json", "is not a trace that tlexport wrote"),
        ("damaged.json", "its times cannot be read"),
        ("none.pftrace", "cannot be read"),
        (".", "is a directory"),
        ("pipe", "is a pipe or device"),
    ):
        shown = run("open", name, of_file=True)
        assert (shown.code, shown.links) == (1, [])
        assert said in shown.err


def test_offline_without_a_ui_says_so_before_any_work(
    run: Callable[..., Shown], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TLEXPORT_PERFETTO_UI", str(tmp_path))
    shown = run("--offline")
    assert shown.code == 2
    assert f"{tmp_path} holds no Perfetto UI" in shown.err
    assert not Path("x.pftrace").exists()


def test_pages_of_the_installed_ui_are_files_of_it_and_nothing_else(folder: Path) -> None:
    """Pages need no origin; the trace still needs its path, and nothing beside a page is there."""
    pages = installed_pages()
    assert set(pages.values()) == {path for path in web_root().rglob("*.*") if path.is_file()}
    with TraceServer(Offer(folder / "the trace.pftrace", pages=pages), 0) as server:
        ask = Asking(server)
        page = ask(path="/", Origin="")
        assert (page.status, page.headers["Content-Type"]) == (200, "text/html")
        assert page.body == (web_root() / "index.html").read_bytes()
        (wasm,) = (path for path in pages if path.endswith("/trace_processor.wasm"))
        assert ask(path=wasm, Origin="").headers["Content-Type"] == "application/wasm"
        for path in ("/secret", f"{wasm}/../../../secret", "/../secret", wasm.rpartition("/")[0]):
            refused(ask(path=path, Origin=""), 404)
        refused(ask(path="/", Host="evil.example"), 403)
        refused(ask(Origin=UI), 403)
        answer = ask(Origin="")
        assert answer.body == BODY
        assert "Access-Control-Allow-Origin" not in answer.headers


def test_over_ssh_the_command_is_printed_that_works(
    run: Callable[..., Shown], port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The link that is printed is answered once, and then the command ends."""
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 5555 10.0.0.2 2222")
    monkeypatch.setenv("DISPLAY", ":10")
    monkeypatch.setenv("USER", "me")
    said: list[str] = []

    def visitor() -> None:
        """Reads what is printed, and goes where it leads."""
        while not (links := [line.strip() for line in said if UI + "/#!" in line]):
            time.sleep(0.01)
        words = [sys.executable, "browser.py", links[0], "links", "got", "1"]
        subprocess.run(words, check=True, cwd=tmp_path)

    monkeypatch.setattr(opening, "_say", lambda *lines: said.extend(lines))
    thread = threading.Thread(target=visitor, daemon=True)
    thread.start()
    shown = run("--open", browser=False)
    thread.join()
    assert shown.code == 0
    assert (tmp_path / "got").read_bytes() == Path("x.pftrace").read_bytes()
    assert f"  ssh -N -L {port}:127.0.0.1:{port} -p 2222 me@10.0.0.2" in said
    assert said[-1] == "Opened x.pftrace."


def test_whoever_waits_for_nothing_may_interrupt(
    run: Callable[..., Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The export is done by then: that is no failure, and it is not said that nothing is there."""
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 5555 10.0.0.2 22")
    said: list[str] = []

    def interrupter() -> None:
        while not said:
            time.sleep(0.01)
        _thread.interrupt_main()

    monkeypatch.setattr(opening, "_say", lambda *lines: said.extend(lines))
    threading.Thread(target=interrupter, daemon=True).start()
    shown = run("--open", browser=False)
    assert shown.code == 0
    assert "ssh -N -L" in said[1]
    assert said[1].endswith(" 10.0.0.2")
    assert said[-1] == f"Stopped. x.pftrace is written; to see it, drag x.pftrace into {UI}."
    assert Path("x.pftrace").exists()


def test_a_file_that_is_not_fetched_is_given_up_on(
    run: Callable[..., Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setenv("BROWSER", f"{shlex.quote(sys.executable)} -c pass %s")
    shown = run("--open", browser=False)
    assert shown.code == 0
    assert "x.pftrace was not fetched within 0 s." in shown.err
    assert run("open", "x.pftrace", browser=False, of_file=True).code == 1
    assert f"drag x.pftrace into {UI}." in shown.err


def test_a_port_in_use_is_no_loss(run: Callable[..., Shown], port: int) -> None:
    """The file is there; what to do with it is said. A UI of this machine needs no fixed port."""
    with socket.create_server(("127.0.0.1", port)):
        shown = run("--open")
        assert shown.code == 0
        assert shown.links == []
        assert f"Port {port} of this machine cannot be used" in shown.err
        assert f"drag x.pftrace into {UI}." in shown.err
        assert Path("x.pftrace").exists()
        assert run("open", "x.pftrace", of_file=True).code == 1


def test_a_file_too_large_for_a_tab_is_for_the_native_helper(
    shelf: ProfileShelf, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    report = exported(shelf, tmp_path)
    large = replace(report, outputs=(replace(report.outputs[0], size_bytes=300 << 20),))
    show(large)
    said = capfd.readouterr().err
    assert f"trace_processor server http {report.outputs[0].path}" in said


@pytest.mark.browser
@pytest.mark.parametrize(
    ("offline", "suffix"),
    [(False, ".pftrace"), (True, ".json.gz")],
    ids=["public", "offline"],
)
def test_the_real_ui_follows_the_link(
    ui: PerfettoUi, shelf: ProfileShelf, tmp_path: Path, *, offline: bool, suffix: str
) -> None:
    """The trace comes through the server, a table is open, and the slowest step is in view.

    The public UI is the one of this machine under the other's name: its policy of what it may
    read, and Chromium's of who may read from this machine, hold as they do there.
    """
    report = exported(shelf, tmp_path, suffix)
    view = view_of(report)
    assert view.visible_ns is not None
    pages = installed_pages() if offline else {}
    offer = Offer(view.output.path, "" if offline else UI, pages)
    with TraceServer(offer, 0) as server:
        where = server.url if offline else UI
        ui.follow(address(where, server.url + offer.trace_path, view), server.url)
        assert server.fetched.is_set()
        assert ui.modal() is None
        assert ui.errors == []
        rows = ui.paths_matching(view.rows)
        assert {rank for path in rows for rank in RANK.findall(path)} == {
            str(rank) for rank in report.verdict.ranks_to_see
        }
        pinned = [path for path in rows if suffix == ".pftrace"]
        assert ui.pinned() == [*pinned, "Look here"]
        first_ns, last_ns = ui.visible_ns()
        assert (first_ns, last_ns) == pytest.approx(view.visible_ns, abs=1000)
        assert "Who holds the others up?" in ui.text()
        assert ui.text().count("Command Query") == 1
        count = TraceProcessor.load(view.output.path.read_bytes()).rows(
            "SELECT count(*) FROM slice"
        )
        assert [tuple(row) for row in ui.sql("SELECT count(*) FROM slice")] == count
        ui.screenshot(tmp_path / "page.png")
