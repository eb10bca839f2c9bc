"""Proves that traces of PyTorch's own profiler show the run that they were taken of."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections import Counter as Multiset
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.model import RankRun
from simulator.overlap import expected_overlap
from simulator.writers.kineto import STREAMS, launching_operators, memory_samples, write_kineto
from tests.support.examples import at_most
from tests.support.kineto_traces import CALL, KERNEL, Write, read, spelled
from tests.support.loaded_picture import LoadedPicture
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import Profile, ProfileShelf, tiny_run
from tests.support.read_profiles import records_by_rank
from timeline.analysis.sound_records import drop_invalid_rows
from timeline.cli.main import main
from timeline.errors import SourceError
from timeline.layers import Layer
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import FlowEnd, Records
from timeline.selection import DETAIL_LAYERS, SUMMARY_LAYERS
from timeline.sources.kineto import source as kineto_reader

LAYOUTS = ("kineto", "kineto-2.2")
"""With a base of times, and without."""
RANKS = (0, 1)


@pytest.fixture(scope="module", params=LAYOUTS)
def profile(request: pytest.FixtureRequest, shelf: ProfileShelf) -> Profile:
    """A run with two graphs, so that steps are longer and streams fuller."""
    return shelf.get(request.param, graphs=(1, 2))


@pytest.fixture(scope="module")
def found(profile: Profile) -> dict[int, Records]:
    """What is read of it."""
    return records_by_rank(profile.path)


# -- the simulated run -----------------------------------------------------------------------------


def test_tasks_are_what_ran_on_the_device(profile: Profile, found: dict[int, Records]) -> None:
    """Each with its stream, its exact time on the wall clock, and the launch that made it."""
    run = profile.run
    kinds = {"MEMCPY_ASYNC": "gpu_memcpy", "EVENT_WAIT": "cuda_sync"}
    for rank, records in found.items():
        tasks = records.tasks
        rows = zip(
            tasks.start_ns.tolist(),
            tasks.end_ns.tolist(),
            tasks.stream.tolist(),
            tasks.connection.tolist(),
            spelled(records, tasks.task_type),
            tasks.compute.tolist(),
            strict=True,
        )
        assert Multiset(rows) == Multiset(
            (run.wall_ns(start_ns), run.wall_ns(end_ns), STREAMS[stream], connection, kind, compute)
            for start_ns, end_ns, stream, connection, kind, compute in device_rows(
                run.rank(rank), kinds
            )
        )
        assert set(tasks.device.tolist()) == {run.rank(rank).device}
        copies = tasks.take(tasks.size_bytes != NO_ID)
        assert set(spelled(records, copies.name)) == {"Memcpy HtoD (Pinned -> Device)"}
        kernels = tasks.take(tasks.compute)
        assert set(kernels.occupancy.tolist()) == {38}
        grids = {kernel.blocks for one in run.rank(rank).iterations for _, kernel in one.kernels}
        assert set(kernels.blocks.tolist()) == {2 * blocks for blocks in grids}


def device_rows(rank: RankRun, kinds: dict[str, str]) -> Iterator[tuple[Any, ...]]:
    """What of a run a GPU would record; recording an event leaves no trace."""
    for one in rank.iterations:
        for task in one.local_tasks:
            kind = "kernel" if task.kernel else kinds.get(task.kind)
            if kind:
                times = task.start_ns, task.end_ns
                yield (*times, task.stream, task.connection_id, kind, task.kernel is not None)
        for op in one.collectives:
            stream = op.tasks[0].stream
            yield op.start_ns, op.end_ns, stream, op.connection_id, "kernel", False


def test_kernels_know_the_operator_that_launched_them(
    profile: Profile, found: dict[int, Records]
) -> None:
    """By the id that they name; older versions name none, and no operator called on its thread."""
    for rank, records in found.items():
        operators = dict(launching_operators(profile.run.rank(rank)))
        tasks = records.tasks.take(records.tasks.compute)
        wanted = [operators[connection][1] for connection in tasks.connection.tolist()]
        named = not profile.path.name.startswith("kineto-2.2")
        assert spelled(records, tasks.op_type) == (wanted if named else [""] * len(wanted))
        assert "aten::convolution" in wanted


def test_nccl_kernels_are_communication_ops_of_their_group(
    profile: Profile, found: dict[int, Records]
) -> None:
    """With the amount, the type and the algorithm, and launched by the same call as the kernel."""
    for rank, records in found.items():
        ops = records.ops
        wanted = [op for one in profile.run.rank(rank).iterations for op in one.collectives]
        assert sorted(zip(ops.start_ns.tolist(), ops.end_ns.tolist(), strict=True)) == sorted(
            (profile.run.wall_ns(op.start_ns), profile.run.wall_ns(op.end_ns)) for op in wanted
        )
        assert set(spelled(records, ops.group)) == {"Group 0 default_pg"}
        assert set(spelled(records, ops.name)) == {"allreduce"}
        assert set(spelled(records, ops.data_type)) == {"Float"}
        assert set(spelled(records, ops.algorithm)) == {"RING_LL"}
        assert set(ops.count.tolist()) == {4_097_000}
        assert (ops.launch_ns != NO_TIME).all()


def test_host_events_have_a_layer(profile: Profile, found: dict[int, Records]) -> None:
    """The framework's are Python's, as torch_npu has it, and the runtime has one of its own."""
    for rank, records in found.items():
        host = records.host
        by_layer: dict[str, Multiset[tuple[str, int]]] = {
            "Python": Multiset(),
            "Runtime": Multiset(),
        }
        rows = zip(
            spelled(records, host.layer), spelled(records, host.name), host.thread.tolist(),
            strict=True,
        )  # fmt: skip
        for layer, name, thread in rows:
            by_layer[layer][name, thread] += 1
        assert by_layer["Python"] == Multiset(
            (call.name, call.thread)
            for call in profile.run.rank(rank).framework_calls
            if call.category not in ("enqueue", "dequeue")
        )
        assert {name for name, _ in by_layer["Runtime"]} == {
            "cudaLaunchKernel",
            "cudaMemcpyAsync",
            "cudaStreamWaitEvent",
            "cudaEventRecord",
        }
        assert set(spelled(records, host.level)) == {
            "cpu_op", "python_function", "user_annotation", "cuda_runtime",
        }  # fmt: skip


def test_arrows_lead_from_calls_to_what_they_launched(
    profile: Profile, found: dict[int, Records]
) -> None:
    """Every task but none other has one, by correlation; forward leads to backward."""
    for rank, records in found.items():
        flows, strings = records.flows, records.strings
        launches = flows.take(flows.category == strings.code("ac2g"))
        assert (launches.target_kind == FlowEnd.TASK).all()
        assert sorted(launches.target_row.tolist()) == list(range(len(records.tasks)))
        calls = records.host.take(launches.source_row)
        tasks = records.tasks.take(launches.target_row)
        assert calls.connection.tolist() == tasks.connection.tolist()
        assert set(spelled(records, calls.layer)) == {"Runtime"}
        assert tasks.launch_ns.tolist() == calls.start_ns.tolist()
        back = flows.take(flows.category == strings.code("fwdbwd"))
        backward = [call for call in profile.run.rank(rank).framework_calls if call.forward_thread]
        assert len(back) == len(backward) > 0
        assert Multiset(spelled(records, records.host.name[back.target_row])) == Multiset(
            call.name for call in backward
        )


def test_memory_is_a_counter_of_its_device(profile: Profile, found: dict[int, Records]) -> None:
    """What is allocated and what is reserved, in bytes, at every change."""
    for rank, records in found.items():
        series, strings = records.series, records.strings
        device = profile.run.rank(rank).device
        named = list(
            zip(*(spelled(records, column) for column in (series.group, series.name, series.unit)),
                strict=True)
        )  # fmt: skip
        assert named == [
            ("Memory", f"GPU {device} Allocated", "bytes"),
            ("Memory", f"GPU {device} Reserved", "bytes"),
        ]
        wanted = memory_samples(profile.run.rank(rank))
        for row, factor in ((0, 1), (1, 4)):
            of_series = records.samples.take(records.samples.series == row)
            assert list(zip(of_series.time_ns.tolist(), of_series.value.tolist(), strict=True)) == [
                (profile.run.wall_ns(time_ns), factor * size) for time_ns, size in wanted
            ]
        assert strings[0] == ""


def test_what_is_left_out_is_counted(profile: Profile, found: dict[int, Records]) -> None:
    """Repeated annotations, marks, and launches that left no trace; nothing that is a loss."""
    for rank, records in found.items():
        iterations = list(profile.run.rank(rank).iterations)
        recorded = [t for one in iterations for t in one.local_tasks if t.kind == "EVENT_RECORD"]
        assert {omission.reason: omission.rows for omission in records.omissions} == {
            kineto_reader._ANNOTATIONS: 3,
            kineto_reader._MARKS: 3,
            kineto_reader._HALF: len(recorded),
        }
        assert not any(omission.loss for omission in records.omissions)


# -- through the command line ----------------------------------------------------------------------


def test_the_timeline_shows_the_run(
    profile: Profile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows, arrows, counters and args in the real trace processor."""
    target = tmp_path / "timeline.pftrace"
    options = ["--kind", "detail", "--args", "all", "-o", str(target), "--strict"]
    assert main([str(profile.path), *options]) == 0, capsys.readouterr().err
    processor = TraceProcessor.load(target.read_bytes())
    picture = LoadedPicture(processor, is_json=False, zero_ns=processor.zero_ns)
    assert picture.processor.import_errors() == []
    for rank in profile.run.ranks:
        of_rank = [one for one in picture.by_id.values() if one.rank == rank.rank]
        tasks = list(device_rows(rank, {"MEMCPY_ASYNC": "gpu_memcpy", "EVENT_WAIT": "cuda_sync"}))
        assert {one.layer for one in of_rank if one.row.startswith("Stream")} == {"GPU"}
        for stream in (2, 3, 4):
            shown = Multiset(
                (one.start_ns, one.length_ns)
                for one in of_rank
                if one.row == f"Stream {STREAMS[stream]}"
            )
            assert shown == Multiset(
                (profile.run.wall_ns(start_ns), end_ns - start_ns)
                for start_ns, end_ns, where, *_ in tasks
                if where == stream
            )
        computing = [one.length_ns for one in of_rank if one.row == "Computing"]
        assert sum(computing) == expected_overlap(profile.run, rank.rank)["computing_ns"]
        ops = [one for one in of_rank if one.layer == "Communication"]
        assert {one.row for one in ops} == {"Group 0 default_pg Communication"}
        steps = Multiset(one.name for one in of_rank if one.row == "ProfilerStep")
        assert steps == Multiset(f"ProfilerStep#{step.id}" for step in rank.steps)
    launched = [
        (source, target)
        for source, target in picture.arrows()
        if source.layer == "Runtime" and target.row.startswith("Stream")
    ]
    assert len(launched) == sum(1 for rank in profile.run.ranks for _ in device_rows(
        rank, {"MEMCPY_ASYNC": "gpu_memcpy", "EVENT_WAIT": "cuda_sync"}))  # fmt: skip
    assert {counter.unit for counter in picture.counters()} == {"bytes"}
    args = {arg.name for one in picture.by_id.values() for arg in one.args if arg.kind == "task"}
    assert {"occupancy_percent", "size_bytes", "blocks", "connection_id"} <= args


