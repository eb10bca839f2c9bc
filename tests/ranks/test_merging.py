"""Proves that slices merged while ranks are read lose nothing, whoever reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support.made_source import WALL, MadeSource
from tests.support.perfetto_sql import TraceProcessor
from tests.support.random_intervals import EPOCH_NS
from tests.support.random_records import Sizes
from tests.support.ranks_in_processes import contents, little_is_held, made_pool
from tests.support.row_totals import counter_totals, row_totals
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
    many: Many,
    merged: JoinedRanks,
    unmerged: JoinedRanks,
    tmp_path: Path,
    by_layer: bool,
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
    whole, found = (TraceProcessor.load(path.read_bytes()) for path in (exact, small))
    assert found.import_errors() == whole.import_errors() == []
    totals, wanted = (
        {
            row: replace(total, drawn=0, merged=0, **({"count": 0} if is_partition(row) else {}))
            for row, total in row_totals(processor, is_json=False).items()
        }
        for processor in (found, whole)
    )
    assert totals == wanted
    ranges, wanted_ranges = (
        {
            row: (total.least, total.greatest)
            for row, total in counter_totals(processor, is_json=False).items()
        }
        for processor in (found, whole)
    )
    assert ranges == wanted_ranges
    lost = sum(omission.rows for omission in written.kept.omissions if "merged" in omission.reason)
    assert arrow_count(found) + lost == arrow_count(whole) > 0


def is_partition(row: tuple[str, ...]) -> bool:
    """Whether a row is that of a rank, which parts its time."""
    return row[0] == PARTITION or len(row) == 1


def arrow_count(processor: TraceProcessor) -> int:
    ((count,),) = processor.rows("SELECT count(*) FROM flow")
    return int(count)
