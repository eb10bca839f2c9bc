"""Proves that raw data written from a known run is read exactly, without CANN."""

from __future__ import annotations

import math
import shutil
from collections import Counter as Multiset
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.model import RankRun, Run
from simulator.writers.cann_raw import RawTask, counter_of, raw_tasks, v6_tasks
from tests.support.examples import at_most
from tests.support.profile_shelf import Copier, ProfileShelf, change_fields
from tests.support.raw_device import only_source, read
from tests.support.read_profiles import lost_rows
from timeline.records.not_given import NO_CONTEXT, NO_GRAPH, NO_ID, NO_TIME
from timeline.records.tables import StepPart
from timeline.sources.common.device_clock import Anchor, CounterClock
from timeline.sources.finding.discovery import discover

LAYOUTS = ("raw", "raw-hwts", "raw-v6")
TYPES = {
    "AI_VECTOR_CORE": "AI_VECTOR_CORE",
    "MEMCPY_ASYNC": "SDMA",
    "Memcpy": "SDMA",
    "Reduce_Inline": "SDMA",
    "Notify_Record": "NOTIFY_RECORD",
    "Notify_Wait": "NOTIFY_WAIT",
    "PROFILING_ENABLE": "PLACE_HOLDER",
    "PROFILING_DISABLE": "PLACE_HOLDER",
}
"""The task type that a record gives, where it is not the kind of the task."""
NEWER = "20250109130000123"
"""An hour after every tiny run."""


def tasks_of(layout: str, rank: RankRun) -> list[RawTask]:
    """The tasks that the raw data of a layout tells of."""
    if layout == "raw-v6":
        return v6_tasks(rank)
    return raw_tasks(rank, sub_tasks=layout != "raw-hwts")


def type_of(layout: str, task: RawTask) -> str:
    if task.kind == "MIX_AIV" and layout == "raw-hwts":
        return "AI_CORE"  # without sub-tasks it is a kernel like others
    return TYPES.get(task.kind, task.kind)


