"""Proves what bounds operators, their cores and clocks, and their work, against single kernels."""

from __future__ import annotations

import sqlite3
import tracemalloc
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import timeline
from tests.support.profile_shelf import ProfileShelf
from timeline.analysis.work.kernel_bounds import (
    LEAST_BOUND,
    KernelRuns,
    KernelTotals,
    cores_seen,
    warm_rows,
)
from timeline.analysis.work.operators import operator_figures
from timeline.analysis.work.shape_work import filters_by_format, shape_work
from timeline.cli.main import main
from timeline.columns.strings import StringPool
from timeline.records.kernel_metrics import PIPES, CoreCounts, KernelMetrics
from timeline.records.not_given import NO_ID
from timeline.records.tables import Records, Tasks
from timeline.sources.common.core_metrics import MetricsBuilder
from timeline.sources.common.losses import LossLog
from timeline.sources.decoders.csv_blocks import read_blocks
from timeline.sources.source import OUTPUT

RATIOS = (
    "aic_mac_ratio",
    "aic_scalar_ratio",
    "aiv_scalar_ratio",
    "aiv_vec_ratio",
    "aiv_mte2_ratio",
)
PIPE_OF = dict(zip(RATIOS, ("cube", "scalar", "scalar", "vector", "mte2"), strict=True))
_RATIO = st.none() | st.integers(0, 1000).map(lambda thousandths: thousandths / 1000)
_KERNELS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(1, 10_000),
        st.integers(0, 40),
        st.tuples(*[_RATIO] * len(RATIOS)),
        st.floats(0, 1),
    ),
    min_size=1,
    max_size=20,
)
_Kernel = tuple[int, int, int, tuple[float | None, ...], float]


def _totals(kernels: list[_Kernel], cores: CoreCounts) -> KernelTotals:
    """The sums of kernels: operator, duration, blocks, ratios, and share of it in the cores."""
    count = len(kernels)
    operator = np.array([one[0] for one in kernels])
    durations_ns = np.array([one[1] for one in kernels])
    start_ns = np.cumsum(durations_ns) - durations_ns
    columns = {
        name: np.array([np.nan if one[3][at] is None else one[3][at] for one in kernels])
        for at, name in enumerate(RATIOS)
    }
    core_ns = np.rint(durations_ns * np.array([one[4] for one in kernels]))
    blocks = np.array([one[2] for one in kernels])
    columns |= {"aiv_total_time": core_ns, "aiv_total_cycles": core_ns * blocks * 1.8}
    tasks = Tasks.of(
        count,
        start_ns=start_ns,
        end_ns=start_ns + durations_ns,
        name=0,
        blocks=blocks,
        metrics=np.arange(count),
    )
    rows, metrics = np.arange(count), KernelMetrics(columns)
    return KernelTotals.of(tasks, rows, operator, metrics, cores, cores_seen(tasks, metrics))


def _is_measured(kernel: _Kernel) -> bool:
    """Whether a kernel has a ratio, and some counter of it counted."""
    _, duration_ns, _, ratios, in_core = kernel
    return ratios != (None,) * len(RATIOS) and (any(ratios) or np.rint(duration_ns * in_core) > 0)


@given(kernels=_KERNELS)
@example([(0, 1, 0, (None, None, None, None, 0.0), 0.0)])
@example([(0, 1, 0, (None, None, None, None, 0.0), 1.0)])
def test_an_operator_is_bound_by_its_busiest_pipe(kernels: list[_Kernel]) -> None:
    """Ratios are weighted by duration; kernels without any are left out, single gaps are 0.

    So are kernels of which all counters are 0.
    """
    bounds = _totals(kernels, CoreCounts()).bounds(np.arange(4), 4)
    for operator in range(4):
        measured = [one for one in kernels if one[0] == operator and _is_measured(one)]
        weight = sum(one[1] for one in measured)
        if not weight:
            assert not bounds.bound[operator]
            assert np.isnan(bounds.bound_share[operator])
            continue
        shares: dict[str, float] = defaultdict(float)
        for at, name in enumerate(RATIOS):
            share = sum((one[3][at] or 0.0) * one[1] for one in measured) / weight
            shares[PIPE_OF[name]] = max(shares[PIPE_OF[name]], share)
        most = max(shares.values())
        assert bounds.bound_share[operator] == pytest.approx(most)
        tied = {name for name, share in shares.items() if share == pytest.approx(most)}
        expected = tied if most > LEAST_BOUND else {"latency"}
        assert bounds.bound[operator] in expected or most == pytest.approx(LEAST_BOUND)


