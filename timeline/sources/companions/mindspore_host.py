"""Adds the host events and counters that MindSpore 2 recorded beside a capture to its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from timeline.columns.columns import Float64, Int64, Rows
from timeline.errors import SourceError
from timeline.layers import HOST_LAYERS, Layer
from timeline.records.clock import EARLIEST_WALL_NS
from timeline.records.joining import join_records
from timeline.records.not_given import NO_TIME
from timeline.records.tables import HostEvents, Omission, OmissionCode, Records
from timeline.sources.common.counters import CounterBuilder
from timeline.sources.common.losses import LossLog, counted_losses, unreadable_file
from timeline.sources.companions.file_kinds import find_cpu_operators
from timeline.sources.companions.host_clock import HostClock, read_host_clock
from timeline.sources.companions.host_stages import (
    HostStages,
    read_cpu_operators,
    read_host_stages,
    read_host_timeline,
)
from timeline.sources.decoders.csv_blocks import RowShape, read_blocks
from timeline.sources.profiler_tables.data_preparation import (
    read_cpu_use,
    read_queue_sizes,
    read_queue_trace,
)
from timeline.sources.source import Clock, ReadRequest

__all__ = ["with_mindspore_host"]

_Found = TypeVar("_Found")


def with_mindspore_host(
    records: Records,
    files: Mapping[str, Path],
    directories: tuple[Path, ...],
    clock: Clock,
    wanted: ReadRequest,
) -> Records:
    """Records with the host events and counters of the layers that are wanted.

    Rows on a clock that nothing relates to the records are left out and counted. Operators that
    the capture's own timeline has are moved to that clock, and not read again.

    Args:
        files: those of `host_files`.
        directories: where they, and what tells of the clocks of the host, may lie.
    """
    operators = find_cpu_operators(records)
    clock_of_host, omissions = read_host_clock(records, clock, directories)
    reading = _Reading(records, files, clock_of_host, omissions=omissions)
    if len(operators):
        records = _move_operators(records, operators, clock_of_host)
    if Layer.FRAMEWORK in wanted.layers:
        before = len(reading.omissions)
        reading.read_events(with_operators=not len(operators))
        reading.omissions[before:] = [
            replace(omission, layers=HOST_LAYERS) for omission in reading.omissions[before:]
        ]
    if Layer.COUNTERS in wanted.layers:
        reading.read_counters()
    return join_records([records, reading.records()])


def _move_operators(records: Records, rows: Rows, clock: HostClock) -> Records:
    """Operators that are on the steady clock of the host, on that of the records where known."""
    start_ns, end_ns = records.host.start_ns.copy(), records.host.end_ns.copy()
    steady = rows[(start_ns[rows] != NO_TIME) & (start_ns[rows] < EARLIEST_WALL_NS)]
    shift_ns, known = clock.shift(start_ns[steady])
    steady, shift_ns = steady[known], shift_ns[known]
    start_ns[steady] += shift_ns
    end_ns[steady] += shift_ns
    return replace(records, host=replace(records.host, start_ns=start_ns, end_ns=end_ns))


@dataclass
class _Reading:
    """One pass over the host files of a rank."""

    capture: Records
    files: Mapping[str, Path]
    clock: HostClock
    events: list[HostEvents] = field(default_factory=list)
    counters: CounterBuilder = field(default_factory=CounterBuilder)
    omissions: list[Omission] = field(default_factory=list)
    _stages: HostStages | None = None
    _tried: bool = False
    _without_clock: Counter[str] = field(default_factory=Counter)
    """Rows on a clock that nothing relates to the records, by file."""

    def records(self) -> Records:
        """All that was read."""
        strings, rank = self.capture.strings, self.capture.rank
        series, samples = self.counters.tables(strings)
        lost = {
            f"rows of {name} on a clock that nothing relates to the records": rows
            for name, rows in self._without_clock.items()
        }
        warnings: tuple[str, ...] = ()
        if self.clock.drifted:
            warnings = (
                f"rank {rank}: what MindSpore timed by the host's steady clock is placed as if by "
                "its raw clock; it is off by as much as the host's time was corrected since it "
                "started.",
            )
        return Records(
            rank,
            strings,
            host=HostEvents.concat(self.events),
            series=series,
            samples=samples,
            omissions=(
                *self.omissions,
                *(
                    replace(omission, layers=HOST_LAYERS | {Layer.COUNTERS})
                    for omission in counted_losses(lost, rank, OmissionCode.NO_CLOCK)
                ),
            ),
            warnings=warnings,
        )

    def read_events(self, *, with_operators: bool) -> None:
        """Operators on the CPU and stages of the host."""
        rank, strings = self.capture.rank, self.capture.strings
        path = self.files.get("cpu_op_execute_timestamp_{}.txt")
        if path and with_operators:
            self._read_events_of(path, partial(read_cpu_operators, path, strings, rank))
        if stages := self._host_stages():
            self._add_events(stages.path, stages.events(strings))
        for name in ("dataset_{}.csv", "dataset.csv"):
            if path := self.files.get(name):
                self._add_losses(partial(_count_untimed_rows, path, rank))

    def read_counters(self) -> None:
        """Memory of the host process, and the queues and processors of MindData."""
        stages = self._host_stages()
        memory = None if stages is None else stages.memory
        path = self.files.get("host_memory_{}.csv")
        if path and (memory is None or not len(memory[0])):
            stages = self._try(partial(read_host_stages, path, self.capture.rank, paired=False))
            self.omissions += stages.omissions if stages else ()
            memory = stages.memory if stages else None
        if stages is not None and memory is not None:
            times_ns, sizes_bytes = memory
            self._add_samples(stages.path, "Host Memory", "Resident", "B", times_ns, sizes_bytes)
        rank = self.capture.rank
        for name, read in (
            ("minddata_cpu_utilization_{}.json", read_cpu_use),
            ("device_queue_profiling_{}.txt", read_queue_trace),
            ("dataset_iterator_profiling_{}.txt", read_queue_trace),
        ):
            if path := self.files.get(name):
                self._add_losses(partial(read, path, rank, partial(self._add_samples, path)))
        if path := self.files.get("pipeline_profiling_{}.json"):
            times = self.files.get("minddata_cpu_utilization_{}.json")
            self._add_losses(
                partial(read_queue_sizes, path, times, rank, partial(self._add_samples, path))
            )

    def _host_stages(self) -> HostStages | None:
        """The stages, from the table if it is there, else from the timeline made of it."""
        if not self._tried:
            self._tried, rank = True, self.capture.rank
            if path := self.files.get("host_info_{}.csv"):
                self._stages = self._try(partial(read_host_stages, path, rank))
            elif path := self.files.get("timeline_{}.json"):
                self._stages = self._try(partial(read_host_timeline, path, rank))
            self.omissions += self._stages.omissions if self._stages else ()
        return self._stages

    def _read_events_of(
        self, path: Path, read: Callable[[], tuple[HostEvents, list[Omission]]]
    ) -> None:
        if found := self._try(read):
            events, omissions = found
            self.omissions += omissions
            self._add_events(path, events)

    def _add_events(self, path: Path, events: HostEvents) -> None:
        shift_ns, known = self.clock.shift(events.start_ns)
        self._without_clock[path.name] += int((~known).sum())
        moved = replace(
            events, start_ns=events.start_ns + shift_ns, end_ns=events.end_ns + shift_ns
        )
        self.events.append(moved.take(known))

    def _add_samples(
        self, path: Path, group: str, name: str, unit: str, time_ns: Int64, values: Float64
    ) -> None:
        shift_ns, known = self.clock.shift(time_ns)
        self._without_clock[path.name] += int((~known).sum())
        self.counters.add(group, name, unit, (time_ns + shift_ns)[known], values[known])

    def _add_losses(self, read: Callable[[], list[Omission]]) -> None:
        self.omissions += self._try(read) or []

    def _try(self, read: Callable[[], _Found]) -> _Found | None:
        """What a file holds; one that cannot be read at all is counted instead."""
        try:
            return read()
        except SourceError as error:
            self.omissions.append(unreadable_file(error, self.capture.rank))
            return None


def _count_untimed_rows(path: Path, rank: int) -> list[Omission]:
    """dataset.csv sums up operations of MindData: it has no times, and repeats the stages."""
    damage = LossLog(path)
    count = sum(len(block) for block in read_blocks(path, None, (), damage, RowShape.FULL))
    reason = f"rows of {path.name}, which are sums without a time"
    return [
        *damage.omissions(rank),
        *counted_losses({reason: count}, rank, OmissionCode.REPEATED, loss=False),
    ]
