"""Proves that what MindData sampled is read from every form of its files, and damage counted."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.profiler_tables import (
    PipelineOperations,
    ProcessorUse,
    ProcessorUser,
    ProfilerTables,
    Queue,
    QueueRecords,
)
from timeline.sources.companions.delimited import TablesBuilder
from timeline.sources.companions.file_kinds import find_numbered_files
from timeline.sources.companions.minddata import read_data_preparation

HOST_QUEUE = "0 1 1 4 10\n0 2 1 4.5 10\n0 0 1 0 10\n1 64 1 0 10\n"


def read(directory: Path, **texts: str | bytes) -> tuple[ProfilerTables, list[str]]:
    """Read files of rank 0, given by name without its suffix; what was lost."""
    for name, text in texts.items():
        suffix = ".json" if name.startswith(("pipeline", "minddata_cpu")) else ".txt"
        suffix = ".csv" if "raw" in name else suffix
        data = text.encode() if isinstance(text, str) else text
        (directory / f"{name}_0{suffix}").write_bytes(data)
    into = TablesBuilder(0)
    read_data_preparation(find_numbered_files([directory], 0), into, drawn=False)
    tables, omissions = into.build()
    return tables, [one.reason for one in omissions]


def sizes(tables: ProfilerTables, queue: Queue) -> list[tuple[int, int]]:
    """Batch and size of what is known of a queue."""
    records = tables.of(QueueRecords)
    its = records.take((records.queue == queue) & (records.size != NO_ID))
    return list(zip(its.step.tolist(), its.size.tolist(), strict=True))


def times(tables: ProfilerTables, name: str) -> list[int]:
    column = getattr(tables.of(QueueRecords), name)
    return [time_ns for time_ns in column.tolist() if time_ns != NO_TIME]


def test_a_host_queue_tells_sizes_and_times(tmp_path: Path) -> None:
    """Milliseconds with decimals are exact nanoseconds; each kind of time has its column."""
    tables, lost = read(tmp_path, device_queue_profiling=HOST_QUEUE)
    assert sizes(tables, Queue.HOST) == [(1, 0)]
    assert [times(tables, name) for name in ("get_ns", "push_ns", "total_ns")] == [
        [0],
        [4_000_000],
        [4_500_000],
    ]
    assert not lost


def test_the_device_queue_file_wins(tmp_path: Path) -> None:
    """Of the two files of the host queue the first is read, and the other is not."""
    both = {"device_queue_profiling": HOST_QUEUE, "dataset_iterator_profiling": "1 8 1 3 9\n" * 5}
    assert sizes(read(tmp_path, **both)[0], Queue.HOST) == [(1, 0)]


def test_older_lines_have_no_time(tmp_path: Path) -> None:
    """Four cells still tell size and capacity."""
    tables, lost = read(tmp_path, dataset_iterator_profiling="1 64 1 3\n1 64 2 64\n")
    assert sizes(tables, Queue.HOST) == [(1, 3), (2, 64)]
    assert tables.of(QueueRecords).capacity.tolist() == [64, 64]
    assert not lost


def test_damaged_lines_of_a_queue_are_counted_with_their_place(tmp_path: Path) -> None:
    """A line of no kind and a cell that is no number are told with the first line of each."""
    text = HOST_QUEUE + "7 1 1 1 1\n1 64 2 many 10\n1 64 3 5 10\n0 0\n"
    tables, lost = read(tmp_path, device_queue_profiling=text)
    assert sizes(tables, Queue.HOST) == [(1, 0), (3, 5)]
    assert lost == [
        "device_queue_profiling_0.txt: lines of an unknown kind, the first at line 5",
        "device_queue_profiling_0.txt: lines with a cell that is not a number, the first at line 6",
    ]


@pytest.mark.parametrize(
    ("name", "length_ns"), [("minddata_aicpu", 1_500), ("minddata_getnext_profiling", 1)]
)
def test_a_device_queue_is_of_the_operators_that_fetch(
    name: str, length_ns: int, tmp_path: Path
) -> None:
    """A title and other nodes are none; times are microseconds, on GPUs nanoseconds."""
    text = (
        "node_name start_time end_time queue_size\n"
        "GetNext_dequeue_wait 154907895305 154907895306.5 3\n"
        "Default/Cast-op1 154907895400 154907895500 0\n"
        "GetNext 154907896920 154907896921.5 0\n"
    )
    tables, lost = read(tmp_path, **{name: text})
    assert sizes(tables, Queue.DEVICE) == [(1, 3), (2, 0)]
    assert times(tables, "total_ns") == [length_ns] * 2
    assert not lost


@given(
    batches=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**4)), max_size=50),
    between=st.sampled_from([b"\0", b"\n", b"\n\0"]),
)
def test_batches_that_were_put_into_the_queue(
    batches: list[tuple[int, int]], between: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Records are parted by NUL, and come back in order of their batches."""
    path = tmp_path_factory.mktemp("tdt") / "DATA_PREPROCESS.dev.TDT.0.slice_0"
    records = (
        f"[{at}] Enqueue data to dp, source:f8-a5, index:{index}, size:{size}".encode()
        for at, (index, size) in enumerate(batches)
    )
    path.write_bytes(between.join(records))
    tables, lost = read(path.parent)
    assert sizes(tables, Queue.TO_DEVICE) == sorted(batches, key=lambda one: one[0])
    assert not lost