@given(kernels=_KERNELS)
def test_blocks_beyond_the_cores_run_in_waves(kernels: list[_Kernel]) -> None:
    """Cores in use are the mean of the waves, weighted by duration, at most what the device has."""
    bounds = _totals(kernels, CoreCounts(vector=20)).bounds(np.arange(4), 4)
    for operator in range(4):
        split = [one for one in kernels if one[0] == operator and one[2]]
        if not split:
            assert np.isnan(bounds.cores[operator])
            continue
        used = sum(one[1] * one[2] / -(-one[2] // 20) for one in split)
        assert bounds.cores[operator] == pytest.approx(used / sum(one[1] for one in split), abs=0.6)
        assert bounds.cores[operator] <= 20.5
        assert not bounds.are_counted[operator]


def _measured(blocks: list[int], cycles: list[int], core_us: float) -> tuple[Tasks, KernelMetrics]:
    """Kernels of 100 us on vector cores, and what their counters say."""
    count = len(blocks)
    start_ns = 1000 + 200_000 * np.arange(count)
    tasks = Tasks.of(
        count,
        start_ns=start_ns,
        end_ns=start_ns + 100_000,
        name=0,
        blocks=np.array(blocks),
        metrics=np.arange(count),
    )
    columns = {
        "aiv_time(us)": np.full(count, core_us),
        "aiv_vec_time(us)": np.full(count, core_us / 2),
        "aiv_total_cycles": np.array(cycles, np.float64),
        "aiv_vec_ratio": np.full(count, 0.5),
    }
    return tasks, KernelMetrics(columns)


@pytest.mark.parametrize(
    ("blocks", "cycles", "core_us", "device", "cores", "clock"),
    [
        # six waves on 48 cores, of which the device names none or all
        ([256], [256 * 95 * 1800 // 6], 95.0, CoreCounts(), None, None),
        ([256], [256 * 95 * 1800 // 6], 95.0, CoreCounts(vector=48), 256 / 6, 1.8),
        ([1, 256], [95 * 1800, 256 * 95 * 300], 95.0, CoreCounts(), (1 + 40.533) / 2, 1.8),
        ([32], [32 * 95 * 1800], 95.0, CoreCounts(), 32.0, 1.8),
        # a slow clock, of which one block runs in one wave whatever the device is
        ([1], [95 * 800], 95.0, CoreCounts(), 1.0, 0.8),
        ([32], [32 * 95 * 800], 95.0, CoreCounts(), None, None),
        # neither blocks nor times are recorded
        ([0], [10 * 100 * 1650], 0.0, CoreCounts(vector=40, vector_mhz=1650), 10.0, 1.65),
        ([0], [10 * 100 * 1650], 0.0, CoreCounts(vector=40), None, None),
    ],
)
def test_cores_and_clock_follow_from_what_is_recorded(
    blocks: list[int],
    cycles: list[int],
    core_us: float,
    device: CoreCounts,
    cores: float | None,
    clock: float | None,
) -> None:
    """Nothing is said if waves may hide behind blocks, and cycles count cores without blocks."""
    tasks, metrics = _measured(blocks, cycles, core_us)
    rows = np.arange(len(blocks))
    seen = cores_seen(tasks, metrics)
    totals = KernelTotals.of(tasks, rows, np.zeros_like(rows), metrics, device, seen)
    bounds = totals.bounds(np.zeros(1, np.int64), 1)
    for value, expected in ((bounds.cores[0], cores), (bounds.clock_ghz[0], clock)):
        assert np.isnan(value) if expected is None else value == pytest.approx(expected, rel=1e-3)
    assert bool(bounds.are_counted[0]) == (blocks == [0] and cores is not None)


@pytest.mark.parametrize("cycles", [-5.0, 1e308, float("inf"), float("nan"), 1e15])
@pytest.mark.parametrize("core_us", [-5.0, 1e308, float("inf"), float("nan"), 1e15, 0.0])
@pytest.mark.parametrize("blocks", [-1, 0, 1 << 62])
def test_absurd_measurements_overflow_nothing(cycles: float, core_us: float, blocks: int) -> None:
    """Of damaged files: each number is read, and no warning of NumPy, which are errors here."""
    tasks, metrics = _measured([blocks], [1], core_us)
    metrics = KernelMetrics({**metrics.columns, "aiv_total_cycles": np.array([cycles])})
    row, seen = np.zeros(1, np.int64), cores_seen(tasks, metrics)
    for device in (CoreCounts(), CoreCounts(1, 40, 1800, 1800), CoreCounts(-5, -5, -3, 1 << 62)):
        bounds = KernelTotals.of(tasks, row, row, metrics, device, seen).bounds(row, 1)
        assert bounds.bound_share[0] == 0.5
    assert len(metrics.recorded()) == 1


def test_times_that_were_not_recorded_are_no_metrics() -> None:
    """Zeros beside cycles; a side of the cores without cycles was idle, for a time of 0."""
    _, metrics = _measured([0], [5000], 0.0)
    columns = {**metrics.columns, "aicore_time(us)": np.zeros(1), "aic_total_cycles": np.zeros(1)}
    recorded = KernelMetrics(columns).recorded().columns
    assert {*recorded} == {*columns} - {"aiv_time(us)", "aiv_vec_time(us)"}
    _, whole = _measured([4], [5000], 3.0)
    assert {*whole.recorded().columns} == {*metrics.columns}


@given(kernels=_KERNELS)
def test_groups_of_operators_are_bound_like_their_kernels(kernels: list[_Kernel]) -> None:
    """The sums of operators give for two of them what their kernels together give."""
    group = np.array([0, 0, 1, 1])
    joined = _totals(kernels, CoreCounts()).bounds(group, 2)
    merged = [(int(group[one[0]]), *one[1:]) for one in kernels]
    alone = _totals(merged, CoreCounts()).bounds(np.arange(2), 2)
    np.testing.assert_allclose(joined.bound_share, alone.bound_share)
    np.testing.assert_allclose(joined.clock_ghz, alone.clock_ghz)
    np.testing.assert_allclose(joined.outside_core, alone.outside_core)


@given(parts=st.lists(_KERNELS, min_size=1, max_size=3))
def test_sums_of_parts_are_those_of_the_whole(parts: list[list[_Kernel]]) -> None:
    """Kernels that are read in chunks add up."""
    totals = [_totals(kernels, CoreCounts(vector=40)) for kernels in parts]
    first = np.arange(4)
    joined = KernelTotals.join(totals, first, CoreCounts(vector=40)).bounds(first, 4)
    whole = _totals([one for kernels in parts for one in kernels], CoreCounts(vector=40)).bounds(
        first, 4
    )
    np.testing.assert_allclose(joined.bound_share, whole.bound_share)
    np.testing.assert_allclose(joined.cores, whole.cores)


def test_runs_tell_the_first_from_the_others() -> None:
    """The first in time, and the median of the rest."""
    start_ns = np.array([100, 0, 200, 300, 50])
    tasks = Tasks.of(
        5,
        start_ns=start_ns,
        end_ns=start_ns + np.array([20, 60, 30, 10, 5]),
        name=0,
        stream=np.array([1, 1, 1, 1, 2]),
    )
    runs = KernelRuns.of_tasks(tasks, np.arange(5), np.array([0, 0, 0, 0, 1]))
    assert runs.operator.tolist() == [0, 1]
    assert runs.first_ns.tolist() == [60, 5]
    assert runs.median_ns.tolist() == [20, 5]
    assert runs.count.tolist() == [4, 1]


@pytest.mark.parametrize(
    ("lengths_ns", "streams", "alike"),
    [
        ([90, 10, 11, 10, 12, 11], [1] * 6, 1),
        ([10, 10, 10, 40, 40, 40], [1] * 6, 0),
        ([90] + [10] * 20 + [20] * 3, [1] * 21 + [2] * 3, 0),
        ([90] + [10] * 20 + [20] * 3, [1] * 24, 1),
    ],
)
def test_a_median_stands_for_runs_alike(
    lengths_ns: list[int], streams: list[int], alike: int
) -> None:
    """Not for wide quartiles, nor for a stream of its own pace; the first run is left out."""
    count = len(lengths_ns)
    start_ns = np.arange(count) * 100
    tasks = Tasks.of(
        count,
        start_ns=start_ns,
        end_ns=start_ns + np.array(lengths_ns),
        name=0,
        stream=np.array(streams),
    )
    runs = KernelRuns.of_tasks(tasks, np.arange(count), np.zeros(count, np.int64))
    assert runs.alike.tolist() == [alike]
    assert (runs.least_ns[0], runs.most_ns[0]) == (min(lengths_ns), max(lengths_ns))


@pytest.mark.parametrize(
    ("kind", "inputs", "outputs", "flop"),
    [
        ("MatMulV2", "32,9216;4096,9216;4096", "32,4096", 2 * 32 * 9216 * 4096),
        ("MatMulV2", "32,1000;32,4096", "1000,4096", 2 * 32 * 1000 * 4096),
        ("BatchMatMulV2", "8,4,32,64;8,4,64,16", "8,4,32,16", 2 * 8 * 4 * 32 * 64 * 16),
        ("aten::addmm", "[[16], [8, 32], [32, 16]]", "", 2 * 8 * 32 * 16),
        ("Conv2D", "2,3,8,8;4,3,3,3", "2,4,6,6", 2 * 2 * 4 * 6 * 6 * 3 * 3 * 3),
        ("Conv2D", "32,1,224,224,8;121,4,16,8;64", "32,8,55,55,8", None),
        ("GroupedMatmul", "32,64;4,64,16", "32,16", None),
        ("Add", "32,64;32,64", "32,64", None),
        ("MatMulV2", "", "", None),
        ("MatMulV2", "0,64;64,16", "0,16", None),
    ],
)
def test_operations_follow_from_shapes(
    kind: str, inputs: str, outputs: str, flop: int | None
) -> None:
    """Products and convolutions have operations; what shapes do not tell is not guessed."""
    assert shape_work(kind, inputs, outputs, "FLOAT16;FLOAT16;FLOAT16").flop == flop


FILTERS = filters_by_format(
    [
        ("TransData", "64,3,11,11", "121,4,16,8"),
        ("TransData", "288,16,16,8", "256,256,3,3"),
        ("TransData", "250,256,3,3", "288,16,16,8"),
        ("TransData", "192,64,5,5", "200,12,16,8"),
        ("TransData", "32,3,224,224", "32,1,224,224,8"),
        ("Cast", "384,192,3,3", "216,24,16,8"),
    ]
)


def test_filters_are_those_whose_format_changed_without_doubt() -> None:
    """Not two filters of one shape in FRACTAL_Z, other tensors, or other types of operators."""
    assert FILTERS == {(121, 4, 16, 8): (64, 3, 11, 11), (200, 12, 16, 8): (192, 64, 5, 5)}


@pytest.mark.parametrize(
    ("kind", "inputs", "outputs"),
    [
        ("Conv2D", "32,8,27,27,8;200,12,16,8;192", "32,24,27,27,8"),
        ("Conv2DBackpropInput", "4;200,12,16,8;32,24,27,27,8", "32,8,27,27,8"),
        ("Conv2DBackpropFilter", "32,8,27,27,8;4;32,24,27,27,8", "200,12,16,8"),
    ],
)
def test_convolutions_in_formats_of_the_device_have_operations(
    kind: str, inputs: str, outputs: str
) -> None:
    """Channels without padding; the peak only of 16 bits, since 32 bits may run as HF32."""
    flop = 2 * 32 * 192 * 27 * 27 * 64 * 5 * 5
    for types, peak in (("FLOAT;FLOAT;FLOAT", 0), ("FLOAT16;FLOAT16;FLOAT16", flop // 8192)):
        work = shape_work(kind, inputs, outputs, types, FILTERS)
        assert (work.flop, work.peak_cycles) == (flop, peak)
    other = "32,16,27,27,8".join(outputs.rsplit("32,24,27,27,8", 1))
    changed = inputs.replace("32,24,27,27,8", "32,16,27,27,8")
    assert shape_work(kind, changed, other, "FLOAT", FILTERS).flop is None
    assert shape_work(kind, inputs, outputs, "FLOAT").flop is None


def test_bytes_are_those_of_inputs_and_outputs() -> None:
    """Each by its own type; unknown types have no size."""
    assert shape_work("Add", "8,4;8,4", "8,4", "FLOAT16;FLOAT").moved_bytes == 32 * (2 + 4 + 2)
    assert shape_work("Add", "8,4;8,4", "8,4", "MYSTERY;FLOAT").moved_bytes is None


def _with_metrics(shelf: ProfileShelf, path: Path, rows: Iterable[tuple[str, Any]]) -> Path:
    """A profile whose database has these metrics of all its kernels, in this order."""
    profile = shelf.copy("torch-db", path, ranks=1)
    (capture,) = profile.captures
    (database,) = (capture / OUTPUT).glob("ascend_pytorch_profiler_*.db")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE TASK_PMU_INFO (globalTaskId INTEGER, name INTEGER, value)")
        ids = connection.execute("SELECT globalTaskId FROM COMPUTE_TASK_INFO").fetchall()
        for at, (name, value) in enumerate(rows):
            connection.execute("INSERT INTO STRING_IDS VALUES (?, ?)", (10**6 + at, name))
            connection.executemany(
                "INSERT INTO TASK_PMU_INFO VALUES (?, ?, ?)",
                [(number, 10**6 + at, value) for (number,) in ids],
            )
    return profile.path


def _bounds_of(path: Path) -> list[dict[str, Any]]:
    with timeline.open_profile(path) as opened:
        return [row for row in opened.operators().to_dicts() if not row["communication"]]


def test_metrics_of_a_database_reach_operators_and_the_verdict(
    shelf: ProfileShelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """TASK_PMU_INFO, a row per kernel and metric, of a profile made here."""
    metrics = {"aic_mte2_ratio": 0.85, "aic_mac_ratio": 0.4, "aiv_vec_ratio": 0.0}
    path = _with_metrics(shelf, tmp_path / "run", metrics.items())
    rows = _bounds_of(path)
    assert rows
    assert {row["bound"] for row in rows} == {"mte2"}
    assert [row["bound_share"] for row in rows] == pytest.approx([0.85] * len(rows))
    assert {row["clock_ghz"] for row in rows} == {None}
    assert main(["--verdict", str(path)]) == 0
    answer = " ".join(capsys.readouterr().out.split())
    assert "Compute is bound by loads from global memory 100% of its time." in answer


def test_the_verdict_reads_metrics_however_many_there_are(
    shelf: ProfileShelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So it says the same with a page and without: 12 MB of other metrics hide none."""
    path = _with_metrics(shelf, tmp_path / "run", {"aic_mte2_ratio": 0.85}.items())
    (database,) = path.rglob("ascend_pytorch_profiler_*.db")
    with closing(sqlite3.connect(database)) as connection, connection:
        others = ((-1 - at, 10**6, 0.1) for at in range(500_000))
        connection.executemany("INSERT INTO TASK_PMU_INFO VALUES (?, ?, ?)", others)
    assert main(["--verdict", str(path)]) == 0
    answer = " ".join(capsys.readouterr().out.split())
    assert "Compute is bound by loads from global memory 100% of its time." in answer


def test_metrics_of_ids_that_no_task_has_are_left_out(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Ids are read as real numbers, of which some are no integers."""
    path = _with_metrics(shelf, tmp_path / "run", {"aic_mte2_ratio": 0.85}.items())
    whole = _bounds_of(path)
    (database,) = path.rglob("ascend_pytorch_profiler_*.db")
    with closing(sqlite3.connect(database)) as connection, connection:
        ids = (None, "task", b"task", -1, 2**53 + 1, 2**63 - 1, -1e300, float("inf"))
        rows = [(one, 10**6, 0.1) for one in ids]
        connection.executemany("INSERT INTO TASK_PMU_INFO VALUES (?, ?, ?)", rows)
    assert whole[0]["bound"] == "mte2"
    assert _bounds_of(path) == whole


_BUSY: list[tuple[str, Any]] = [("aic_mac_ratio", 0.4), ("aic_total_cycles", 5000)]


@pytest.mark.parametrize(
    ("rows", "bound"),
    [
        (_BUSY, "cube"),
        # what is no number is not measured, nor are counters that counted nothing
        ([("aic_mac_ratio", "busy")], None),
        ([("aic_mac_ratio", b"busy"), ("aiv_vec_ratio", None)], None),
        ([("aic_mac_ratio", 0.0), ("aic_total_cycles", 0)], None),
        ([("aic_mac_ratio", 0.0), ("aic_total_cycles", 5000)], "latency"),
        # nor is what cannot be, beside which nothing is a share of the time
        ([("aic_mac_ratio", float("inf"))], None),
        ([("aic_mac_ratio", 1e308)], None),
        ([("aic_mac_ratio", 40.0), ("aiv_vec_ratio", 0.9)], None),
        ([("aic_mac_ratio", -0.4)], None),
        # of several columns of a pipe the largest counts, of several of a name the first
        ([("aic_mac_ratio", 0.5), ("aic_mac_ratio_extra", 0.6)], "cube"),
        ([*_BUSY, ("aic_mac_ratio", 0.1)], "cube"),
        ([*_BUSY, ("aic_total_time", 1e18), ("aiv_total_cycles", 1e308)], "cube"),
    ],
)
def test_only_what_counters_can_measure_bounds_kernels(
    shelf: ProfileShelf,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    rows: list[tuple[str, Any]],
    bound: str | None,
) -> None:
    """No value of a database ends in an error, a warning, or a share above the whole."""
    path = _with_metrics(shelf, tmp_path / "run", rows)
    operators = _bounds_of(path)
    assert {row["bound"] for row in operators} == {bound}
    share = {"cube": rows[0][1], "latency": 0.0}.get(bound or "")
    share = 0.6 if len(rows) > 1 and "extra" in rows[1][0] else share
    expected = None if share is None else pytest.approx(share)
    assert all(row["bound_share"] == expected for row in operators)
    assert main(["--verdict", str(path)]) == 0
    assert ("Compute is bound by" in capsys.readouterr().out) == (bound is not None)


def test_names_that_are_no_metrics_take_no_memory(shelf: ProfileShelf, tmp_path: Path) -> None:
    """A table of many names is no matrix of names and tasks."""
    names = [(f"name {at}", 1.0) for at in range(400)]
    path = _with_metrics(shelf, tmp_path / "run", [*names, *_BUSY])
    tracemalloc.start()
    try:
        assert {row["bound"] for row in _bounds_of(path)} == {"cube"}
        assert tracemalloc.get_traced_memory()[1] < 30e6
    finally:
        tracemalloc.stop()


def test_the_first_of_several_columns_of_a_name_counts(tmp_path: Path) -> None:
    """In tables too, where the last one would win as in a dict."""
    table = tmp_path / "kernels.csv"
    table.write_text("aic_mac_ratio,aic_mac_ratio\n0.4,0.1\n")
    builder = MetricsBuilder()
    for block in read_blocks(table, None, (), LossLog(table)):
        builder.add(block)
    assert builder.build().columns["aic_mac_ratio"].tolist() == [0.4]


def test_warm_runs_are_all_but_the_first_of_each_operator() -> None:
    """An operator that ran once keeps its only run."""
    start_ns, operator = np.array([30, 10, 20, 5, 40]), np.array([0, 0, 0, 1, 2])
    assert warm_rows(start_ns, operator).tolist() == [0, 2, 3, 4]


@pytest.mark.parametrize("cold_us", [100, 5000])
def test_a_cold_run_changes_nothing_of_what_is_said_of_warm_ones(cold_us: int) -> None:
    """Time in the cores is a share of the median, and no more than that."""
    durations_ns = np.array([cold_us, 10, 10, 10, 10, 10, 10]) * 1000
    start_ns = np.cumsum(durations_ns)
    tasks = Tasks.of(
        7, start_ns=start_ns, end_ns=start_ns + durations_ns, name=0, metrics=np.arange(7)
    )
    columns = {
        "aiv_time(us)": np.array([cold_us * 0.99, *[7.0] * 6]),
        "aiv_vec_ratio": np.array([0.01, *[0.7] * 6]),
    }
    records = Records(
        0,
        StringPool(),
        tasks=replace(tasks, compute=np.ones(7, np.bool_)),
        metrics=KernelMetrics(columns),
    )
    figures = operator_figures(records, np.empty(0, np.int64))
    bounds = figures.warm.bounds(np.zeros(len(figures.times), np.int64), 1)
    assert bounds.bound_share[0] == pytest.approx(0.7)
    assert bounds.outside_core[0] == pytest.approx(0.3)


def test_a_ratio_that_no_kernel_has_is_no_pipe() -> None:
    """Columns of other groups of metrics are kept under their own names and bound nothing."""
    metrics = KernelMetrics({"aic_l1_read_bw(GB/s)": np.array([3.5])})
    tasks = Tasks.of(1, start_ns=0, end_ns=10, name=0, metrics=0, blocks=NO_ID)
    nothing = CoreCounts()
    totals = KernelTotals.of(tasks, np.arange(1), np.zeros(1, np.int64), metrics, nothing, nothing)
    assert totals.bounds(np.zeros(1, np.int64), 1).bound.tolist() == [""]
    assert set(PIPES) >= {"cube", "vector"}