@pytest.mark.parametrize(
    ("layers", "rows"), [("cann", {"Runtime"}), ("framework", {"Python"}), ("steps", set())]
)
def test_layers_choose_the_runtime_and_the_framework(
    shelf: ProfileShelf, tmp_path: Path, layers: str, rows: set[str]
) -> None:
    """Calls of a GPU's runtime are chosen as calls of CANN are."""
    target = tmp_path / "timeline.pftrace"
    path = shelf.get("kineto").path
    arguments = ["--kind", "detail", "--layers", layers, "-o", str(target)]
    assert main([str(path), *arguments]) == 0
    picture = LoadedPicture(TraceProcessor.load(target.read_bytes()), is_json=False)
    assert {one.layer for one in picture.by_id.values()} & {"Runtime", "Python"} == rows


# -- how a file is laid out ------------------------------------------------------------------------


@settings(max_examples=at_most(60))
@given(
    start_ns=st.integers(0, 10**17),
    length_ns=st.integers(0, 10**12),
    base_ns=st.integers(0, 2 * 10**18),
    digits=st.integers(3, 6),
)
def test_times_are_exact(
    write: Write, start_ns: int, length_ns: int, base_ns: int, digits: int
) -> None:
    """Base and decimals add up to the nanosecond, for kernels and for the calls before them."""
    event = KERNEL | {"ts": "START", "dur": "LENGTH"}
    path = write([event, CALL | {"ts": "START"}], baseTimeNanoseconds=base_ns)
    text = path.read_text(encoding="utf-8")
    for name, value in (("START", start_ns), ("LENGTH", length_ns)):
        text = text.replace(f'"{name}"', f"{Decimal(value) / 1000:.{digits}f}")
    path.write_text(text, encoding="utf-8")
    tasks = read(path, base_ns).tasks
    assert tasks.start_ns.tolist() == tasks.launch_ns.tolist() == [base_ns + start_ns]
    assert tasks.end_ns.tolist() == [base_ns + start_ns + length_ns]


