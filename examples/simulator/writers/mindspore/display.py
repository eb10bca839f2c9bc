"""The timeline displays of MindSpore 0.7 to 2.2, cut off where MindSpore does."""

from __future__ import annotations

import json
from pathlib import Path

from simulator.model import RankRun, Run
from simulator.overlap import COMMUNICATION, COMPUTING, FREE, NOT_OVERLAPPED, sweep
from simulator.writers.events import Event, write_json
from simulator.writers.mindspore.text import (
    STREAM_SHIFT,
    TextFiles,
    operator_info,
    reduce_names,
    tick,
)

LABELS = {9000: "AICPU OP", 10000: "Communication Op", 11000: "Host CPU OP", 12000: "Op Overlap"}
OVERLAP_THREADS = {COMPUTING: 7999, NOT_OVERLAPPED: 8000, COMMUNICATION: 8001, FREE: 8002}
STEPS_THREAD = 100_000


def write_mindspore_display(
    run: Run, directory: str | Path, *, version: str = "0.7", limit_bytes: int = 20 * 1024 * 1024
) -> list[Path]:
    """Write the same with timeline displays in the place of device tasks.

    version: "0.7", whose display knows no steps but lies beside its origin; or "1.5".
    limit_bytes: the size at which a display is cut off.
    """
    profiler = Path(directory) / "profiler"
    profiler.mkdir(parents=True, exist_ok=True)
    for rank in run.ranks:
        writer = TextFiles(run, rank, profiler)
        writer.step_trace()
        _Display(run, rank, writer, profiler, version == "1.5").write(limit_bytes)
    return [profiler] * len(run.ranks)


class _Display:
    """The timeline display of one rank: all times count from its first event."""

    def __init__(
        self, run: Run, rank: RankRun, text: TextFiles, profiler: Path, named: bool
    ) -> None:
        self._run, self._rank, self._text = run, rank, text
        self._profiler, self._named = profiler, named
        kernels = [*text.kernels(on_cpu=False), *text.kernels(on_cpu=True)]
        self._first_tick = tick(run, min(task.start_ns for task, _ in kernels))

    def write(self, limit_bytes: int) -> None:
        """Write events in order of time until the file exceeds the limit, as MindSpore does."""
        prefix, number = "ascend_" if self._named else "", self._rank.rank
        path = self._profiler / f"{prefix}timeline_display_{number}.json"
        operators = self._operators()
        events = operators + self._reduces()
        events += self._steps() + self._overlap() if self._named else []
        events.sort(key=lambda event: float(event["ts"]))
        with path.open("w", encoding="utf-8") as file:
            file.write("[")
            for place, event in enumerate(events):
                if place:
                    file.write(",")
                if self._named:
                    file.write(json.dumps(self._order(event)) + ",")
                file.write(json.dumps(event))
                if path.stat().st_size > limit_bytes:
                    break
            for label in self._labels() if self._named else []:
                file.write("," + json.dumps(label))
            file.write("]")
        summary = {"total_time": 0.0, "num_of_streams": 2, "op_exe_times": len(operators)}
        write_json(self._profiler / f"{prefix}timeline_summary_{number}.json", summary)
        if not self._named:
            origin = self._profiler / f"min_cycle_counter_{number}.txt"
            origin.write_text(str(float(self._first_tick)), encoding="utf-8")

    def _event(self, name: str, pid: int, tid: int, span_ns: tuple[int, int]) -> Event:
        start, end = (tick(self._run, time_ns) for time_ns in span_ns)
        # Differences of milliseconds as floats: noise far below a nanosecond stays.
        ts = (start / 100_000 - self._first_tick / 100_000) * 1000
        event: Event = {"name": name, "ph": "X", "tid": tid, "ts": ts}
        return event | {"dur": (end - start) / 100, "pid": pid}

    def _operators(self) -> list[Event]:
        events = []
        for on_cpu in (False, True):
            for task, kernel in self._text.kernels(on_cpu=on_cpu):
                pid, tid = (9000, 0) if on_cpu else (self._rank.device, task.stream + STREAM_SHIFT)
                short = kernel.op_type if on_cpu else kernel.scope.rpartition("/")[2]
                event = self._event(short, pid, tid, (task.start_ns, task.end_ns))
                if not on_cpu:
                    info = operator_info(kernel, newer=True)
                    args = {key.lower(): value for key, value in info.items()}
                    event["args"] = {"type": kernel.op_type, "fullname": kernel.scope} | args
                events.append(event)
        return events

    def _reduces(self) -> list[Event]:
        return [
            self._event(name, 10000, int(name.split("_")[1]), (one.start_ns, one.end_ns))
            for step in self._rank.steps
            for name, one in reduce_names(step)
        ]

    def _steps(self) -> list[Event]:
        return [
            self._event(
                str(step.id),
                self._rank.device,
                STEPS_THREAD,
                (step.iterations[0].forward_start_ns, step.iterations[-1].end_ns),
            )
            for step in self._rank.steps
        ]

    def _overlap(self) -> list[Event]:
        names = {COMPUTING: "computation_op", COMMUNICATION: "communication", FREE: "free_time"}
        return [
            self._event(
                names.get(one.category, "communication_not_overlapped"),
                12000,
                OVERLAP_THREADS[one.category],
                (one.start_ns, one.end_ns),
            )
            for one in sweep(self._rank.iterations)
        ]

    def _order(self, event: Event) -> Event:
        """What these versions write before each event instead of the name of its row."""
        order: Event = {"name": "thread_sort_index", "pid": self._rank.device, "tid": event["tid"]}
        return order | {"ts": 0, "ph": "M", "cat": "__metadata", "args": {"sort_index": 0}}

    def _labels(self) -> list[Event]:
        labels = {self._rank.device: "AICORE OP"} | LABELS
        return [
            {"name": "process_labels", "ph": "M", "pid": pid, "args": {"labels": label}}
            for pid, label in labels.items()
        ]
