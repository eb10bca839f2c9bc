"""Tables alone, as people pass them on: without a trace and without a database."""

from __future__ import annotations

from pathlib import Path

from simulator.model import RankRun, Run
from simulator.writers.events import exact_us, write_table
from simulator.writers.session import session_name, write_device_info
from simulator.writers.trace_json.mindstudio import OP_SUMMARY, write_mindstudio, write_step_table
from simulator.writers.trace_json.msprof import (
    CANN_8_3_GRAPH,
    Dialect,
    hardware_name,
    operator_rows,
)
from simulator.writers.trace_json.torch_text import write_torch_text

TASK_TIME = (
    "Device_id",
    "kernel_name",
    "kernel_type",
    "stream_id",
    "task_id",
    "task_time(us)",
    "task_start(us)",
    "task_stop(us)",
)


def write_kernel_details(run: Run, directory: str | Path) -> list[Path]:
    """Write one `*_ascend_pt` directory per rank, with kernel_details.csv and no trace."""
    workers = write_torch_text(run, directory)
    for worker in workers:
        (worker / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").unlink()
    return workers


def write_op_summary(
    run: Run,
    directory: str | Path,
    *,
    dialect: Dialect = CANN_8_3_GRAPH,
    operators: bool = True,
    wholes: bool = False,
) -> list[Path]:
    """Write one `PROF_*` directory per rank, with the tables of its export and no trace.

    Without `operators` there is task_time alone. With `wholes` task_time has the span of the
    FFTS+ task around a kernel, which op_summary does not count.
    """
    sessions = write_mindstudio(run, directory, dialect=dialect)
    for session, rank in zip(sessions, run.ranks, strict=True):
        output = session / "mindstudio_profiler_output"
        (table,) = output.glob("op_summary_*.csv")
        for path in output.glob("*.json"):
            path.unlink()
        path = output / table.name.replace("op_summary", "task_time")
        write_task_time(run, rank, path, dialect, wholes=wholes)
        if not operators:
            table.unlink()
    return sessions


def write_summary_directory(run: Run, directory: str | Path) -> list[Path]:
    """Write `PROF_*/device_N/summary` per rank: a table for each graph and iteration."""
    sessions = []
    for rank in run.ranks:
        session = Path(directory) / session_name(run, rank)
        write_device_info(run, rank, session)
        summary = session / f"device_{rank.device}" / "summary"
        summary.mkdir()
        for graph in run.graphs:
            numbers = [one.number for one in rank.iterations if one.graph == graph]
            for number in numbers:
                tail = f"{rank.device}_{graph}_{number}.csv"
                _write_iteration(run, rank, graph, number, summary / f"op_summary_{tail}")
                write_step_table(run, rank, summary / f"step_trace_{tail}")
        sessions.append(session)
    return sessions


def _write_iteration(run: Run, rank: RankRun, graph: int, number: int, path: Path) -> None:
    step = next(
        step.id
        for step in rank.steps
        if any((one.graph, one.number) == (graph, number) for one in step.iterations)
    )
    rows = [
        [str(rank.device), *cells]
        for step_id, cells in operator_rows(run, rank, CANN_8_3_GRAPH)
        if (step_id, cells[0]) == (step, str(graph))
    ]
    write_table(path, OP_SUMMARY, rows, "\n")


def write_task_time(
    run: Run,
    rank: RankRun,
    path: Path,
    dialect: Dialect = CANN_8_3_GRAPH,
    *,
    wholes: bool = False,
) -> None:
    """Write all hardware tasks of one rank; what is no kernel has no name."""
    tasks = [*rank.switches, *(task for one in rank.iterations for task in one.tasks)]
    around = {(task.stream, task.task_id): task for one in rank.iterations for task in one.parents}
    rows = []
    for task in sorted(tasks, key=lambda task: task.start_ns):
        _, kind = hardware_name(task, dialect)
        name, span = "N/A", task
        if task.kernel:
            # The name in the binary, not the operator's.
            name = f"_Z{task.kernel.op_type}_kernel0"
            kind = kind if dialect.types == "runtime" else task.kernel.core
            span = around.get((task.stream, task.task_id), task) if wholes else task
        times = [exact_us(span.duration_ns)]
        times += [exact_us(run.wall_ns(ns)) + "\t" for ns in (span.start_ns, span.end_ns)]
        rows.append([rank.device, name, kind, task.stream, task.task_id, *times])
    write_table(path, TASK_TIME, rows, "\n")
