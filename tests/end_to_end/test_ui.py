"""Proves that the real Perfetto UI opens the files by drag and drop and shows what is in them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.loaded_picture import LoadedPicture, LoadedTrack
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import ProfileShelf
from timeline.commands.export import export
from timeline.selection import Kind

if TYPE_CHECKING:
    from tests.support.perfetto_ui import PerfettoUi, ShownRow

pytestmark = pytest.mark.browser

ENGINE_ROWS = ("System", "Clock Snapshots")
"""What the UI itself shows of any file that has a clock."""
BACKGROUND = 200
"""Slices are darker than this in one colour at least; the page between them is white."""


@dataclass(frozen=True)
class Opened:
    """A file that lies open in the UI, and what the page looked like before it was touched."""

    loaded: LoadedPicture
    rows: list[ShownRow]
    visible_ns: tuple[int, int]
    screenshot: Path


@pytest.fixture(scope="module", params=Kind, ids=lambda kind: kind.value)
def opened(
    request: pytest.FixtureRequest,
    ui: PerfettoUi,
    shelf: ProfileShelf,
    tmp_path_factory: pytest.TempPathFactory,
) -> Opened:
    """A summary, then a detail, dropped on the UI and loaded here as well."""
    kind, folder = request.param, tmp_path_factory.mktemp("ui")
    target, screenshot = folder / f"{kind.value}.pftrace", folder / "page.png"
    profile = shelf.get("torch-db", planes=12, ops_per_step=24)
    export(profile.path, target, kind=kind)
    ui.drop(target)
    ui.screenshot(screenshot)
    loaded = LoadedPicture(TraceProcessor.load(target.read_bytes()), is_json=False)
    rows = [row for row in ui.rows() if row.name not in ENGINE_ROWS]
    return Opened(loaded, rows, ui.visible_ns(), screenshot)


def test_the_file_opens_without_complaint(ui: PerfettoUi, opened: Opened) -> None:
    assert ui.modal() is None
    assert ui.errors == []
    assert "Oops" not in ui.text()
    count = opened.loaded.processor.rows("SELECT count(*), sum(dur) FROM slice")
    assert [tuple(row) for row in ui.sql("SELECT count(*), sum(dur) FROM slice")] == count
    assert count[0][0] > 100


def test_the_answer_is_seen_at_once(opened: Opened) -> None:
    """Nothing was unfolded or scrolled: what is slow, each sentence in a line of its own, ranks
    with their time, who slows the others first, and the steps, in colour, where they belong.
    """
    every = opened.loaded.tracks.values()
    roots = {track.path[0]: track for track in every if len(track.path) == 1}
    above = ["What is slow", "Steps", "Collectives", "Critical path"]
    shown = [*above, "Rank 1: slows the others", "Rank 0"]
    assert [row.name for row in opened.rows] == shown
    said, root = roots["What is slow"], roots["Steps"]
    sentences = opened.loaded.processor.rows(f"SELECT id FROM slice WHERE track_id = {said.id}")
    assert opened.rows[0].height > 15 * len(sentences) > 15
    for rank in opened.rows[len(above) :]:
        assert any(painted_columns(opened.screenshot, rank)), "where its time goes"
    row = opened.rows[1]
    spans = opened.loaded.processor.rows(
        f"SELECT ts, ts + dur FROM slice WHERE track_id = {root.id} ORDER BY ts"
    )
    assert len(spans) == 3
    first_ns, last_ns = opened.visible_ns
    assert first_ns <= spans[0][0]
    assert spans[-1][1] <= last_ns
    scale = row.width / (last_ns - first_ns)
    edges = [[(time - first_ns) * scale for time in span] for span in spans]
    painted = painted_columns(opened.screenshot, row)
    wrong = [
        column
        for column in range(row.width)
        if distance(column + 0.5, edges) > 2
        and painted[column] != any(start < column + 0.5 < end for start, end in edges)
    ]
    assert not wrong, "columns of pixels that are coloured without a step, or white within one"
    assert any(painted)


def distance(column: float, edges: list[list[float]]) -> float:
    """How far a column is from the nearest edge of a step, in pixels."""
    return min(abs(column - edge) for span in edges for edge in span)


def painted_columns(picture: Path, row: ShownRow) -> list[bool]:
    """Which columns of pixels of a row are coloured just below its upper edge, above the text."""
    at = row.top + 4
    line = next(line for number, line in enumerate(lines_of(picture)) if number == at)
    return [
        min(line[3 * column : 3 * column + 3]) < BACKGROUND
        for column in range(row.left, row.left + row.width)
    ]


def lines_of(picture: Path) -> Iterator[bytes]:
    """The lines of a PNG file of 8-bit RGB, as bytes."""
    data = picture.read_bytes()
    width, _, depth, colour = struct.unpack_from(">IIBB", data, 16)
    assert (depth, colour) == (8, 2)
    packed, at = b"", 8
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        packed += data[at + 8 : at + 8 + size] if kind == b"IDAT" else b""
        at += size + 12
    raw, step = zlib.decompress(packed), 3 * width + 1
    before = bytearray(step - 1)
    for start in range(0, len(raw), step):
        before = unfiltered(raw[start], bytearray(raw[start + 1 : start + step]), before)
        yield bytes(before)


def unfiltered(kind: int, line: bytearray, before: bytearray) -> bytearray:
    """Undo the filter of a line: PNG stores differences to pixels on the left and above."""
    for at in range(len(line)):
        left = line[at - 3] if at >= 3 else 0
        above, corner = before[at], before[at - 3] if at >= 3 else 0
        guess = (0, left, above, (left + above) // 2, nearest(left, above, corner))[kind]
        line[at] = (line[at] + guess) & 0xFF
    return line


def nearest(left: int, above: int, corner: int) -> int:
    """Paeth's predictor."""
    wanted = left + above - corner
    return min((left, above, corner), key=lambda value: abs(wanted - value))


