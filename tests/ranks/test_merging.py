"""Proves that any number of processes writes the same files and loses nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support.limited_exports import Loaded
from tests.support.made_source import WALL, MadeSource
from tests.support.profile_shelf import ProfileShelf
from tests.support.random_intervals import EPOCH_NS
from tests.support.random_records import Sizes
from tests.support.ranks_in_processes import (
    FITS,
    Command,
    contents,
    exact_bytes,
    little_is_held,
    made_pool,
    sized,
)
from timeline.analysis.selected_rank import ChosenDetail, DrawOptions
from timeline.encoders.formats import format_of
from timeline.fitting.fit import fit
from timeline.fitting.writer import FileNotes, Written
from timeline.options import ExportOptions
from timeline.progress import Silent
from timeline.ranks.rank_work import RankRequest
from timeline.ranks.read_ranks import JoinedRanks, read_ranks
from timeline.ranks.workers import WorkerPool
from timeline.records.clock import Clock
from timeline.selection import DETAIL_LAYERS, Kind, Selection
from timeline.tracks.partition import PARTITION
from timeline.tracks.rank_tracks import DrawnRank

# -- merged slices ---------------------------------------------------------------------------------


pytestmark = pytest.mark.sweep

BOOTS_NS = (EPOCH_NS - 7_000_000_011, EPOCH_NS - 123_456_789_012_345)
"""When two hosts were started, to which their clocks count."""


def hosted(rank: int) -> Clock:
    """The clock of one of two hosts."""
    host = rank % len(BOOTS_NS)
    return Clock(f"host{host}", BOOTS_NS[host])


def joined_ranks(
    sources: Sequence[MadeSource], limit_bytes: int, target: Path, workers: WorkerPool | None = None
) -> JoinedRanks:
    """Read made ranks, in this process unless by workers; limit 0 merges nothing."""
    request = RankRequest(
        Selection(layers=DETAIL_LAYERS),
        options=DrawOptions(DETAIL_LAYERS),
        limit_bytes=limit_bytes,
        ranks=len(sources),
        target=target,
    )
    with little_is_held():
        return read_ranks(sources, request, workers or made_pool(sources, 1), Path("profile"))


def never_again(_leading: ChosenDetail) -> Sequence[DrawnRank]:
    raise AssertionError("only --fit steps draws again")


def fitted(joined: JoinedRanks, limit_bytes: int, target: Path, *, by_layer: bool) -> Written:
    """Write shares to a file within a limit; 0 is none."""
    options = ExportOptions(
        kind=Kind.DETAIL,
        output=target,
        limit_bytes=limit_bytes,
        group_by="layer" if by_layer else "rank",
    )
    written = fit(
        joined.ranks,
        never_again,
        options,
        target,
        format_of(target),
        lambda *_: FileNotes((("io.tlexport.kind", "detail"),)),
        joined.clock.wall_offset_ns,
        Silent(),
    )
    written.publish()
    return written


@dataclass(frozen=True)
class Many:
    """Ranks that are many or large, and a limit that they exceed by far."""

    ranks: int
    sizes: Sizes
    limit_bytes: int = 64 << 10
    clock_of: Callable[[int], Clock] = lambda _rank: WALL

    def sources(self) -> list[MadeSource]:
        return [
            MadeSource(rank, sizes=self.sizes, clock=self.clock_of(rank))
            for rank in range(self.ranks)
        ]


SMALL = Sizes(steps=3, tasks=300, ops=2, planes=1, calls=20, samples=10, names=40, streams=2)

LARGE = Sizes(steps=5, tasks=3000, ops=5, planes=2, calls=150, samples=100)

MANY = {
    "small ranks of two hosts": Many(24, SMALL, clock_of=hosted),
    "large ranks, each alone first": Many(3, LARGE),
}


@pytest.fixture(scope="module", params=MANY)
def many(request: pytest.FixtureRequest) -> Many:
    return MANY[request.param]


@pytest.fixture(scope="module")
def merged(many: Many, tmp_path_factory: pytest.TempPathFactory) -> JoinedRanks:
    """The shares of many ranks, merged while they were read."""
    target = tmp_path_factory.mktemp("many") / "timeline.pftrace"
    joined = joined_ranks(many.sources(), many.limit_bytes, target)
    assert any(share.tracks.floors for share in joined.ranks), "what they are made for"
    return joined


@pytest.fixture(scope="module")
def unmerged(many: Many, tmp_path_factory: pytest.TempPathFactory) -> JoinedRanks:
    """The same shares as they are."""
    target = tmp_path_factory.mktemp("many") / "timeline.pftrace"
    joined = joined_ranks(many.sources(), 0, target)
    assert not any(share.tracks.floors for share in joined.ranks)
    return joined


@pytest.mark.parametrize("by_layer", [False, True], ids=["by rank", "by layer"])
def test_merging_in_stages_loses_nothing(
    many: Many, merged: JoinedRanks, unmerged: JoinedRanks, tmp_path: Path, by_layer: bool
) -> None:
    """Count, busy time and ends of every row are those of all records; so are ranges of counters.

    Arrows that are not drawn are counted. Where time goes is not a row of records: what was merged
    before it was known who waits is not parted.
    """
    exact, small = tmp_path / "exact.pftrace", tmp_path / "small.pftrace"
    fitted(unmerged, 0, exact, by_layer=by_layer)
    written = fitted(merged, many.limit_bytes, small, by_layer=by_layer)
    assert small.stat().st_size <= many.limit_bytes < exact.stat().st_size
    assert list(contents(tmp_path)) == ["exact.pftrace", "small.pftrace"]
    whole, found = Loaded.of(exact), Loaded.of(small)
    assert found.totals.errors == whole.totals.errors == ()
    totals, wanted = (
        {
            row: replace(total, drawn=0, merged=0, **({"count": 0} if is_partition(row) else {}))
            for row, total in one.totals.rows.items()
        }
        for one in (found, whole)
    )
    assert totals == wanted
    ranges, wanted_ranges = (
        {row: (total.least, total.greatest) for row, total in one.totals.counters.items()}
        for one in (found, whole)
    )
    assert ranges == wanted_ranges
    lost = sum(omission.rows for omission in written.kept.omissions if "merged" in omission.reason)
    assert found.totals.flows + lost == whole.totals.flows > 0


def is_partition(row: tuple[str, ...]) -> bool:
    """Whether a row is that of a rank, which parts its time."""
    return row[0] == PARTITION or len(row) == 1


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", FITS)
@pytest.mark.parametrize("layout", ["torch-db", "mindspore-2.1"])
def test_the_number_of_processes_changes_nothing(
    command: Command, shelf: ProfileShelf, layout: str, way: str
) -> None:
    """One, two and three processes write the same bytes and say the same."""
    path = shelf.get(layout, ranks=3).path
    options = ["--kind", "detail", *sized(command, path, FITS[way]), "--json"]
    numbers = (1, 2, 3) if way == "coarsened" else (1, 3) if way == "all" else (1, 2)
    alone, *together = (command(path, *options, "-j", processes) for processes in numbers)
    assert alone.code == 0
    report = json.loads(alone.out)
    assert any(row["merged"] for row in report["resolution"]) == (way == "coarsened")
    assert any(row["loss"] for row in report["omitted"]) == (way == "leading steps")
    assert (len(alone.files) > 1) == (way == "parts")
    for outcome in together:
        assert outcome == alone


def test_ranks_merged_while_others_are_read(command: Command, shelf: ProfileShelf) -> None:
    """Where ranks exceed the limit by far, the number of processes changes nothing either."""
    path = shelf.get("torch-db", ranks=3, steps=12).path
    options = ["--kind", "detail", "--layers", "hardware", "--no-causes"]
    options += ["--limit", str(exact_bytes(command, path, *options) * 2 // 5), "--json"]
    with little_is_held():
        alone, together = (command(path, *options, "-j", processes) for processes in (1, 3))
    assert alone.code == 0
    assert alone == together


SCRIPT = """\
import timeline

timeline.export({path!r}, "timeline.pftrace", jobs=2)
"""


def test_a_script_of_two_lines_can_export(shelf: ProfileShelf, tmp_path: Path) -> None:
    """It needs no `if __name__ == "__main__"`: processes run nothing of the caller's."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(path=str(shelf.get("torch-db", ranks=3).path)))
    here = tmp_path / "here"
    here.mkdir()
    ran = subprocess.run(
        [sys.executable, script], cwd=here, capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert list(contents(here)) == ["timeline.pftrace"]
