"""Proves that colours mean something: what is lost is never green, and uses of time differ."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import ProfileShelf
from tests.support.ui_colours import GREEN, RED, hue, lightness
from timeline.analysis.idle.idle_sums import CAUSES
from timeline.commands.export import export
from timeline.layers import SLICES, SliceKind
from timeline.selection import Kind
from timeline.tracks.colours import Colour, colours_of
from timeline.tracks.partition import COMPUTING, COPIES, EXPOSED, IDLE, TRANSFER

NAMED = {
    COMPUTING: Colour.COMPUTING,
    "37 pieces: Computing": Colour.COMPUTING,
    EXPOSED: Colour.EXPOSED,
    TRANSFER: Colour.TRANSFER,
    "Waiting for rank 5": Colour.WAITING,
    "Waiting for rank 5 (not profiled)": Colour.WAITING,
    "Waiting for another rank": Colour.WAITING,
    COPIES: Colour.COPIES,
    IDLE: Colour.IDLE,
    "4 pieces: Idle: between tasks": Colour.IDLE,
    **{f"{IDLE}: {cause.words}": Colour.IDLE for cause in CAUSES},
}
ON_THE_PATH = {
    "rank 5: computing, MatMul": Colour.COMPUTING,
    "rank 0: transfer, hcom_allReduce__586_0_1": Colour.TRANSFER,
    "rank 5: copy, MEMCPY_ASYNC": Colour.COPIES,
    "rank 5: host, 1.12 ms in enumerate(DataLoader)": Colour.IDLE,
    "rank 5: between tasks": Colour.IDLE,
    "rank 6, not profiled": Colour.WAITING,
    "rank 6, not selected": Colour.WAITING,
    "a rank that is not known": Colour.WAITING,
    "computing 2.29 ms, host 1.05 ms": Colour.COMPUTING,
    "not profiled 1.2 ms": Colour.WAITING,
}


def test_computing_is_green_waiting_red_and_nothing_that_is_lost_is_green() -> None:
    assert hue(Colour.COMPUTING.value) in GREEN
    assert hue(Colour.WAITING.value) in RED
    lost = set(Colour) - {Colour.COMPUTING}
    assert all(hue(colour.value) not in GREEN for colour in lost)


def test_uses_of_time_are_told_apart() -> None:
    """By 30 degrees, but for the two that say the same of communication."""
    apart = set(Colour) - {Colour.EXPOSED}
    for one, other in combinations(sorted(apart, key=lambda colour: colour.value), 2):
        distance = abs(hue(one.value) - hue(other.value))
        assert min(distance, 360 - distance) >= 30, (one, other)
    assert all(40 <= lightness(colour.value) < 80 for colour in Colour)


@pytest.mark.parametrize(("name", "colour"), NAMED.items())
def test_pieces_of_time_have_the_colour_of_their_use(name: str, colour: Colour) -> None:
    for kind in (SliceKind.PARTITION, SliceKind.OVERLAP):
        assert colours_of(kind, SLICES[kind].category, [name]) == [colour]


@pytest.mark.parametrize(("name", "colour"), ON_THE_PATH.items())
def test_the_critical_path_has_the_same_colours(name: str, colour: Colour) -> None:
    kind = SliceKind.CRITICAL_PATH
    assert colours_of(kind, SLICES[kind].category, [name]) == [colour]


def test_tasks_have_the_colour_of_their_name() -> None:
    assert colours_of(SliceKind.TASK, SLICES[SliceKind.TASK].category, ["Computing"]) == [None]


def test_the_file_tells_the_viewer(shelf: ProfileShelf, tmp_path: Path) -> None:
    """The UI reads the arg correlation_id; nothing that has it is without a colour of its own."""
    target = tmp_path / "summary.pftrace"
    export(shelf.get("torch-db").path, target, kind=Kind.SUMMARY)
    found: dict[str, str] = dict(
        TraceProcessor.load(target.read_bytes()).rows(
            "SELECT DISTINCT name, extract_arg(arg_set_id, 'correlation_id') FROM slice"
            " WHERE category = 'partition'"
        )
    )
    assert found[COMPUTING] == Colour.COMPUTING.value
    assert found[TRANSFER] == Colour.TRANSFER.value
    assert set(found.values()) <= {colour.value for colour in Colour}