def test_unfolded_rows_are_in_their_order_and_lanes_are_one_row(
    ui: PerfettoUi, opened: Opened
) -> None:
    ui.expand_all()
    shown = [row.name for row in ui.rows() if row.name not in ENGINE_ROWS]
    assert shown == list(names_in_order(opened.loaded))
    assert ui.errors == []


def names_in_order(picture: LoadedPicture) -> Iterator[str]:
    """Names of all tracks from top to bottom, lanes only once."""
    children: dict[int | None, list[LoadedTrack]] = {}
    for track in picture.tracks.values():
        children.setdefault(track.parent, []).append(track)

    def visit(parent: int | None) -> Iterator[str]:
        seen = set()
        for track in sorted(children.get(parent, []), key=lambda one: one.order):
            if track.path not in seen:
                seen.add(track.path)
                yield track.path[-1].strip()
                yield from visit(track.id)

    return visit(None)


def test_a_selected_slice_shows_its_args_wall_time_and_arrows(
    ui: PerfettoUi, opened: Opened
) -> None:
    found = opened.loaded.processor.rows(
        "SELECT id, name, extract_arg(arg_set_id, 'task.task_id'), abs_time_str(ts) FROM slice"
        " WHERE extract_arg(arg_set_id, 'task.op_type') = 'Conv2D'"
        " AND id IN (SELECT slice_in FROM flow) LIMIT 1"
    )
    if not found:  # a summary has neither tasks nor arrows
        found = opened.loaded.processor.rows(
            "SELECT id, name, extract_arg(arg_set_id, 'step.slowest_ns'), abs_time_str(ts)"
            " FROM slice WHERE extract_arg(arg_set_id, 'step.slowest_ns') IS NOT NULL LIMIT 1"
        )
    ((slice_id, name, value, wall_time),) = found
    ui.select_slice(slice_id)
    said = ui.text().partition("Current Selection")[2]
    assert name in said
    assert str(value) in said
    assert wall_time in said
    assert ("Preceding Flows" in said) == bool(opened.loaded.arrows())


@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".pftrace.gz"])
def test_other_formats_open_too(
    ui: PerfettoUi, shelf: ProfileShelf, tmp_path: Path, suffix: str
) -> None:
    target = tmp_path / f"detail{suffix}"
    export(shelf.get("mindspore-2.1").path, target, kind=Kind.DETAIL)
    ui.drop(target)
    assert ui.modal() is None
    assert ui.errors == []
    count = TraceProcessor.load(target.read_bytes()).rows("SELECT count(*) FROM slice")
    assert [tuple(row) for row in ui.sql("SELECT count(*) FROM slice")] == count
    assert count[0][0] > 100


def test_a_screen_shows_the_answer_and_some_thirty_ranks(
    ui: PerfettoUi, shelf: ProfileShelf, tmp_path: Path
) -> None:
    """Of more ranks than fit, in order of their numbers behind the one that slows the others."""
    target = tmp_path / "summary.pftrace"
    profile = shelf.get("torch-db", ranks=40, steps=1)
    export(profile.path, target)
    ui.drop(target)
    names = [row.name for row in ui.rows() if row.name not in ENGINE_ROWS]
    above = ["What is slow", "Steps", "Collectives", "Critical path"]
    assert names[:6] == [*above, "Rank 01: slows the others", "Rank 00"]
    assert names[6:] == [f"Rank {rank:02}" for rank in range(2, 40)]
    assert all(0 < row.height <= 24 for row in ui.rows() if row.name.startswith("Rank "))
    assert ui.errors == []