# -- what is read --------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("graphs", [(1,), (3, 8)])
def test_tasks_are_those_of_the_run(
    shelf: ProfileShelf, layout: str, graphs: tuple[int, ...]
) -> None:
    """Every task lies where the run had it, to the nanosecond, with its ids, type and name."""
    profile = shelf.get(layout, graphs=graphs)
    for source in discover(profile.path).sources:
        rank = profile.run.rank(source.identity.rank)
        records = read(source)
        tasks, strings = records.tasks, records.strings
        found = Multiset(
            zip(
                tasks.start_ns.tolist(),
                tasks.end_ns.tolist(),
                tasks.stream.tolist(),
                tasks.task.tolist(),
                tasks.context.tolist(),
                (strings[code] for code in tasks.task_type.tolist()),
                strict=True,
            )
        )
        assert found == Multiset(
            (
                profile.run.monotonic_ns(task.start_ns),
                profile.run.monotonic_ns(task.end_ns),
                task.stream,
                task.task,
                task.context,
                type_of(layout, task),
            )
            for task in tasks_of(layout, rank)
        )
        assert set(tasks.device.tolist()) == {rank.device}
        for code, stream, task, context, kind in zip(
            tasks.name.tolist(),
            tasks.stream.tolist(),
            tasks.task.tolist(),
            tasks.context.tolist(),
            tasks.task_type.tolist(),
            strict=True,
        ):
            place = f"task {task}" if stream == NO_ID else f"stream {stream} task {task}"
            inside = "" if context == NO_CONTEXT else f" context {context}"
            assert strings[code] == f"{place}{inside} ({strings[kind]})"
        assert lost_rows(records) == {}
        assert f"msprof --export=on --output={source.identity.directory}" in records.warnings[0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("graphs", [(1,), (3, 8)])
def test_steps_are_those_of_the_run(
    shelf: ProfileShelf, layout: str, graphs: tuple[int, ...]
) -> None:
    """Every iteration has its interval, marks, reduces and data fetch, exactly."""
    profile = shelf.get(layout, graphs=graphs)
    run = profile.run
    for source in discover(profile.path).sources:
        records, rank = read(source), run.rank(source.identity.rank)
        steps, parts = records.steps, records.parts
        found = zip(
            steps.graph.tolist(),
            steps.iteration.tolist(),
            steps.start_ns.tolist(),
            steps.end_ns.tolist(),
            steps.fp_start_ns.tolist(),
            steps.bp_end_ns.tolist(),
            strict=True,
        )
        assert sorted(found) == sorted(
            (
                one.graph,
                one.number,
                *map(
                    run.monotonic_ns,
                    (one.start_ns, one.end_ns, one.forward_start_ns, one.backward_end_ns),
                ),
            )
            for one in rank.iterations
        )
        held = zip(
            parts.graph.tolist(),
            parts.iteration.tolist(),
            parts.kind.tolist(),
            parts.number.tolist(),
            parts.start_ns.tolist(),
            parts.end_ns.tolist(),
            strict=True,
        )
        assert sorted(held) == sorted(parts_of(run, rank))


def parts_of(run: Run, rank: RankRun) -> Iterator[tuple[int, ...]]:
    for one in rank.iterations:
        start_ns, end_ns = map(run.monotonic_ns, one.next_data_ns)
        yield one.graph, one.number, StepPart.GET_NEXT, 0, start_ns, end_ns
        for index, reduce in enumerate(one.collectives):
            start_ns, end_ns = map(run.monotonic_ns, (reduce.start_ns, reduce.end_ns))
            yield one.graph, one.number, StepPart.REDUCE, index, start_ns, end_ns


def test_tasks_belong_to_the_graph_that_runs(shelf: ProfileShelf) -> None:
    """A task is of the graph in whose step it starts, and of none outside all steps."""
    profile = shelf.get("raw", graphs=(3, 8))
    records = read(discover(profile.path).sources[0])
    rank = profile.run.rank(0)
    for start_ns, graph in zip(
        records.tasks.start_ns.tolist(), records.tasks.graph.tolist(), strict=True
    ):
        around = [
            one.graph
            for one in rank.iterations
            if profile.run.monotonic_ns(one.start_ns)
            <= start_ns
            < profile.run.monotonic_ns(one.end_ns)
        ]
        assert graph == (around[0] if around else NO_GRAPH)
    assert {3, 8} <= set(records.tasks.graph.tolist())


def test_times_that_are_no_whole_nanoseconds(shelf: ProfileShelf) -> None:
    """At 49 MHz every moment is that of its tick as float64, cut down."""
    profile = shelf.get("raw-49-MHz")
    rank = profile.run.rank(0)
    tasks = read(discover(profile.path).sources[0]).tasks
    counter = counter_of(profile.run, rank, "49.000000")

    def recorded_ns(time_ns: int) -> int:
        ticks = counter.ticks(profile.run.monotonic_ns(time_ns)) - counter.value
        return math.floor(float(Fraction(ticks * 1000, 49) + counter.host_ns))

    wanted = [
        (recorded_ns(task.start_ns), recorded_ns(task.end_ns))
        for task in raw_tasks(rank, sub_tasks=True)
    ]
    assert sorted(zip(tasks.start_ns.tolist(), tasks.end_ns.tolist(), strict=True)) == sorted(
        wanted
    )
    assert any(
        recorded_ns(one.start_ns) != profile.run.monotonic_ns(one.start_ns) for one in rank.switches
    )


@settings(max_examples=at_most(60))
@given(
    ticks=st.lists(st.integers(0, 2**64 - 1) | st.integers(10**12, 10**13), min_size=1),
    megahertz=st.sampled_from(
        ["19.2", "25.000000", "38.4", "48", "49.000000", "99.999001", "1000"]
    ),
    counter=st.integers(0, 2**61),
    host_ns=st.integers(0, 10**16),
)
def test_ticks_become_the_nanoseconds_that_msprof_writes(
    ticks: list[int], megahertz: str, counter: int, host_ns: int
) -> None:
    """The exact moment as float64, cut down; or none where no clock can be.

    Where float64 holds whole nanoseconds no more, the exact moment itself is cut down.
    """
    tick_ns = 1000 / Fraction(megahertz)
    clock = CounterClock(tick_ns, Anchor(counter, host_ns))
    found = clock.times_ns(np.array(ticks, np.uint64)).tolist()
    for value, moment_ns in zip(ticks, found, strict=True):
        exact = (value - counter) * tick_ns + host_ns
        exact_ns = math.floor(float(exact) if 0 <= exact < 2**53 else exact)
        far = value >= 2**62 or abs(exact_ns - host_ns) > 10**17
        assert moment_ns in ((NO_TIME, exact_ns) if far else (exact_ns,)) or (
            moment_ns == NO_TIME and not 0 <= exact_ns < 10**17
        )
        assert moment_ns == NO_TIME or 0 <= moment_ns < 10**17


# -- through the command line --------------------------------------------------------------------


# -- which captures are read ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "inside", [".", "device_1", "device_1/data", "device_1/data/stars_soc.data.1.slice_0"]
)
def test_found_from_inside(shelf: ProfileShelf, inside: str) -> None:
    """A raw capture is found from each of its directories and from one of its slices."""
    capture = shelf.get("raw").captures[1]
    source = only_source(capture / inside)
    assert source.identity.rank == 1
    assert source.identity.directory.resolve() == capture.resolve()


