"""Names in traces of processes, threads and profiler steps, and devices in process ids."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from timeline.records.not_given import NO_GRAPH
from timeline.records.tables import Steps
from timeline.sources.decoders.event_columns import EventRows, LaneKey
from timeline.sources.decoders.exported_values import text
from timeline.sources.decoders.trace_events import Metadata

HOST_DEVICE = 31
"""The device number that msprof packs into the pid of host processes."""


@dataclass
class LaneNames:
    """The names that metadata events give to processes, by pid, and to threads."""

    processes: dict[object, str] = field(default_factory=dict)
    threads: dict[LaneKey, str] = field(default_factory=dict)

    def add(self, event: Metadata) -> None:
        """Store the name in a metadata event; ignore events that name no process or thread."""
        name = text(event.args.name) if event.args else ""
        if event.name == "process_name":
            self.processes[event.pid] = name
        elif event.name == "thread_name":
            self.threads[event.pid, event.tid] = name

    def process(self, pid: object) -> str:
        """Return the name of a process, or "Process PID": at level 0, torch_npu names no CANN."""
        return self.processes.get(pid) or f"Process {pid}"


def device_of(pid: object) -> int | None:
    """Return the device that msprof packs into the low 5 bits of pids, None for any other pid."""
    return pid & 31 if isinstance(pid, int) else None


_NAME = re.compile(r"ProfilerStep#([0-9]{1,9})")


def profiler_steps(host: EventRows) -> Steps:
    """Return each event ProfilerStep#N of the host as step N without a graph."""
    rows, numbers = host.numbered(_NAME)
    return Steps.of(len(numbers), host.spans(rows), graph=NO_GRAPH, iteration=numbers, host=True)