def test_damaged_batches_are_searched_once(tmp_path: Path) -> None:
    """Of 20,000 beginnings of records in one only the last, that is whole, tells of a batch."""
    path = tmp_path / "DATA_PREPROCESS.dev.TDT.0.slice_0"
    beginnings = "[1] Enqueue data to dp, source:f8, index:1, " * 20_000
    path.write_text(f"{beginnings}Enqueue data to dp, source:f8, index:7, size:3")
    began = time.process_time()
    tables, lost = read(tmp_path)
    assert time.process_time() - began < 5
    assert sizes(tables, Queue.TO_DEVICE) == [(7, 3)]
    assert not lost


def operation(op: int, children: list[int] | None, sizes: list[int] | None, **more: Any) -> Any:
    queue = None if sizes is None else {"output_queue": {"size": sizes, "length": 64}}
    return {"op_id": op, "op_type": "Map", "metrics": queue, "children": children, **more}


def pipeline(*operations: Any) -> str:
    return json.dumps({"sampling_interval": 10, "op_info": operations})


def rows(tables: ProfilerTables) -> list[tuple[int, int, int, int, int]]:
    """Number, parent, samples, sum and empty samples of each operation."""
    made = tables.of(PipelineOperations)
    columns = (made.op, made.parent, made.samples, made.total_size, made.empty_samples)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_operations_without_a_queue_give_their_children_away(tmp_path: Path) -> None:
    """Inline operations have no row, and nothing above the root is there; the root always is."""
    text = pipeline(
        operation(5, [0], None),
        operation(0, [1], None),
        operation(1, [2, 4], [0, 20]),
        operation(4, [3], None),
        operation(3, None, [9]),
        operation(2, [], []),
    )
    tables, lost = read(tmp_path, pipeline_profiling=text)
    assert rows(tables) == [
        (0, NO_ID, NO_ID, 0, 0),
        (1, 0, 2, 20, 1),
        (2, 1, 0, 0, 0),
        (3, 1, 1, 9, 0),
    ]
    assert not lost


def test_a_pipeline_that_goes_in_circles_is_read_once(tmp_path: Path) -> None:
    """A child that is its own ancestor is no second row."""
    text = pipeline(operation(0, [1, 1], [1]), operation(1, [2], None), operation(2, [0, 1], [3]))
    assert [row[0] for row in rows(read(tmp_path, pipeline_profiling=text)[0])] == [0, 2]


def test_a_pipeline_without_a_root_is_counted(tmp_path: Path) -> None:
    """What hangs below no root cannot be ordered."""
    tables, lost = read(tmp_path, pipeline_profiling=pipeline(operation(1, [], [1])))
    assert rows(tables) == []
    assert "without a root" in lost[0]


def test_the_table_of_a_pipeline_tells_the_same(tmp_path: Path) -> None:
    """Lists are JSON in a cell; an operation without a queue has empty cells, or a usage of 0."""
    text = (
        "op_id,op_type,num_workers,output_queue_size,output_queue_average_size,"
        "output_queue_length,output_queue_usage_rate,sample_interval,parent_id,children_id\r\n"
        "0,Batch,4,,,,0,10,,[4]\r\n"
        '4,Shuffle,1,"[0, 20]",10.0,64,0.15625,10,0,"[2, 3]"\r\n'
        '2,TFReader,4,"[9]",9.0,64,0.1,10,4,\r\n'
        "x,TFReader,4,[9],9.0,64,0.1,10,4,\r\n"
        '3,TFReader,4,"[9]",9.0,64,0.1,10,4,\r\n'
    )
    tables, lost = read(tmp_path, minddata_pipeline_raw=text)
    assert rows(tables) == [
        (0, NO_ID, NO_ID, 0, 0),
        (4, 0, 2, 20, 1),
        (2, 4, 1, 9, 0),
        (3, 4, 1, 9, 0),
    ]
    assert tables.of(PipelineOperations).capacity.tolist() == [NO_ID, 64, 64, 64]
    assert lost == [
        "minddata_pipeline_raw_0.csv: rows with a cell that cannot be read, the first at line 5"
    ]


def test_the_json_of_a_pipeline_wins(tmp_path: Path) -> None:
    """The table is made of it, so it is not read beside it."""
    made = {"pipeline_profiling": pipeline(operation(0, [], [1])), "minddata_pipeline_raw": "x\n"}
    tables, lost = read(tmp_path, **made)
    assert [row[0] for row in rows(tables)] == [0]
    assert not lost


def test_processors_tell_means_of_what_is_there(tmp_path: Path) -> None:
    """Lists may be shorter than the times; operation -1 is none of the pipeline."""
    document = {
        "time_stamp": [1, 2, 3],
        "device_info": {"idle_utilization": [10, 20, 30], "runable_processes": [1, 2, 3]},
        "process_info": {"user_utilization": [4, 6]},
        "op_info": [
            {"op_id": -1, "metrics": {"user_utilization": [99]}},
            {"op_id": 1, "metrics": {"user_utilization": [10, 20], "sys_utilization": []}},
        ],
    }
    tables, lost = read(tmp_path, minddata_cpu_utilization=json.dumps(document))
    uses = tables.of(ProcessorUse)
    assert uses.user.tolist() == [*ProcessorUser]
    assert uses.op.tolist() == [NO_ID, NO_ID, 1]
    assert uses.idle[0] == 20
    assert uses.in_user.tolist()[1:] == [5, 15]
    assert uses.in_system[2] != uses.in_system[2]
    assert not lost
