"""Proves that limits are kept by records of any shape and size."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import at_most
from tests.support.limited_exports import (
    LEAST_LIMIT,
    LEAST_SHARE,
    MOST_WRITES,
    ONE_BYTE_LESS,
    SUFFIXES,
    Loaded,
    counted_writes,
)
from tests.support.perfetto_sql import TraceProcessor
from tests.support.random_records import Sizes, random_records
from timeline.analysis.selected_rank import ChosenDetail, DrawOptions
from timeline.encoders.formats import format_of
from timeline.errors import LimitError
from timeline.fitting.fit import fit as fit_to_limit
from timeline.fitting.writer import FileNotes, Written
from timeline.layers import Layer, SliceKind
from timeline.options import DEFAULT_LIMIT_BYTES, ExportOptions, Fit
from timeline.progress import Silent
from timeline.ranks.rank_work import RankRequest, draw_rank_from_records
from timeline.records.tables import Records
from timeline.selection import DETAIL_LAYERS, SUMMARY_LAYERS, Kind, Selection
from timeline.tracks.rank_tracks import DrawnRank
from timeline.viewer.queries import definitions

pytestmark = pytest.mark.sweep


def shares_of(
    records: Sequence[Records], layers: frozenset[Layer], chosen: ChosenDetail | None = None
) -> list[DrawnRank]:
    """What each rank adds to the picture."""
    request = RankRequest(Selection(layers=layers), options=DrawOptions(layers), chosen=chosen)
    return [draw_rank_from_records(record, request) for record in records]


def never_again(_chosen: ChosenDetail) -> list[DrawnRank]:
    raise AssertionError("only --fit steps draws again")


def written(
    records: Sequence[Records], target: Path, limit: int, fit: Fit = Fit.COARSEN
) -> tuple[Written, list[int]]:
    """The detail of records, fitted by the code behind an export; and the size of each try."""
    layers = DETAIL_LAYERS
    options = ExportOptions(kind=Kind.DETAIL, output=target, limit_bytes=limit, fit=fit)
    with counted_writes() as writes:
        made = fit_to_limit(
            shares_of(records, layers),
            lambda chosen: shares_of(records, layers, chosen),
            options,
            target,
            format_of(target),
            lambda *_: FileNotes((("io.tlexport.kind", "detail"),)),
            None,
            Silent(),
        )
    return made, writes


REALISTIC = {
    "tasks": Sizes(steps=10, tasks=1_000, ops=0, calls=0, samples=0),
    "many streams and calls": Sizes(steps=10, tasks=300, ops=5, planes=8, calls=400, samples=100),
    "counters": Sizes(steps=5, tasks=50, calls=5, samples=3_000),
    "planes": Sizes(steps=10, tasks=50, ops=30, planes=16, calls=10),
    "many names": Sizes(steps=10, tasks=600, names=5_000),
    "one step": Sizes(steps=1, tasks=8_000, calls=800),
    "many steps": Sizes(steps=400, tasks=4, ops=1, calls=2, samples=1),
    "short calls": Sizes(steps=5, tasks=20, calls=2_000, task_ns=1_000_000),
}
SHARES = (0.3, 0.6, 0.8, 0.95, ONE_BYTE_LESS)


@pytest.mark.parametrize(
    ("shape", "suffix"),
    [(shape, ".pftrace") for shape in REALISTIC]
    + [("many streams and calls", ".json.gz"), ("planes", ".json"), ("tasks", ".pftrace.gz")],
)
def test_random_profiles_keep_limits_and_use_them(tmp_path: Path, shape: str, suffix: str) -> None:
    """Durations, gaps, names and ids are random: nothing repeats, so nothing packs by luck."""
    keeps_limits([random_records(0, REALISTIC[shape])], tmp_path / f"timeline{suffix}")


def keeps_limits(records: Sequence[Records], target: Path) -> None:
    """Try shares of the exact size; fail with all that miss the limit, its use or the tries."""
    exact, _ = written(records, target, 0)
    exact.discard()
    (size,) = (part.draft.size_bytes for part in exact.parts)
    misses = []
    for share in SHARES:
        limit = min(int(size * share), size - 1)
        if limit < LEAST_LIMIT:
            continue
        made, writes = written(records, target, limit)
        made.discard()
        (kept,) = (part.draft.size_bytes for part in made.parts)
        if not LEAST_SHARE * limit <= kept <= limit or len(writes) > MOST_WRITES:
            misses.append((share, [round(one / limit, 2) for one in writes], made.kept.layers))
    assert size > LEAST_LIMIT, "what the shape is made for"
    assert not misses
    assert list(target.parent.iterdir()) == []


@st.composite
def small_sizes(draw: st.DrawFn) -> Sizes:
    return Sizes(
        steps=draw(st.integers(1, 6)),
        tasks=draw(st.integers(1, 120)),
        ops=draw(st.integers(0, 3)),
        planes=draw(st.integers(0, 3)),
        calls=draw(st.integers(0, 60)),
        samples=draw(st.integers(0, 40)),
        names=draw(st.integers(1, 30)),
        streams=draw(st.integers(1, 4)),
        task_ns=draw(st.sampled_from([20, 9_000, 3_000_000])),
    )


@given(
    small_sizes(),
    st.integers(1, 1_000_000),
    st.floats(0.02, 1.1),
    st.sampled_from(SUFFIXES),
    st.sampled_from([Fit.COARSEN, Fit.STEPS, Fit.SPLIT]),
)
@settings(max_examples=at_most(40))
def test_any_limit_is_kept_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: Sizes,
    seed: int,
    share: float,
    suffix: str,
    fit: Fit,
) -> None:
    """However small; a refusal names a limit that then works. Nothing is left of any try."""
    directory = tmp_path_factory.mktemp("any")
    target = directory / f"timeline{suffix}"

    def made(limit: int) -> list[int]:
        result, _ = written([random_records(0, sizes, seed)], target, limit, fit)
        result.discard()
        return [part.draft.size_bytes for part in result.parts]

    (size,) = made(0)
    limit = max(1, int(size * share))
    try:
        kept = made(limit)
    except LimitError as error:
        assert list(directory.iterdir()) == []
        limit = int(re.findall(r"(\d+) bytes", str(error))[-1])
        kept = made(limit)
    assert max(kept) <= limit
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize(
    "layers",
    [
        pytest.param(frozenset({Layer.HARDWARE}), id="tasks"),
        pytest.param(DETAIL_LAYERS, id="with steps and overlap"),
    ],
)
def test_a_million_tasks_fit_exactly(tmp_path: Path, layers: frozenset[Layer]) -> None:
    """With their default args in 20 MB: every slice is one task, none is merged.

    Only rows that say again what those of tasks say have no more slices than a screen shows: the
    part of the time of the rank, and where the limit of events asks for it the overlap analysis.
    """
    sizes = Sizes(steps=100, tasks=10_000, ops=0, planes=0, calls=0, samples=0)
    records = random_records(0, sizes)
    assert len(records.tasks) == 1_000_000
    target = tmp_path / "timeline.pftrace"
    made = fit_to_limit(
        shares_of([records], layers),
        never_again,
        ExportOptions(kind=Kind.DETAIL, output=target),
        target,
        format_of(target),
        lambda *_: FileNotes(),
        None,
        Silent(),
    )
    made.discard()
    (part,) = made.parts
    assert part.draft.size_bytes <= DEFAULT_LIMIT_BYTES == 20 * 1024 * 1024
    assert {one.layer for one in made.kept.layers if one.merged} <= {
        SliceKind.PARTITION.value,
        SliceKind.OVERLAP.value,
    }
    assert part.slices >= len(records.tasks)
    assert part.draft.size_bytes > 8 * len(records.tasks), "args are packed, not dropped"


def test_the_summary_of_many_ranks_fits_and_loads(tmp_path: Path) -> None:
    """8,000 ranks x 10 steps in 20 MB; a twentieth of both, unless TLEXPORT_RANKS says more."""
    ranks = int(os.environ.get("TLEXPORT_RANKS", "400"))
    limit = DEFAULT_LIMIT_BYTES * ranks // 8_000
    sizes = Sizes(
        tasks=20, ops=2, planes=0, calls=0, samples=0, names=20, streams=1, task_ns=300_000
    )
    records = [random_records(rank, sizes) for rank in range(ranks)]
    target = tmp_path / "timeline.pftrace"
    with counted_writes() as writes:
        made = fit_to_limit(
            shares_of(records, SUMMARY_LAYERS),
            never_again,
            ExportOptions(kind=Kind.SUMMARY, output=target, limit_bytes=limit),
            target,
            format_of(target),
            lambda *_: FileNotes(),
            None,
            Silent(),
        )
    made.publish()
    size = target.stat().st_size
    assert LEAST_SHARE * limit <= size <= limit
    assert len(writes) <= MOST_WRITES
    resolution = {one.layer: one for one in made.kept.layers}
    assert resolution["step"].width_ns == 0, "steps are exact"
    loaded = Loaded.of(target)
    assert loaded.processor.import_errors() == []
    totals = loaded.totals.rows
    iterations = [total for row, total in totals.items() if row[-1] == "Iterations"]
    assert len(iterations) == ranks
    assert all(iteration.count == 3 * sizes.steps for iteration in iterations)
    computing = sum(total.busy_ns for row, total in totals.items() if row[-1] == "Computing")
    assert computing == sum(
        int((record.tasks.end_ns - record.tasks.start_ns).sum()) for record in records
    ), "tasks of one stream do not overlap, so computing is their sum"
    assert folded_ranks(loaded.processor) == {
        f"Ranks {first:03}-{first + 99:03}": min(100, ranks - first)
        for first in range(0, ranks, 100)
    }, "of no rank is anything said, so all are folded"
    loaded.processor.rows(definitions(("drawn_rows",)))
    drawn = loaded.processor.rows("SELECT DISTINCT rank FROM drawn_rows WHERE rank IS NOT NULL")
    assert sorted(rank for (rank,) in drawn) == list(range(ranks))


def folded_ranks(processor: TraceProcessor) -> dict[str, int]:
    """The root rows that hold ranks, and how many."""
    found = processor.rows(
        "SELECT folder.name, count(*) FROM track JOIN track AS folder ON folder.id ="
        " track.parent_id WHERE folder.parent_id IS NULL AND track.name GLOB 'Rank [0-9]*'"
        " AND NOT folder.name GLOB '*Steps*' GROUP BY folder.name"
    )
    return {str(name): int(count) for name, count in found}