def test_marks_of_bytes_and_lines_are_read_over(write: Write) -> None:
    """Files that went through an editor: a mark at the beginning, other line ends, tabs."""
    path = write([KERNEL, CALL])
    text = json.dumps(json.loads(path.read_bytes()), indent="\t").replace("\n", "\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    records = read(path)
    assert records.tasks.start_ns.tolist() == [10_000]
    assert spelled(records, records.tasks.name) == ["gemm"]


def test_values_that_are_no_json_are_read_over(write: Write) -> None:
    """Some versions leave out the description of a group, and write a division by zero."""
    nccl = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    args = {"blocks per SM": 1, "Process Group Name": "3", "Process Group Description": "HERE"}
    path = write([KERNEL | {"name": nccl, "args": KERNEL["args"] | args}, KERNEL])
    text = path.read_text(encoding="utf-8")
    text = text.replace(
        '"Process Group Description": "HERE"', '"Process Group Description": , "x":0'
    )
    path.write_text(text.replace('"blocks per SM": 1', '"blocks per SM": inf'), encoding="utf-8")
    records = read(path)
    assert spelled(records, records.ops.group) == ["Group 3"]
    assert spelled(records, records.ops.name) == ["ncclDevKernel_SendRecv"]
    assert len(records.tasks) == 2


def test_categories_of_the_first_versions_are_known(write: Write) -> None:
    """PyTorch 1.8 wrote Kernel, Memcpy, Runtime and Operator."""
    records = read(
        write(
            [
                KERNEL | {"cat": "Kernel"},
                KERNEL | {"cat": "Memcpy", "ts": 20},
                CALL | {"cat": "Runtime"},
                CALL | {"cat": "Operator", "name": "ProfilerStep#4"},
                {"ph": "s", "cat": "async", "id": 3, "pid": 100, "tid": 101, "ts": 1},
            ]
        )
    )
    assert records.tasks.compute.tolist() == [True, False]
    assert records.tasks.launch_ns.tolist() == [1000, 1000]
    assert records.steps.iteration.tolist() == [4]
    assert len(records.flows) == 2
    assert records.omissions == ()


def test_unknown_events_are_drawn_or_counted(write: Write) -> None:
    """A category by whether it has a stream, a phase not at all, and nothing silently."""
    records = read(
        write(
            [
                KERNEL | {"cat": "new_device_thing"},
                {"ph": "X", "cat": "overhead", "name": "Flush", "pid": -1, "tid": 0, "ts": 1},
                {"ph": "b", "cat": "async", "name": "begin", "id": 1, "ts": 1},
                {"ph": "i", "cat": "cpu_instant_event", "name": "[OutOfMemory]", "ts": 3},
                {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 3,
                 "args": {"Bytes": 512, "Device Type": 1, "Device Id": 0}},
            ]
        )
    )  # fmt: skip
    assert records.tasks.compute.tolist() == [False]
    assert spelled(records, records.host.layer) == ["overhead"]
    assert {omission.reason: (omission.rows, omission.loss) for omission in records.omissions} == {
        kineto_reader._OTHERS: (2, True),
        kineto_reader._NO_TOTALS: (1, True),
    }


def test_broken_fields_are_counted_or_absent(write: Write) -> None:
    """N/A for a number, an id beyond 64 bits, a missing time, a wait for all streams."""
    records = drop_invalid_rows(
        read(
            write(
                [
                    KERNEL | {"args": {"stream": "N/A", "correlation": 1 << 70, "bytes": "N/A"}},
                    KERNEL | {"args": None, "tid": 9},
                    KERNEL | {"cat": "cuda_sync", "args": {"stream": 4294967295}},
                    {key: value for key, value in KERNEL.items() if key != "ts"},
                    KERNEL | {"ts": "N/A"},
                ]
            )
        )
    )
    assert records.tasks.stream.tolist() == [NO_ID, 9, NO_ID]
    assert records.tasks.connection.tolist() == [NO_ID] * 3
    (omission,) = records.omissions
    assert (omission.rows, omission.loss) == (2, True)


def test_one_call_may_launch_many_kernels(write: Write) -> None:
    """A CUDA graph; of calls with one correlation the latest counts, as it is the inner one."""
    driver = CALL | {"cat": "cuda_driver", "name": "cuLaunchKernel", "ts": 1.5, "dur": 1}
    records = read(write([CALL, driver, KERNEL, KERNEL | {"ts": 30}, KERNEL | {"ts": 50}]))
    assert records.tasks.launch_ns.tolist() == [1500] * 3
    sources = records.host.name[records.flows.source_row]
    assert spelled(records, sources) == ["cuLaunchKernel"] * 3


def test_devices_of_one_process_are_a_remark(write: Write) -> None:
    """Streams are told apart by number only."""
    records = read(write([KERNEL, KERNEL | {"args": KERNEL["args"] | {"device": 1}}]))
    (warning,) = records.warnings
    assert "devices 0,1" in warning


def test_steps_of_one_number_are_counted(write: Write) -> None:
    """A second profiler in the same process counts its own steps."""
    step = CALL | {"cat": "user_annotation", "name": "ProfilerStep#2"}
    records = read(write([step, step | {"ts": 90}, step | {"name": "ProfilerStep#3", "ts": 50}]))
    assert records.steps.iteration.tolist() == [2, 3]
    (omission,) = records.omissions
    assert (omission.rows, omission.loss) == (1, True)


def test_a_trace_without_events_is_empty(write: Write) -> None:
    """A profiler that was started and stopped at once."""
    records = read(write([]))
    assert len(records.tasks) == len(records.host) == len(records.steps) == 0


def test_an_interrupted_trace_gives_its_whole_events(write: Write) -> None:
    """Half of a trace would look like a short run, so the loss is told with its place."""
    path = write([KERNEL] * 50)
    path.write_bytes(path.read_bytes()[:-40])
    records = read(path)
    assert len(records.tasks) == 49
    (lost,) = records.omissions
    assert "after 49 whole events" in lost.reason
    assert (lost.rows, lost.loss) == (1, True)


def test_an_interrupted_packed_trace_is_told(write: Write) -> None:
    """Of a tiny one nothing can be unpacked, which is an error with its place."""
    path = write([KERNEL] * 50)
    path.write_bytes(gzip.compress(path.read_bytes())[:-40])
    with pytest.raises(SourceError, match=r"rank0\.pt\.trace\.json, byte \d+"):
        read(path)


def test_memory_is_bounded_by_blocks_not_by_the_file(tmp_path: Path) -> None:
    """The events of a step-and-overlap summary take a small part of their text."""
    path = tmp_path / "large.json"
    call = json.dumps(CALL | {"cat": "cpu_op", "args": {"Input Dims": [[1, 2, 3]] * 40}})
    with path.open("w", encoding="utf-8") as file:
        file.write('{"schemaVersion": 1, "deviceProperties": [{"id": 0}], "traceEvents": [')
        file.write(",".join([call] * 100_000))
        file.write('], "distributedInfo": {"rank": 0, "pg_config": [{}, {}]}}')
    size = path.stat().st_size
    tracemalloc.start()
    records = read(path, layers=SUMMARY_LAYERS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(records.host) == 0
    assert size > 50 << 20
    assert peak < size / 2


def test_a_run_of_many_ranks_is_written_and_read(tmp_path: Path) -> None:
    """Packed and unpacked traces of one run side by side."""
    run = tiny_run(ranks=5, steps=1)
    write_kineto(run, tmp_path)
    assert sorted(records_by_rank(tmp_path)) == [0, 1, 2, 3, 4]


def test_operators_with_a_stream_stay_on_the_host(write: Write) -> None:
    """torch.compile writes the stream of a Triton kernel into the operator that launches it."""
    operator = {"cat": "cpu_op", "name": "triton_poi_fused_add_0", "ts": 0.5, "dur": 3}
    event = CALL | operator | {"args": {"stream": 7, "device": 0}}
    records = read(write([KERNEL, CALL, event, event | {"cat": "user_annotation"}]))
    assert len(records.tasks) == 1
    assert "triton_poi_fused_add_0" in spelled(records, records.host.name)


def test_tasks_of_mtia_compute(write: Write) -> None:
    """They are kernels by another name."""
    records = read(write([KERNEL | {"cat": "mtia_ccp_events"}, CALL | {"cat": "mtia_runtime"}]))
    assert records.tasks.compute.tolist() == [True]
    assert records.tasks.launch_ns.tolist() == [1000]


@pytest.mark.parametrize("vendor", ["musa", "xpu", "vendor-of-tomorrow"])
def test_calls_of_any_runtime_launch(write: Write, vendor: str) -> None:
    """Vendors name the categories of their runtime and driver after themselves."""
    for kind in ("runtime", "driver"):
        records = read(write([KERNEL, CALL | {"cat": f"{vendor}_{kind}"}]))
        assert records.tasks.launch_ns.tolist() == [1000]


def test_waits_of_musa_and_events_are_on_the_device(write: Write) -> None:
    """They neither compute nor are they of an unknown category."""
    on_stream = {"stream": 7, "device": 0}
    waits = [KERNEL | {"cat": cat, "args": on_stream} for cat in ("musa_sync", "cuda_event")]
    records = read(write([KERNEL, CALL, *waits]))
    assert records.tasks.compute.tolist() == [True, False, False]
    assert not records.warnings


def test_measurements_of_a_kernel_are_no_kernel(write: Write) -> None:
    """XPUs write each kernel they measure twice, the second time with metrics for a launch."""
    args = {"kernel_id": 1, "queue": "0x1", "GpuTime::ns": 5000}
    again = KERNEL | {"name": "metrics: gemm", "ts": 9.999, "dur": 5.002, "args": args}
    own = KERNEL | {"name": "metrics: of_a_model", "ts": 20}
    records = read(write([KERNEL, again, again | {"cat": "xpu_scope_profiler"}, own, CALL]))
    assert spelled(records, records.tasks.name) == ["gemm", "metrics: of_a_model"]


def test_calls_without_length_or_correlation_launch_nothing(write: Write) -> None:
    """Marks of mspti stand where the kernel starts, so they are no calls and tell no launch."""
    mark = {"ph": "X", "cat": "privateuse1_runtime", "name": "MatMul", "pid": 1, "tid": 1}
    events = [mark | {"ts": 4, "dur": 0, "args": {}}, KERNEL | {"ts": 4, "args": {"stream": 7}}]
    records = read(write(events))
    assert not len(records.host)
    assert records.tasks.launch_ns.tolist() == [NO_TIME]
    assert [(one.rows, one.loss) for one in records.omissions] == [(1, False)]
    call = mark | {"ts": 1, "dur": 0, "args": {"correlation": KERNEL["args"]["correlation"]}}
    records = read(write([call, KERNEL | {"ts": 4}]))
    assert records.tasks.launch_ns.tolist() == [1000]


@pytest.mark.parametrize("layers", [DETAIL_LAYERS, SUMMARY_LAYERS])
@pytest.mark.parametrize("first", [True, False])
def test_unknown_categories_of_a_device_are_named(
    write: Write, layers: frozenset[Layer], first: bool
) -> None:
    """They are drawn on the device, wherever they stand; those of the host are calls."""
    kernel = KERNEL | {"pid": 0}
    unknown = kernel | {"cat": "npu_thing", "name": "x", "args": {}, "tid": 9}
    on_host = unknown | {"cat": "host_thing", "pid": CALL["pid"]}
    others = [unknown, unknown | {"ts": 20}, on_host]
    path = write([*others, kernel, CALL] if first else [kernel, CALL, *others])
    records = read(path, layers=layers)
    assert len(records.tasks) == 3
    assert records.tasks.compute.sum() == 1
    assert records.tasks.stream[~records.tasks.compute].tolist() == [9, 9]
    (warning,) = records.warnings
    assert "2 of npu_thing" in warning
    assert "host_thing" not in warning
    if layers is DETAIL_LAYERS:
        assert spelled(records, records.host.layer).count("host_thing") == 1
        assert "npu_thing" not in spelled(records, records.host.layer)