@pytest.mark.parametrize("layout", ["mindstudio", "mindspore-2.1"])
def test_an_export_wins(shelf: ProfileShelf, tmp_path: Path, layout: str) -> None:
    """Where raw data lies beside what was made of it, it is not even opened."""
    profile = shelf.copy(layout, tmp_path / "run", ranks=1)
    (data,) = shelf.get("raw", ranks=1).captures[0].glob("device_*/data")
    shutil.copytree(data, profile.captures[0] / data.parent.name / "data")
    source = only_source(profile.path)
    assert source.layout != "raw"
    assert not [path for path in source.files if "slice_" in path.name]


def test_an_older_export_wins_and_that_is_said(shelf: ProfileShelf, tmp_path: Path) -> None:
    """A newer capture that was not exported does not hide an export, but it is named."""
    profile = shelf.copy("mindstudio", tmp_path / "run", ranks=1)
    raw = shelf.get("raw", ranks=1).captures[0]
    later = profile.path / raw.name.replace("20250109120000123", NEWER)
    shutil.copytree(raw, later)
    found = discover(profile.path)
    assert [source.layout for source in found.sources] == ["mindstudio_profiler_output"]
    (note,) = found.notes
    assert later.name in note
    assert "msprof --export=on" in note


def test_raw_beats_raw_that_cannot_be_read(copied: Copier) -> None:
    """A later capture without slices does not hide one that has some."""
    profile = copied("raw", ranks=1)
    raw = profile.captures[0]
    later = raw.with_name(raw.name.replace("20250109120000123", NEWER))
    shutil.copytree(raw, later)
    shutil.rmtree(later / "device_0" / "data")
    assert only_source(profile.path).identity.directory.resolve() == raw.resolve()


def without_rank(capture: Path) -> None:
    for path in [*capture.glob("device_*/info.json.?"), capture / "host/info.json"]:
        change_fields(path, {"rank_id": -1})


def test_raw_without_a_rank_can_be_given_one(copied: Copier) -> None:
    """Raw data that was not distributed is rank 0, unless another rank is given."""
    profile = copied("raw", ranks=1)
    capture = profile.captures[0]
    without_rank(capture)
    (source,) = discover(profile.path).sources
    assert source.identity.rank == 0
    (source,) = discover(profile.path, {capture.name: 7}).sources
    assert source.identity.rank == 7


@pytest.mark.parametrize("suffix", ["_ascend_pt", "_ascend_ms"])
def test_the_rank_that_a_framework_tells(shelf: ProfileShelf, tmp_path: Path, suffix: str) -> None:
    """Raw data inside a framework's capture has the rank of the profiler_info beside it."""
    worker = tmp_path / f"host_7_20250109120000123{suffix}"
    capture = shelf.copy("raw", worker, ranks=1).captures[0]
    without_rank(capture)
    (worker / "profiler_info_5.json").write_text("{}")
    for path in (tmp_path, worker, capture, capture / "device_0" / "data"):
        source = only_source(path)
        assert (source.layout, source.identity.rank) == ("raw", 5)


def test_raw_without_a_rank_beside_an_export(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Raw data of an unknown rank is passed over where exports are, unless it is given one."""
    profile = shelf.copy("mindstudio", tmp_path / "run", ranks=1)
    raw = shelf.get("raw").captures[1]
    shutil.copytree(raw, profile.path / raw.name)
    without_rank(profile.path / raw.name)
    found = discover(profile.path)
    assert [source.identity.rank for source in found.sources] == [0]
    assert raw.name in found.notes[0]
    found = discover(profile.path, {raw.name: 4})
    assert [source.identity.rank for source in found.sources] == [0, 4]


def test_a_raw_rank_beside_an_exported_one_is_read(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Two ranks of one run may come in two layouts, on one clock as far as both tell it."""
    profile = shelf.copy("mindspore-2.1", tmp_path / "run")
    shutil.rmtree(profile.captures[1])
    raw = shelf.get("raw").captures[1]
    shutil.copytree(raw, profile.path / raw.name)
    sources = discover(profile.path).sources
    assert [source.layout for source in sources] == ["device_N/timeline", "raw"]
    assert sources[0].clock == sources[1].clock
