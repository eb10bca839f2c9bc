"""What msprof exports since CANN 7, alone or inside a MindFormers output."""

from __future__ import annotations

from pathlib import Path

from simulator.model import MILLISECOND_NS, RankRun, Run
from simulator.simulation import make_run
from simulator.writers.events import (
    Event,
    process,
    slice_event,
    thread_order,
    write_json,
    write_table,
)
from simulator.writers.session import session_name, stamp, write_device_info, write_host_info
from simulator.writers.trace_json.mindspore import write_timeline_session
from simulator.writers.trace_json.msprof import (
    CANN_8_3_GRAPH,
    PMU_COLUMNS,
    SHAPE_COLUMNS,
    Dialect,
    msprof_events,
    msprof_metadata,
    operator_rows,
    wall_clock,
)
from simulator.writers.trace_json.step_trace import (
    FIRST_MODEL_TID,
    text_step_trace,
    wait_for_data_ns,
)

SECOND_NS = 1000 * MILLISECOND_NS
OP_SUMMARY = (
    "Device_id",
    "Model ID",
    "Task ID",
    "Stream ID",
    "Op Name",
    "OP Type",
    "OP State",
    "Task Type",
    "Task Start Time(us)",
    "Task Duration(us)",
    "Task Wait Time(us)",
    "Block Num",
    "Mix Block Num",
    *SHAPE_COLUMNS,
    *PMU_COLUMNS,
)
STEP_TRACE = (
    "Device_id",
    "Iteration ID",
    "FP Start(us)",
    "BP End(us)",
    "Iteration End(us)",
    "Iteration Time(us)",
    "FP to BP Time(us)",
    "Iteration Refresh(us)",
    "Data Aug Bound(us)",
    "Model ID",
)


def write_mindstudio(
    run: Run,
    directory: str | Path,
    *,
    older_export: bool = False,
    slices: int = 1,
    dialect: Dialect = CANN_8_3_GRAPH,
    operators: bool = True,
    distributed: bool = True,
) -> list[Path]:
    """Write one `PROF_*` directory per rank and return them.

    `older_export` puts the files of an earlier, different export next to the right ones; `slices`
    above one cuts the timeline into as many files, of which only the first names its tracks.
    Without `operators` there is no op_summary; what is not `distributed` has no rank.
    """
    sessions = []
    for rank in run.ranks:
        session = write_mindstudio_session(
            run, rank, Path(directory), older_export, slices, dialect, distributed
        )
        if not operators:
            for path in session.rglob("op_summary_*.csv"):
                path.unlink()
        sessions.append(session)
    return sessions


def write_mindformers(run: Run, directory: str | Path, *, layout: str = "mindstudio") -> list[Path]:
    """Write `output/profile/rank_N/profiler/PROF_*` per rank, in one of the two PROF layouts."""
    sessions = []
    for rank in run.ranks:
        parent = Path(directory) / "output" / "profile" / f"rank_{rank.rank}" / "profiler"
        if layout == "mindstudio":
            sessions.append(write_mindstudio_session(run, rank, parent))
        elif layout == "mindspore-2.1":
            sessions.append(write_timeline_session(run, rank, parent))
        else:
            raise ValueError(f"{layout} is not a layout below MindFormers")
    return sessions


def write_mindstudio_session(
    run: Run,
    rank: RankRun,
    directory: Path,
    older_export: bool = False,
    slices: int = 1,
    dialect: Dialect = CANN_8_3_GRAPH,
    distributed: bool = True,
) -> Path:
    """Write the `PROF_*` directory of one rank."""
    session = directory / session_name(run, rank)
    write_host_info(run, rank, session, distributed=distributed)
    write_device_info(run, rank, session, distributed=distributed)
    output = session / "mindstudio_profiler_output"
    if older_export:
        earlier = make_run(
            ranks=len(run.ranks),
            steps=1,
            seed=run.seed + 1,
            graphs=run.graphs,
            ops_per_step=run.ops_per_step,
            planes=run.planes,
            monotonic=run.monotonic,
        )
        exported = stamp(run, rank.end_ns + 20 * SECOND_NS)
        _write_export(earlier, earlier.rank(rank.rank), output, exported, slices, dialect)
    _write_export(run, rank, output, stamp(run, rank.end_ns + 60 * SECOND_NS), slices, dialect)
    return session


