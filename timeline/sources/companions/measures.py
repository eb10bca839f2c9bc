"""The profiler's own sums of steps, operators and communication, for comparison with a capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from timeline.columns.columns import Bool, Float64, Int64
from timeline.columns.strings import NO_NAME, StringPool
from timeline.errors import SourceError
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.profiler_tables import Measure, ParallelTimes, VendorFigures, VendorLinks
from timeline.records.tables import Records
from timeline.sources.common.counters import select_device_rows
from timeline.sources.common.decimals import parse_times_ns
from timeline.sources.common.losses import LossLog, LostRows
from timeline.sources.common.overlap_analysis import MEASURES, OVERLAP_PROCESS, sum_segments
from timeline.sources.companions.communication import (
    MeasuredOps,
    read_link_file,
    read_link_table,
    read_op_file,
    read_op_table,
    with_moved_bytes,
)
from timeline.sources.companions.file_kinds import ExportKind, Use
from timeline.sources.decoders.csv_blocks import NOT_GIVEN, Block, read_blocks
from timeline.sources.files.opened import find_file, open_profile_file

if TYPE_CHECKING:
    from timeline.sources.decoders.sqlite import Database

STEP_SUM_NS = 25
"""The error of sums in step_trace_time.csv, which are float sums over the segments of a step."""
DATABASE_NS = 2
"""The error of sums of steps in a database."""
OPERATOR_SUM_NS = 5
"""The least error of sums in op_statistic; that of many operators is 1 ns each, for rounding."""
MOST_US = 1e12
"""The longest plausible time: 11 days."""
_DEVICE = "Device_id"
_STEPS = ("Step", "Step ID", "Step Id")
_OF_COMMUNICATION = frozenset({"HCCL", "COMMUNICATION"})
"""Core types of op_statistic that communicate instead of computing."""
_OPERATOR_COLUMNS = ("OP Type", "Core Type", "Count", "Total Time(us)")
_STEP_SUMS = {
    "computing_ns": ("Computing", "computing"),
    "communication_ns": ("Communication", "communication"),
    "communication_alone_ns": ("Communication(Not Overlapped)", "communication_not_overlapped"),
    "free_ns": ("Free", "free"),
    "stage_ns": ("Stage", "stage"),
    "receive_alone_ns": ("Bubble", "bubble"),
    "collective_alone_ns": (
        "Communication(Not Overlapped and Exclude Receive)",
        "communication_not_overlapped_and_exclude_receive",
    ),
    "preparing_ns": ("Preparing", "preparing"),
}
"""The names of times in step_trace_time.csv and in databases, by column of ParallelTimes; the first
are those of MEASURES, in the same order."""


def read_step_sums(path: Path, device: int | None, damage: LossLog) -> ParallelTimes:
    """Read step_trace_time.csv: the parts of each step's device time, in microseconds.

    Rows without a device are sums over all devices of the capture, so they are skipped if `device`
    is not None.

    Raises:
        SourceError: the file cannot be read, or is another table.
    """
    parts = []
    for block in read_blocks(path, None, tuple(MEASURES), damage):
        step = next(filter(block.__contains__, _STEPS), "")
        steps = block.integers(step, NO_ID)
        of_device = select_device_rows(block, device)
        if device is not None and _DEVICE not in block:
            of_device[:] = False
        is_given = np.array([text not in NOT_GIVEN for text in block.texts(step)], np.bool_)
        strange = of_device & is_given & (steps < 0)
        damage.add_lines("rows whose step is not a number", block.lines[strange])
        of_device &= ~strange
        values = {}
        for field, (name, _) in _STEP_SUMS.items():
            if name in block:
                values[field], is_given = block.reals(name)
                bad = of_device & is_given & ~_are_times(values[field])
                if name in MEASURES:
                    damage.add_lines("values that are not times", block.lines[bad])
        parts.append(_step_times(values, steps).take(of_device))
    return ParallelTimes.concat(parts)


def find_busy_devices(directory: Path) -> list[int]:
    """Return the devices that computed or communicated by the table of steps, ascending.

    Empty if there is no table, or if it has no column of devices because there is only one.

    Raises:
        SourceError: the table cannot be read, or is another one.
    """
    path, devices = find_file(directory, "step_trace_time.csv"), set[int]()
    for block in read_blocks(path, None, tuple(MEASURES), LossLog(path)) if path else ():
        if _DEVICE in block:
            busy = [block.reals(name)[0] > 0 for name in ("Computing", "Communication")]
            devices |= {*block.integers(_DEVICE, NO_ID)[busy[0] | busy[1]].tolist()}
    if path is None and (path := find_file(directory, "analysis.db")):
        from timeline.sources.decoders.sqlite import open_database

        with open_database(path) as database:
            if database.has("StepTraceTime", "deviceId", "computing", "communication"):
                times = database.floats("StepTraceTime", {"computing": 0.0, "communication": 0.0})
                device_of_row = database.integers("StepTraceTime", {"deviceId": NO_ID})["deviceId"]
                is_busy = (times["computing"] > 0) | (times["communication"] > 0)
                devices |= {*device_of_row[is_busy].tolist()}
    return sorted(devices - {NO_ID})


def read_step_table(database: Database, device: int | None) -> ParallelTimes:
    """Read StepTraceTime of a database, which has the content of step_trace_time.csv."""
    names = {name: field for field, (_, name) in _STEP_SUMS.items()}
    if not database.has("StepTraceTime", *tuple(names)[: len(MEASURES)]):
        return ParallelTimes.empty()
    values = database.floats("StepTraceTime", dict.fromkeys(names, float("inf")))
    ids = {"step": NO_ID, "deviceId": NO_ID}
    numbers = database.integers("StepTraceTime", ids)
    of_device = (device is None) | (numbers["deviceId"] == device)
    by_field = {names[name]: column for name, column in values.items()}
    return _step_times(by_field, numbers["step"]).take(of_device)


def _step_times(values_us: dict[str, Float64], steps: Int64) -> ParallelTimes:
    """Build ParallelTimes from times in us, NO_TIME where one is implausible."""
    columns = {"step": steps}
    for field, values in values_us.items():
        good = _are_times(values)
        whole_ns = np.rint(np.where(good, values, 0) * 1000).astype(np.int64)
        columns[field] = np.where(good, whole_ns, NO_TIME)
    return ParallelTimes.of(len(steps), columns)


def step_figures(
    times: ParallelTimes, path: Path, tolerance_ns: int, strings: StringPool
) -> VendorFigures:
    """Return a figure for each part of device time of each step in a file.

    If a capture has no steps, writers give its only row the step 0 or none.
    """
    fields = dict(zip(MEASURES.values(), _STEP_SUMS, strict=False))
    values = np.concatenate([getattr(times, field) for field in fields.values()])
    is_given = values != NO_TIME
    count = int(np.count_nonzero(is_given))
    return VendorFigures.of(
        count,
        measure=np.repeat(list(fields), len(times))[is_given],
        file=strings.code(path.name),
        step=np.tile(times.step, len(fields))[is_given],
        value_ns=values[is_given],
        tolerance_ns=tolerance_ns,
    )


def read_operator_sums(
    paths: Sequence[Path], strings: StringPool, device: int | None, damage: LossLog
) -> VendorFigures:
    """Read the slices of op_statistic: the computing time of the operators of each type.

    Raises:
        SourceError: a file cannot be read, or is another table.
    """
    sums: dict[str, int] = {}
    counts: dict[str, int] = {}
    for path in paths:
        for block in read_blocks(path, None, _OPERATOR_COLUMNS, damage):
            of_device = select_device_rows(block, device)
            for name, count, total_ns in _operator_sums(block, of_device, damage):
                sums[name] = sums.get(name, 0) + total_ns
                counts[name] = counts.get(name, 0) + count
    return VendorFigures.of(
        len(sums),
        measure=Measure.OPERATOR,
        file=strings.code(paths[0].name) if paths else NO_NAME,
        name=strings.codes(sums),
        value_ns=list(sums.values()),
        tolerance_ns=[max(OPERATOR_SUM_NS, count) for count in counts.values()],
    )


def _operator_sums(block: Block, of_device: Bool, damage: LossLog) -> list[tuple[str, int, int]]:
    """Return type, count and total time in ns of the rows of computing operators."""
    totals, is_given = block.reals("Total Time(us)")
    counts = block.integers("Count", 1)
    good = _are_times(totals) & (counts >= 0) & (counts < MOST_US)
    damage.add_lines("values that are not times", block.lines[of_device & is_given & ~good])
    of_device = of_device & good
    rows = zip(
        of_device.tolist(),
        block.texts("OP Type"),
        block.texts("Core Type"),
        counts.tolist(),
        totals.tolist(),
        strict=True,
    )
    return [
        (name, count, round(total_us * 1000))
        for of_device, name, core, count, total_us in rows
        if of_device and core not in _OF_COMMUNICATION
    ]


def _are_times(values_us: Float64) -> Bool:
    good: Bool = (values_us >= 0) & (values_us <= MOST_US)
    return good


# -- Overlap Analysis ------------------------------------------------------------------------------

_EMPTY = msgspec.Raw(b"")


class _Event(msgspec.Struct, gc=False):
    name: str = ""
    pid: int | str | None = None
    dur: msgspec.Raw = _EMPTY
    args: msgspec.Raw = _EMPTY


class _Names(msgspec.Struct):
    name: str = ""


_decode_events = msgspec.json.Decoder(list[_Event]).decode
_decode_names = msgspec.json.Decoder(_Names).decode


def read_overlap_events(
    path: Path, file: str, device: int | None, strings: StringPool
) -> VendorFigures:
    """Sum the Overlap Analysis in a small trace of which nothing else is read.

    Args:
        path: the trace, or one slice of it.
        file: the name of the trace, for people.
        device: the device to read; None for all.

    Raises:
        SourceError: the file cannot be read, or is not a trace.
    """
    from timeline.sources.common.trace_names import device_of  # imports the decoders of traces

    try:
        with open_profile_file(path) as stream:
            events = _decode_events(stream.read())
        processes = {
            event.pid
            for event in events
            if event.name == "process_name"
            and _decode_names(event.args).name == OVERLAP_PROCESS
            and (device is None or device_of(event.pid) == device)
        }
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError(path, f"is not a trace: {error}.") from error
    lengths: dict[Measure, list[bytes]] = {measure: [] for measure in MEASURES.values()}
    for event in events:
        if event.pid in processes and event.name in MEASURES and len(bytes(event.dur)):
            lengths[MEASURES[event.name]].append(bytes(event.dur))
    parts = {measure: parse_times_ns(texts) for measure, texts in lengths.items()}
    if any((lengths_ns == NO_TIME).any() for lengths_ns in parts.values()):
        raise SourceError(path, "has events of Overlap Analysis without a valid length.")
    return sum_segments(parts, f"Overlap Analysis of {file}", NO_ID, strings)


# -- all files -------------------------------------------------------------------------------------


def with_measures(
    records: Records, files: Mapping[ExportKind, tuple[Path, ...]], device: int | None
) -> Records:
    """Add the profiler's figures and links, and the bytes moved by communication ops, to records.

    A file that cannot be read at all is left out and counted.

    device: the device to read; None for all.
    """
    reading = _Reading(records, device)
    for kind, paths in files.items():
        if kind.use is Use.OPERATOR_SUMS:
            with reading.lost.reading(paths[0]) as damage:
                sums = read_operator_sums(paths, records.strings, device, damage)
                reading.figures.append(sums)
            continue
        for path in paths:
            with reading.lost.reading(path) as damage:
                if kind.use is Use.STEP_SUMS:
                    reading.add_steps(read_step_sums(path, device, damage), path, STEP_SUM_NS)
                elif kind.use is Use.OPS:
                    reading.add_ops(read_op_file(path, records.strings, damage), path)
                elif kind.use is Use.LINKS:
                    reading.add_links(read_link_file(path, records.strings, damage))
                elif kind.use is Use.TRACE:
                    name = paths[0].name
                    events = read_overlap_events(path, name, device, records.strings)
                    reading.figures.append(events)
                else:
                    reading.read_database(path)
    return replace(
        reading.records,
        vendor=VendorFigures.concat(reading.figures),
        vendor_links=VendorLinks.concat(reading.links),
        omissions=(*reading.records.omissions, *reading.lost.omissions),
    )


class _Reading:
    """The figures, links and losses collected while the files are read."""

    def __init__(self, records: Records, device: int | None) -> None:
        self.records, self.device, self.lost = records, device, LostRows(records.rank)
        self.figures, self.links = [records.vendor], [records.vendor_links]

    def read_database(self, path: Path) -> None:
        """Read step sums, ops and links of a database such as analysis.db."""
        from timeline.sources.decoders.sqlite import open_database

        with open_database(path) as database:
            try:
                self.add_steps(read_step_table(database, self.device), path, DATABASE_NS)
                self.add_ops(read_op_table(database, self.records.strings), path)
                self.add_links(read_link_table(database, self.records.strings))
            finally:
                self.lost.omissions += database.damage.omissions(self.records.rank)

    def add_steps(self, times: ParallelTimes, path: Path, tolerance_ns: int) -> None:
        """Add the figures of steps."""
        self.figures.append(step_figures(times, path, tolerance_ns, self.records.strings))

    def add_ops(self, measured: MeasuredOps, path: Path) -> None:
        """Add the figures of measured ops, and their moved bytes to the ops of the records."""
        if self.device is not None:
            measured = measured.of_ops(self.records.ops)
        if len(measured):
            self.figures.append(measured.figures(path.name, self.records.strings))
            ops = with_moved_bytes(self.records.ops, measured)
            self.records = replace(self.records, ops=ops)

    def add_links(self, links: VendorLinks) -> None:
        """Add links; if the files hold several devices, only those that begin at this rank."""
        if self.device is not None:
            links = links.take(links.source_rank == self.records.rank)
        self.links.append(links)
