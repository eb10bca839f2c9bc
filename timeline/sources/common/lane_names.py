"""The processes and threads of a trace: their names, and the device in a process id."""

from __future__ import annotations

from dataclasses import dataclass, field

from timeline.sources.decoders.event_values import LaneKey
from timeline.sources.decoders.exported_values import text
from timeline.sources.decoders.trace_events import Metadata

__all__ = ["HOST_DEVICE", "LaneNames", "device_of"]

HOST_DEVICE = 31
"""Device number that msprof packs into the pid of host processes."""


@dataclass
class LaneNames:
    """The names that metadata events give to processes, by pid, and to threads."""

    processes: dict[object, str] = field(default_factory=dict)
    threads: dict[LaneKey, str] = field(default_factory=dict)

    def add(self, event: Metadata) -> None:
        """Take the name out of a metadata event; one that names neither is skipped."""
        name = text(event.args.name) if event.args else ""
        if event.name == "process_name":
            self.processes[event.pid] = name
        elif event.name == "thread_name":
            self.threads[event.pid, event.tid] = name

    def process(self, pid: object) -> str:
        """The name of a process; level 0 of torch_npu leaves CANN without one."""
        return self.processes.get(pid) or f"Process {pid}"


def device_of(pid: object) -> int | None:
    """The device packed into the low bits of every pid that msprof writes in traces."""
    return pid & 31 if isinstance(pid, int) else None
