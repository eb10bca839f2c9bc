"""Proves that files on how a run is split, and on what ranks do in a step, are read as written."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from simulator.overlap import expected_overlap
from simulator.parallelism import Parallelism
from simulator.simulation import make_run
from simulator.writers.mindspore.tables.cluster import write_cluster
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.profiler_tables import (
    CollectionSettings,
    CollectiveSums,
    LinkSums,
    ParallelSource,
    ParallelStrategies,
    ParallelTimes,
    ProfilerTables,
)
from timeline.sources.companions.cluster import read_cluster
from timeline.sources.companions.delimited import TablesBuilder
from timeline.sources.companions.file_kinds import find_numbered_files
from timeline.sources.companions.step_trace import read_step_trace

PIPELINE = "ascend_cluster_analyse_pipeline-parallel_2_4_0.csv"
ROUNDING_NS = 100
"""Times of step are written in ms with four digits."""


def read(directory: Path, rank: int = 0) -> tuple[ProfilerTables, list[str]]:
    """The tables of a rank, and what is damaged in its files."""
    into = TablesBuilder(rank)
    files = find_numbered_files([directory], rank)
    read_step_trace(files, into)
    read_cluster(files, into)
    tables, omissions = into.build()
    return tables, [one.reason for one in omissions]


def rows_of(table: Any, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(getattr(table, name).tolist() for name in names), strict=True))


def times_of(directory: Path, text: str, name: str = PIPELINE) -> tuple[ParallelTimes, list[str]]:
    (directory / name).write_text(text)
    tables, damage = read(directory)
    return tables.of(ParallelTimes), damage


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
@pytest.mark.parametrize(
    "header",
    [
        "computation_time,communication_alone_time,stage_time,receive_alone_time,"
        "collective_communication_alone_time",
        "computation, communication_alone_time , stage,receive_alone,collective_communication_time",
        " computation_time,communication_alone,stage_time,receive_alone_time,"
        "collective_communication",
        "Computation,Communication_Alone,Stage,Receive_Alone,collective_communication_alone",
    ],
)
def test_columns_are_found_however_they_are_spelt(tmp_path: Path, header: str, ending: str) -> None:
    """With `_time` or without, with blanks, with an end of the last line or without."""
    found, damage = times_of(tmp_path, f"{header}\n1.5,20,3.0001,4,16\n3,4,5,6,7{ending}")
    assert not damage
    assert rows_of(found, "step", "mean", "first") == [(1, False, True), (NO_ID, True, False)]
    assert found.computing_ns.tolist() == [1_500_000, 3_000_000]
    assert found.communication_alone_ns.tolist() == [20_000_000, 4_000_000]
    assert found.stage_ns.tolist() == [3_000_100, 5_000_000]
    assert found.receive_alone_ns.tolist() == [4_000_000, 6_000_000]
    assert found.collective_alone_ns.tolist() == [16_000_000, 7_000_000]


def test_columns_are_found_by_name_and_not_by_place(tmp_path: Path) -> None:
    """Others that stand between them are left alone."""
    found, _ = times_of(tmp_path, "note,communication_alone,computation\n7,2,1\n7,4,3\n7,6,5")
    assert rows_of(found, "computing_ns", "communication_alone_ns") == [
        (1_000_000, 2_000_000),
        (3_000_000, 4_000_000),
        (5_000_000, 6_000_000),
    ]
    assert (found.stage_ns == NO_TIME).all()


def test_a_file_of_one_row_has_it_for_the_step_and_the_mean(tmp_path: Path) -> None:
    """As MindSpore writes where there is one step."""
    name = "ascend_cluster_analyse_model-parallel_1_2_0.csv"
    found, _ = times_of(tmp_path, "computation,communication_alone_time\n651.9051,1293.1231", name)
    assert rows_of(found, "step", "mean", "computing_ns") == [
        (1, False, 651_905_100),
        (NO_ID, True, 651_905_100),
    ]


def test_rows_are_the_steps_of_the_step_trace(tmp_path: Path) -> None:
    """In its order; what it does not have follows its last."""
    trace = tmp_path / "step_trace_raw_0_detail_time.csv"
    trace.write_text("step_num,start_point,end_point\n11,5,6\n12,6,7\n-,7,8\n")
    found, _ = times_of(tmp_path, "computation\n1\n2\n3\n9")
    assert found.step.tolist() == [11, 12, 13, NO_ID]


def test_a_damaged_row_keeps_its_place(tmp_path: Path) -> None:
    """The steps behind it have their own numbers, and what is damaged is told with its line."""
    found, damage = times_of(tmp_path, "computation,communication_alone\n1,1\nx,2\n3\n4,4\n5,5")
    assert rows_of(found, "step", "computing_ns") == [
        (1, 1_000_000),
        (4, 4_000_000),
        (NO_ID, 5_000_000),
    ]
    assert damage == [f"{PIPELINE}: rows with a cell that cannot be read, the first at line 3"]


def test_ticks_of_data_parallel_runs_are_no_milliseconds(tmp_path: Path) -> None:
    """Their files repeat the step trace; only how the run is split is taken from them."""
    name = "ascend_cluster_analyse_data-parallel_1_8_0.csv"
    (tmp_path / name).write_text("iteration_interval, fp_and_bp, tail\n0, 2366808, 4097\n")
    tables, damage = read(tmp_path)
    assert not damage and not len(tables.of(ParallelTimes))
    (row,) = rows_of(tables.of(ParallelStrategies), "source", "mode", "stages", "ranks")
    assert row[0] == ParallelSource.TIMES and row[2:] == (1, 8)
    assert tables.strings[row[1]] == "data-parallel"


STAGES = [{"dim": [{"size": "0"}, {"size": "1"}]}, {"dim": [{"size": "2"}, {"size": "3"}]}]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "parallel_strategy_0.json",
            {"config": {"rankId": 0, "stageId": 1, "parallelType": "x", "stageDevices": STAGES}},
            [("x", 2, 4, 1)],
        ),
        ("parallel_strategy_0.json", {"config": {"stageDevices": [7]}}, []),
        ("parallel_strategy_0.json", {"graph": {"node": []}}, []),
        (
            "profiler_info_0.json",
            {"rank_size": "8", "parallel_mode": "stand_alone", "stage_num": 2},
            [("stand_alone", 2, 8, NO_ID)],
        ),
        ("profiler_info_0.json", {"context_mode": "graph", "rank_size": -1, "stage_num": True}, []),
    ],
)
def test_how_a_run_is_split_is_told_as_far_as_files_know(
    tmp_path: Path, name: str, content: dict[str, Any], expected: list[tuple[Any, ...]]
) -> None:
    """A file of another version that does not tell it is no damage."""
    (tmp_path / "parallel_strategy_0.json").write_text("{}")
    (tmp_path / name).write_text(json.dumps(content))
    tables, damage = read(tmp_path)
    rows = rows_of(tables.of(ParallelStrategies), "mode", "stages", "ranks", "stage")
    assert [(tables.strings[mode], *rest) for mode, *rest in rows] == expected
    assert not damage


def write_hccl(directory: Path, *rows: tuple[Any, ...], header: tuple[str, ...] = ()) -> None:
    text = io.StringIO()
    writer = csv.writer(text)
    names = ("step_num", "communication_cost", "wait_cost", "link_info")
    writer.writerow(header or (*names, "communication_operator_cost"))
    writer.writerows(
        [cell if isinstance(cell, str | float | int) else json.dumps(cell) for cell in row]
        for row in rows
    )
    (directory / "hccl_raw_0.csv").write_text(text.getvalue())


def test_links_and_ops_of_each_step_are_read(tmp_path: Path) -> None:
    """Sizes in kB of 1000 bytes and times in ms; the row of means and bandwidths are left alone."""
    links = {
        "1-0": {"SDMA": [2.5, 52706.816, 9e9], "RDMA": [1, 2, 3]},
        "0-0": {"SDMA": [0.1, 7, 1]},
    }
    ops = {
        "stream_41_0_AllReduce-op4582": ["1", 0.00322, 0.01035, {}],
        "stream_41_1_AllReduce-op4583": ["1", 1.0, 2.0, {}],
        "stream_48_1_Receive-op794": ["1", 0.5, 40.0, {}],
    }
    write_hccl(tmp_path, (1, 2.6, 3, links, ops), ("-", 2.6, 3, links, ops))
    tables, damage = read(tmp_path)
    assert not damage
    found = rows_of(
        tables.of(LinkSums), "step", "source_rank", "target_rank", "link", "size_bytes", "total_ns"
    )
    assert [(*row[:3], tables.strings[row[3]], *row[4:]) for row in found] == [
        (1, 1, 0, "SDMA", 52_706_816, 2_500_000),
        (1, 1, 0, "RDMA", 2000, 1_000_000),
        (1, 0, 0, "SDMA", 7000, 100_000),
    ]
    sums = rows_of(tables.of(CollectiveSums), "step", "kind", "count", "waited_ns", "transfer_ns")
    assert [(row[0], tables.strings[row[1]], *row[2:]) for row in sums] == [
        (1, "AllReduce", 2, 2_010_350, 1_003_220),
        (1, "Receive", 1, 40_000_000, 500_000),
    ]


def test_a_file_without_ops_tells_of_links(tmp_path: Path) -> None:
    """Some versions do not write the last column."""
    header = ("step_num", "communication_cost", "wait_cost", "link_info")
    write_hccl(tmp_path, (3, 1, 1, {"0-1": {"SDMA": [1, 1, 1]}}), header=header)
    tables, damage = read(tmp_path)
    assert not damage
    assert len(tables.of(LinkSums)) == 1 and not len(tables.of(CollectiveSums))


def test_damage_in_links_and_ops_is_counted_with_its_line(tmp_path: Path) -> None:
    """What can be read beside it is."""
    good = {"0-1": {"SDMA": [1, 1, 1]}}
    write_hccl(
        tmp_path,
        ("x", 1, 1, good, {}),
        (1, 1, 1, {"a-b": {"SDMA": [1, 1, 1]}, **good}, {"AllReduce-op1": ["1", "x", 1, {}]}),
        (2, 1, 1, {"0-1": {"SDMA": [1]}}, '{"AllReduce-op1": ["1", 0.1'),
    )
    tables, damage = read(tmp_path)
    assert tables.of(LinkSums).step.tolist() == [1]
    assert sorted(damage) == [
        "hccl_raw_0.csv: cells without a JSON object, the first at line 4",
        "hccl_raw_0.csv: communication ops that cannot be read, the first at line 3",
        "hccl_raw_0.csv: links that cannot be read, the first at line 3",
        "hccl_raw_0.csv: rows without a step, the first at line 2",
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("parallel_strategy_0.json", "[]"),
        ("profiler_info_0.json", "{"),
        ("hccl_raw_0.csv", "step_num,what\n1,2\n"),
    ],
)
def test_a_file_that_cannot_be_read_at_all_is_counted(
    tmp_path: Path, name: str, content: str
) -> None:
    """The others of the rank are read."""
    (tmp_path / PIPELINE).write_text("computation\n1\n2")
    (tmp_path / name).write_text(content)
    tables, damage = read(tmp_path)
    assert len(damage) == 1 and name in damage[0]
    assert len(tables.of(ParallelTimes)) == 2


@pytest.mark.parametrize("stages", [1, 2])
def test_a_made_run_reads_as_it_ran(tmp_path: Path, stages: int) -> None:
    """Computing and exposed communication of each step, whose parts add up, and its split."""
    run = make_run(4, 3, ops_per_step=24, parallelism=Parallelism(1, stages, 2))
    for rank in run.ranks:
        write_cluster(run, rank, tmp_path)
    for rank in run.ranks:
        tables, damage = read(tmp_path, rank.rank)
        assert not damage
        times = tables.of(ParallelTimes)
        for step, computing_ns, alone_ns in rows_of(
            times.take(~times.mean), "step", "computing_ns", "communication_alone_ns"
        ):
            truth = expected_overlap(run, rank.rank, step)
            assert abs(computing_ns - truth["computing_ns"]) <= ROUNDING_NS
            assert abs(alone_ns - truth["not_overlapped_ns"]) <= ROUNDING_NS
        if stages > 1:
            assert_identities(times)
        split = tables.of(ParallelStrategies)
        assert set(split.stages.tolist()) == {stages} and set(split.ranks.tolist()) == {4}
        assert len(split) == 3
        assert len(tables.of(LinkSums)) and len(tables.of(CollectiveSums))


def assert_identities(times: ParallelTimes) -> None:
    """A stage computes and communicates in collectives; communication is receives and those."""
    apart_ns = abs(times.stage_ns - times.computing_ns - times.collective_alone_ns)
    alone_ns = abs(
        times.communication_alone_ns - times.receive_alone_ns - times.collective_alone_ns
    )
    assert len(times) and apart_ns.max() <= 2 * ROUNDING_NS and alone_ns.max() <= 2 * ROUNDING_NS


@pytest.mark.parametrize(("setting", "rows"), [(True, [True]), (False, []), (None, []), ("on", [])])
def test_settings_say_whether_l2_metrics_are_collected(
    tmp_path: Path, setting: object, rows: list[bool]
) -> None:
    """Those that torch_npu writes; a file without them, or with other values, is no damage."""
    (tmp_path / "parallel_strategy_0.json").write_text("{}")
    config = {"experimental_config": {"_l2_cache": setting}}
    (tmp_path / "profiler_info_0.json").write_text(json.dumps({"config": config, "rank_id": 0}))
    tables, damage = read(tmp_path)
    assert tables.of(CollectionSettings).l2_cache.tolist() == rows
    assert not damage
