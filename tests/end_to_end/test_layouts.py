"""Proves that a run is the same through any two layouts, as far as both hold it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.layouts import SPARSE_LAYOUTS
from simulator.overlap import expected_overlap
from simulator.writers.cann_raw import write_raw
from simulator.writers.msprof_sqlite import write_msprof_sqlite
from simulator.writers.trace_json.mindstudio import write_mindstudio
from tests.support.layout_table import Held, ReadLayout, read_layout
from tests.support.layout_tracks import RankTracks, Rows
from tests.support.profile_shelf import COMPARABLE, VARIANTS, Profile, ProfileShelf, tiny_run
from timeline.analysis.steps import with_steps
from timeline.analysis.waits.collectives import rank_collectives
from timeline.analysis.waits.launch_order import match_by_order
from timeline.analysis.waits.waiting import measure_waiting
from timeline.options import StepOperators
from timeline.records.not_given import NO_ID
from timeline.records.task_kinds import collective_kind
from timeline.selection import DETAIL_LAYERS
from timeline.sources.finding.discovery import discover
from timeline.sources.source import ReadRequest

LABELS = frozenset({"stream", "group"})
"""Attributes that layouts may number differently, as long as they part the same rows."""
TICK_NS = 10
"""How far samples lie apart where a layout counts them in whole ticks of a device."""

SWITCHES = 1
"""Tasks of the runtime that only their type tells from operators of AI CPUs."""

Layouts = dict[str, ReadLayout]


@pytest.mark.parametrize("first", COMPARABLE[:-1])
def test_both_hold_the_same(layouts: Layouts, first: str) -> None:
    """Tasks, communication, steps, calls, counters and overlap, to the nanosecond on wall time.

    What one of them holds in part lies within what the other holds of it.
    """
    one = layouts[first]
    for second in COMPARABLE[COMPARABLE.index(first) + 1 :]:
        other = layouts[second]
        assert one.ranks.keys() == other.ranks.keys() == {0, 1}, second
        for rank in one.ranks:
            same_rank(one, other, rank)


@pytest.mark.parametrize("first", ["torch-db", "mindstudio", "op-summary", "msprof-sqlite"])
@pytest.mark.parametrize("second", VARIANTS)
def test_variants_hold_the_same(
    layouts: Layouts, variants: Layouts, first: str, second: str
) -> None:
    """Other names of types, and tables that are not there, change what is known, not what ran."""
    one, other = layouts[first], variants[second]
    for rank in one.ranks:
        same_rank(one, other, rank)


@pytest.mark.parametrize("writer", [write_mindstudio, write_raw, write_msprof_sqlite])
def test_a_run_without_ranks_holds_the_same(
    tmp_path: Path, writer: Callable[..., list[Path]]
) -> None:
    """A capture of a single card says that it has no rank; nothing else of it differs."""
    run = tiny_run(ranks=1, ops_per_step=24)
    both = []
    for distributed in (True, False):
        path = tmp_path / str(distributed)
        captures = writer(run, path, distributed=distributed)
        both.append(read_layout(Profile(path, tuple(captures), run)))
    same_rank(both[0], both[1], 0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_computes_in_variants(variants: Layouts, variant: str) -> None:
    """All kernels and nothing else; of AI CPUs only where something tells which ran an operator."""
    read = variants[variant]
    knows = not variant.endswith("no-operators")
    unnamed = SWITCHES * (variant in ("msprof-sqlite-no-operators", "task-time-cann-9"))
    assert read.held["kernels"] is (Held.ALL if knows else Held.PART)
    for rank, tracks in read.ranks.items():
        on_ai_cpu = [
            (read.run.wall_ns(task.start_ns), read.run.wall_ns(task.end_ns))
            for one in tracks.rank.iterations
            for task, kernel in one.kernels
            if kernel.core == "AI_CPU"
        ]
        assert on_ai_cpu
        warned = [text for text in tracks.records.warnings if "AI CPU" in text]
        if knows:
            wanted = expected_overlap(read.run, rank)["computing_ns"]
            assert tracks.totals[None]["computing_ns"] == wanted
        else:
            assert not {*on_ai_cpu} & tracks.kernels.keys()
        open_tasks = unnamed + (0 if knows else len(on_ai_cpu))
        assert len(warned) == bool(open_tasks)
        assert all(f"{open_tasks} AI CPU task" in text for text in warned)


@pytest.mark.parametrize("layout", SPARSE_LAYOUTS)
def test_sparse_profilers_hold_the_same(layouts: Layouts, shelf: ProfileShelf, layout: str) -> None:
    """Marks of a framework and what a monitor records tell kernels, collectives and overlap alike.

    They hold no tasks of HCCL; ops are named as the framework names them, of the same groups.
    """
    whole = layouts["torch-db"]
    sparse = read_layout(shelf.get(layout, ops_per_step=24, planes=4))
    assert sparse.ranks.keys() == whole.ranks.keys()
    for rank, tracks in sparse.ranks.items():
        wanted = whole.ranks[rank]
        assert not tracks.planes
        assert tracks.ops.keys() == wanted.ops.keys()
        assert all(one["count"] == wanted.ops[span]["count"] for span, one in tracks.ops.items())
        assert tracks.kernels.keys() == wanted.kernels.keys()
        assert tracks.totals[None] == wanted.totals[None]
        assert tracks.steps.keys() in (wanted.steps.keys(), {}.keys())
        kinds = {collective_kind(tracks.records.strings[code]) for code in tracks.records.ops.name}
        assert kinds == {"AllReduce"}


@pytest.mark.parametrize("layout", SPARSE_LAYOUTS)
def test_sparse_profilers_tell_who_waited(shelf: ProfileShelf, layout: str) -> None:
    """Ranks wait for each other in what was marked as long as they do in the run."""
    profile = shelf.get(layout, ops_per_step=24, planes=4)
    ranks = []
    for source in discover(profile.path).sources:
        records = with_steps(source.read(ReadRequest(DETAIL_LAYERS)), StepOperators())
        ranks.append(rank_collectives(records, np.full(len(records.ops), NO_ID, np.int64)))
    waits = measure_waiting(match_by_order(ranks)).waits
    assert sorted(zip(waits.rank.tolist(), waits.waited_ns.tolist(), strict=True)) == sorted(
        (rank, one.waited_ns(rank)) for one in profile.run.truth.meetings for rank in one.members
    )


@pytest.mark.parametrize("layout", COMPARABLE)
def test_overlap_is_that_of_the_run(layouts: Layouts, layout: str) -> None:
    """The whole and every step; what is not known to communicate is free, and only that."""
    read = layouts[layout]
    if read.held["kernels"] is not Held.ALL:
        pytest.skip("holds some of what computes only")
    for rank, tracks in read.ranks.items():
        steps = [None, *(step.id for step in tracks.rank.steps)]
        assert list(tracks.totals) == steps
        names = expected_overlap(read.run, rank) if tracks.ops else ("computing_ns",)
        for step in steps:
            wanted = expected_overlap(read.run, rank, step)
            assert {name: tracks.totals[step][name] for name in names} == {
                name: wanted[name] for name in names
            }


def same_rank(one: ReadLayout, other: ReadLayout, rank: int) -> None:
    """Everything that both hold of a rank."""
    mine, theirs = one.ranks[rank], other.ranks[rank]
    whole = [layout.held["kernels"] is Held.ALL for layout in (one, other)]
    same_rows(mine.kernels, theirs.kernels, whole=whole)
    if Held.ALL in (one.held["other tasks"], other.held["other tasks"]):
        same_tasks(one, other, rank)
    same_communication(mine, theirs)
    same_steps(mine, theirs)
    same_calls(mine, theirs)
    same_counters(mine, theirs)
    same_overlap(mine, theirs, computing=all(whole))


def same_tasks(one: ReadLayout, other: ReadLayout, rank: int) -> None:
    """All device tasks, whether or not they are known to compute.

    On GPUs a communication op is a task of its stream, too.
    """
    tasks = []
    for layout in (one, other):
        tracks = layout.ranks[rank]
        found = tracks.others.copy()
        found.update(list(tracks.kernels))
        tasks.append(found)
    mine, theirs = tasks
    ops = one.ranks[rank].ops.keys() | other.ranks[rank].ops.keys()
    if one.held["other tasks"] is Held.ALL:
        assert not {span for span in theirs - mine if span not in ops}
    if other.held["other tasks"] is Held.ALL:
        assert not {span for span in mine - theirs if span not in ops}


def same_communication(mine: RankTracks, theirs: RankTracks) -> None:
    if mine.ops and theirs.ops:
        same_rows(mine.ops, theirs.ops)
    if mine.planes and theirs.planes:
        assert mine.planes == theirs.planes


def same_steps(mine: RankTracks, theirs: RankTracks) -> None:
    same_rows(mine.steps, theirs.steps)
    for kind in mine.parts.keys() & theirs.parts.keys():
        assert mine.parts[kind] == theirs.parts[kind]


def same_calls(mine: RankTracks, theirs: RankTracks) -> None:
    """The framework on GPUs has no queue, so its calls are some of those on NPUs."""
    for layer in mine.calls.keys() & theirs.calls.keys():
        fewer, more = sorted((mine.calls[layer], theirs.calls[layer]), key=lambda one: one.total())
        if mine.gpu == theirs.gpu:
            assert fewer == more
        else:
            assert not fewer - more


def same_counters(mine: RankTracks, theirs: RankTracks) -> None:
    for name in mine.counters.keys() & theirs.counters.keys():
        found, wanted = mine.counters[name], theirs.counters[name]
        assert len(found) == len(wanted) > 0
        for (time_ns, value), (other_ns, other) in zip(found, wanted, strict=True):
            assert abs(time_ns - other_ns) < TICK_NS
            assert value == pytest.approx(other, rel=1e-9)


def same_overlap(mine: RankTracks, theirs: RankTracks, *, computing: bool) -> None:
    """As far as both know all that computes, and what communicates."""
    names = {"computing_ns"} if computing else set()
    if mine.ops and theirs.ops:
        names |= set(mine.totals[None]) if computing else {"communication_ns"}
    assert mine.totals.keys() == theirs.totals.keys()
    for step, found in mine.totals.items():
        assert [found[name] for name in names] == [theirs.totals[step][name] for name in names]


def same_rows(mine: Rows, theirs: Rows, whole: Iterable[bool] = (True, True)) -> None:
    """The same rows, with the same attributes where both give them."""
    is_whole, other_is_whole = whole
    common = mine.keys() & theirs.keys()
    assert common
    if is_whole:
        assert common == theirs.keys()
    if other_is_whole:
        assert common == mine.keys()
    pairs: dict[str, list[tuple[Any, Any]]] = {}
    for key in common:
        for name in mine[key].keys() & theirs[key].keys():
            pairs.setdefault(name, []).append((mine[key][name], theirs[key][name]))
    for name, values in pairs.items():
        if name in LABELS:
            distinct = {repr(pair) for pair in values}
            assert len({repr(pair[0]) for pair in values}) == len(distinct), name
            assert len({repr(pair[1]) for pair in values}) == len(distinct), name
        else:
            assert [one for one, _ in values] == [other for _, other in values], name
