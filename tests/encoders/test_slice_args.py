"""Proves what slices say of themselves: category, one family of args, numbers as people read them.

The trace processor is asked, of both formats.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import ProfileShelf
from timeline.columns.strings import NO_TEXT
from timeline.commands.export import export
from timeline.encoders.drawn_values import DIGITS, FORMATTERS
from timeline.layers import Category
from timeline.options import Args
from timeline.selection import Kind
from timeline.tracks.root_rows import named_rank

ARGS = """
SELECT slice.id, category, key, int_value, real_value, string_value
FROM slice JOIN args USING (arg_set_id)
WHERE key != 'correlation_id'
"""
"""All args but that by which the viewer colours slices."""
PIECES = """
SELECT category, track_id, ts, dur,
  extract_arg(arg_set_id, '{family}.rank'), extract_arg(arg_set_id, '{family}.iteration'),
  extract_arg(arg_set_id, '{family}.share_of_step')
FROM slice WHERE category IN ('partition', 'overlap', 'wait', 'idle')
"""

TRACKS = "SELECT id, parent_id, name FROM track"


@pytest.fixture(scope="module", params=[".pftrace", ".json"])
def trace(
    request: pytest.FixtureRequest, shelf: ProfileShelf, tmp_path_factory: pytest.TempPathFactory
) -> TraceProcessor:
    """A detail with all args and the critical path, partly merged."""
    target: Path = tmp_path_factory.mktemp("args") / f"detail{request.param}"
    export(shelf.get("torch-db").path, target, kind=Kind.DETAIL, args=Args.ALL)
    return TraceProcessor.load(target.read_bytes())


def is_json(trace: TraceProcessor) -> bool:
    return trace.rows("SELECT count(*) FROM process WHERE name IS NOT NULL") != [(0,)]


def test_every_slice_has_a_category(trace: TraceProcessor) -> None:
    found = {category for (category,) in trace.rows("SELECT DISTINCT category FROM slice")}
    assert found <= {category.value for category in Category}
    assert {"task", "hccl", "communication", "api", "step", "partition", "overlap"} <= found
    assert {"wait", "idle", "path"} <= found


def test_args_of_a_slice_are_of_one_family_and_say_something(trace: TraceProcessor) -> None:
    families: dict[int, set[str]] = {}
    for number, _, key, *_, text in trace.rows(ARGS):
        families.setdefault(number, set()).add(key.partition(".")[0])
        assert text not in NO_TEXT
    assert families
    assert all(len(found) == 1 for found in families.values())
    if not is_json(trace):
        every = set().union(*families.values())
        assert every <= {
            "task", "hccl", "communication", "step", "host", "note", "overlap", "path", "partition",
        }  # fmt: skip


def test_what_is_spelled_is_the_exact_number_rounded(trace: TraceProcessor) -> None:
    """An independent reading of the text gives the number, to half of the last digit."""
    sizes = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}
    sizes |= {"B/s": 1e-9, "KB/s": 1e-6, "MB/s": 1e-3, "GB/s": 1.0}
    of: dict[int, dict[str, float | str]] = {}
    for number, _, key, integer, real, text in trace.rows(ARGS):
        value = text if integer is None and real is None else real if integer is None else integer
        of.setdefault(number, {})[key.partition(".")[2]] = value
    seen = set()
    for args in of.values():
        for name, exact in args.items():
            for unit, _ in FORMATTERS:
                text = args.get(name.removesuffix(unit)) if name.endswith(unit) else None
                if text is None:
                    continue
                amount, word = str(text).split()
                digits = len(amount.partition(".")[2])
                # The exact rate beside it is drawn with few digits too.
                assert not isinstance(exact, str)
                slack = 0.5 * 10**-digits * sizes[word] * 1.001 + 1e-3 * abs(exact) * ("/" in word)
                assert abs(float(amount) * sizes[word] - exact) <= slack, (name, text, exact)
                seen.add(name)
    assert {"waited_ns", "transfer_ns", "bus_bandwidth_gb_s", "span_ns", "idle_ns"} <= seen


def test_reals_are_drawn_with_few_digits(trace: TraceProcessor) -> None:
    reals = [real for *_, real, _ in trace.rows(ARGS) if real is not None]
    assert reals
    assert all(float(f"{real:.{DIGITS}g}") == pytest.approx(real, rel=1e-12) for real in reals)
    assert all(len(re.sub(r"^0\.0*|\.|e.*$", "", repr(real))) <= 2 * DIGITS for real in reals)


def test_plain_tasks_and_calls_are_not_spelled(trace: TraceProcessor) -> None:
    """There are too many of them, and the UI shows how long they are."""
    keys = {key.partition(".")[2] for _, kind, key, *_ in trace.rows(ARGS) if kind == "hccl"}
    assert "size_bytes" in keys
    assert "size" not in keys


def test_long_pieces_tell_their_rank_step_and_share(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Of the period of each step; a piece counts to the end of the step that it begins in."""
    target = tmp_path / "detail.pftrace"
    export(shelf.get("torch-db").path, target, kind=Kind.DETAIL)
    trace = TraceProcessor.load(target.read_bytes())
    rank_of = ranks_of_tracks(trace)
    begin: dict[int | None, int] = {}
    windows = {}
    for track, step, start, period in trace.rows(
        "SELECT track_id, extract_arg(arg_set_id, 'step.iteration'), ts,"
        " extract_arg(arg_set_id, 'step.period_ns') FROM slice"
        " JOIN track ON track.id = track_id WHERE track.name = 'ProfilerStep' ORDER BY ts"
    ):
        rank = rank_of[track]
        first = begin.setdefault(rank, start)
        windows[rank, step] = first, first + period
        begin[rank] = first + period
    told, short = set(), 0
    for family in ("partition", "overlap"):
        for category, track, start, length, *args in trace.rows(PIECES.format(family=family)):
            if (category == "partition") != (family == "partition"):
                continue
            rank, step, share = args
            if step is None:
                begun = [
                    at for at in windows if at[0] == rank_of[track] and within(start, windows[at])
                ]
                assert all(part(start, length, windows[at]) < 0.0096 for at in begun)
                short += 1
                continue
            assert rank == rank_of[track]
            assert within(start, windows[rank, step])
            percent = 100 * part(start, length, windows[rank, step])
            assert float(share.rstrip("%")) == pytest.approx(
                percent, abs=0.51 if percent > 9.9 else 0.051
            )
            told.add(category)
    assert {"partition", "overlap", "wait"} <= told
    assert short > 0


def ranks_of_tracks(trace: TraceProcessor) -> dict[int, int | None]:
    """The rank of each track, by the name of its root."""
    found = {track: (above, name) for track, above, name in trace.rows(TRACKS)}

    def root(track: int) -> str:
        above, name = found[track]
        return name if above is None else root(above)

    return {track: named_rank(root(track)) for track in found}


def within(start: int, window: tuple[int, int]) -> bool:
    return window[0] <= start < window[1]


def part(start: int, length: int, window: tuple[int, int]) -> float:
    """The share of a window that a piece takes."""
    return (min(start + length, window[1]) - start) / (window[1] - window[0])