def _write_export(
    run: Run, rank: RankRun, output: Path, exported: str, slices: int, dialect: Dialect
) -> None:
    hardware_pid = dialect.pid(rank, "Ascend Hardware")
    clock = wall_clock(run)
    models = _model_threads(run, hardware_pid)
    step_trace = text_step_trace(rank, hardware_pid, clock)
    ranges = _range_events(run, rank)
    range_names = _range_metadata(rank)
    metadata = [*msprof_metadata(run, rank, dialect), *models, *range_names]
    events = [*msprof_events(run, rank, dialect), *step_trace, *ranges]
    if slices > 1:
        events.sort(key=lambda event: str(event["ts"]))
        size = -(-len(events) // slices)
        for index in range(slices):
            part = events[index * size : (index + 1) * size]
            path = output / f"msprof_slice_{index}_{exported}.json"
            write_json(path, part if index else [*metadata, *part])
    else:
        write_json(output / f"msprof_{exported}.json", [*metadata, *events])
    label, layer = dialect.label(rank), dialect.layers["Ascend Hardware"]
    hardware = process(hardware_pid, "Ascend Hardware", label, layer)
    write_json(output / f"step_trace_{exported}.json", [*hardware, *models, *step_trace])
    write_json(output / f"msprof_tx_{exported}.json", [*range_names, *ranges])
    write_step_table(run, rank, output / f"step_trace_{exported}.csv")
    rows = [[str(rank.device), *cells] for _, cells in operator_rows(run, rank, dialect)]
    write_table(output / f"op_summary_{exported}.csv", OP_SUMMARY, rows, "\n")


def write_step_table(run: Run, rank: RankRun, path: Path) -> None:
    """One row per iteration, as long as it has reduces: rows of other graphs may be shorter."""
    clock = wall_clock(run)
    rows = []
    for one in rank.iterations:
        times_ns = (one.forward_start_ns, one.backward_end_ns, one.end_ns)
        spans_ns = (
            one.end_ns - one.start_ns,
            one.backward_end_ns - one.forward_start_ns,
            one.end_ns - one.backward_end_ns,
            wait_for_data_ns(rank, one),
        )
        row = [str(rank.device), str(one.number), *(f"{clock(time_ns)}\t" for time_ns in times_ns)]
        row += ["N/A" if span_ns is None else str(span_ns / 1000) for span_ns in spans_ns]
        row.append(str(one.graph))
        for reduce in one.collectives:
            row += [f"{clock(reduce.start_ns)}\t", str(reduce.duration_ns / 1000)]
        rows.append(row)
    longest = max(len(row) for row in rows)
    reduces = ["Reduce Start(us)", "Reduce Duration(us)"] * ((longest - len(STEP_TRACE)) // 2)
    write_table(path, [*STEP_TRACE, *reduces], rows, "\n")


def _model_threads(run: Run, pid: int) -> list[Event]:
    events = []
    for graph in run.graphs:
        tid = FIRST_MODEL_TID + graph
        events += thread_order(pid, tid, f"Step Trace(Model ID:{graph})", tid)
    return events


def _range_metadata(rank: RankRun) -> list[Event]:
    pid, layer = CANN_8_3_GRAPH.pid(rank, "Framework"), CANN_8_3_GRAPH.layers["Framework"]
    thread = rank.main_thread
    return process(pid, "python3", "CPU", layer, [(thread, f"Thread {thread}")])


def _range_events(run: Run, rank: RankRun) -> list[Event]:
    """The ranges a user marked with mstx: one per step on the host."""
    pid, clock = CANN_8_3_GRAPH.pid(rank, "Framework"), wall_clock(run)
    args = {
        "Category": "0",
        "Payload_type": 0,
        "Payload_value": 0,
        "Message_type": 0,
        "event_type": "push/pop",
    }
    return [
        slice_event(
            f"train step {step.id}",
            pid,
            rank.main_thread,
            clock(step.host_start_ns),
            (step.host_end_ns - step.host_start_ns) / 1000,
            dict(args),
        )
        for step in rank.steps
    ]
