"""Reads the raw data of MindSpore 0.x and 1.x: hardware log and training trace."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool, Codes, Int64
from timeline.columns.group_by import count_turns, group_numbers
from timeline.columns.strings import NO_NAME, StringPool
from timeline.errors import SourceError
from timeline.records.clock import Clock
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.profiler_tables import StepTraceMeans
from timeline.records.tables import (
    CommunicationOps,
    Omission,
    OmissionCode,
    Records,
    StepPart,
    StepParts,
    Steps,
    Tasks,
)
from timeline.sources.beside.file_kinds import NumberedFile, find_numbered_files
from timeline.sources.beside.framework import read_descriptions, read_tasks
from timeline.sources.beside.step_trace import GROUP, StepTicks
from timeline.sources.capture import Capture
from timeline.sources.common.losses import LossLog, counted_losses
from timeline.sources.files.opened import open_regular_file, source_errors_for
from timeline.sources.mindspore.records_builder import AI_CORE, RecordsBuilder
from timeline.sources.source import Identity, ReadRequest

HARDWARE_EVENT = np.dtype(
    [
        ("kind", "u1"),
        ("core", "u1"),
        ("magic", "<u2"),
        ("block", "<u2"),
        ("task", "<u2"),
        ("tick", "<u8"),
        ("stream", "<u4"),
        ("rest", "V44"),
    ]
)
"""One record of the hardware task scheduler."""
MAGIC = 0x6BD3
TASK_START, TASK_END = 0, 1
_KIND = 7
"""Bits of the kind; the others are a warning and a rolling count."""
_SLICE = re.compile(r".*\.slice_(\d+)")


@dataclass(frozen=True)
class MindSporeRawSource:
    """The raw files of one device id in one directory, and in the `data` inside it."""

    identity: Identity
    clock: Clock
    capture: Capture

    @property
    def layout(self) -> str:
        """The name of the format."""
        return self.capture.format.name

    @property
    def _directories(self) -> tuple[Path, Path]:
        return self.capture.content, self.capture.content / "data"

    @property
    def files(self) -> tuple[Path, ...]:
        """The slices of everything that is read."""
        return (*self._hardware(), *self._training(), *self._tasks(), *self._operators())

    def _slices(self, kind: str) -> tuple[Path, ...]:
        found = [
            (int(match[1]), path)
            for directory in self._directories
            for path in directory.glob(f"{kind}.{self.capture.device}.slice_*")
            if (match := _SLICE.fullmatch(path.name))
        ]
        return tuple(path for _, path in sorted(found))

    def _hardware(self) -> tuple[Path, ...]:
        return self._slices("hwts.log.data.*.dev.*")

    def _training(self) -> tuple[Path, ...]:
        return self._slices("training_trace.*.dev.*")

    def _tasks(self) -> tuple[Path, ...]:
        return self._described(NumberedFile.TASK_DESCRIPTIONS)

    def _operators(self) -> tuple[Path, ...]:
        return self._described(NumberedFile.GRAPH_DESCRIPTIONS)

    def _described(self, kind: NumberedFile) -> tuple[Path, ...]:
        number = self.capture.device
        assert number is not None
        return find_numbered_files(self._directories, number).get(kind, ())

    def read(self, wanted: ReadRequest) -> Records:
        """Read at least what is wanted.

        Raises:
            SourceError: a file cannot be read.
        """
        strings, rank = StringPool(), self.identity.rank
        builder = RecordsBuilder(Records(rank, strings, tells_copies=False))
        if paths := self._hardware():
            events, omissions = read_events_of(paths, HARDWARE_EVENT, _is_hardware_event, rank)
            builder.report(omissions)
            operators = _Operators.of(self._tasks(), self._operators(), strings)
            builder.add_tasks(*_tasks_of(events, operators, strings, rank))
        if paths := self._training():
            events, omissions = read_events_of(paths, TRAINING_EVENT, _is_training_event, rank)
            builder.report(omissions)
            builder.add_steps(read_training_trace(events, strings, rank))
        if unread := [path for path in self._slices("DATA_PREPROCESS.*AICPUMI") if _bytes_of(path)]:
            reason = "raw files of data on AI CPUs, which are not read"
            builder.report(counted_losses({reason: len(unread)}, rank, OmissionCode.NOT_READ))
        return builder.build()


def read_events_of(
    paths: Sequence[Path],
    dtype: np.dtype[Any],
    is_event: Callable[[npt.NDArray[Any]], Bool],
    rank: int,
) -> tuple[npt.NDArray[Any], tuple[Omission, ...]]:
    """Return the records of all slices, joined: a record may lie in two of them.

    Where the bytes are no whole number of records, either the first or the last one is broken;
    the records themselves tell which, and it is counted.

    Raises:
        SourceError: a file cannot be read, or holds no record.
    """
    parts = [_bytes_of(path) for path in paths]
    data = b"".join(parts)
    rest = len(data) % dtype.itemsize
    count = len(data) // dtype.itemsize
    first, last = (np.frombuffer(data, dtype, count, offset) for offset in (0, rest))
    ends_whole = int(is_event(last).sum()) > int(is_event(first).sum())
    events = last if ends_whole else first
    good = is_event(events)
    if not good.any():
        raise SourceError(paths[0], "holds no record of the expected shape.", offset=0)
    bad = int(np.count_nonzero(~good)) + (rest > 0)
    if not bad:
        return events, ()
    first_bad = len(data) - rest if good.all() else int(np.argmin(good)) * dtype.itemsize
    byte = 0 if ends_whole else first_bad
    begins = np.cumsum([0, *map(len, parts)])
    broken = int(np.searchsorted(begins, byte, side="right")) - 1
    damage = LossLog(paths[broken])
    damage.add("broken records", f"byte {byte - begins[broken]}", bad)
    return events[good], damage.omissions(rank)


def _bytes_of(path: Path) -> bytes:
    with source_errors_for(path), open_regular_file(path) as file:
        return file.read()


def _is_hardware_event(events: npt.NDArray[Any]) -> Bool:
    return np.asarray(events["magic"] == MAGIC)


def _is_training_event(events: npt.NDArray[Any]) -> Bool:
    """Return which events have a small tag: records that are read out of step have none."""
    return np.asarray((events["tag"] < 1 << 32) & (events["tick"] > 0))


@dataclass(frozen=True)
class _Operators:
    """The name, type and blocks of the operator of each task id; ids of several have none."""

    name: Codes
    op_type: Codes
    blocks: Int64

    @classmethod
    def of(
        cls, task_paths: Sequence[Path], type_paths: Sequence[Path], strings: StringPool
    ) -> _Operators:
        """Read what the framework describes; tables count what of it is damaged.

        Task ids alone name an operator: the stream of the framework is not that of the hardware.
        """
        described = (one for path in type_paths for one in read_descriptions(path, LossLog(path)))
        types = {name: kind for name, (kind, _) in described}
        count = np.iinfo(np.uint16).max + 1
        name, op_type = np.zeros(count, np.int32), np.zeros(count, np.int32)
        blocks, several = np.full(count, NO_ID), np.zeros(count, np.bool_)
        tasks = (one for path in task_paths for one in read_tasks(path, LossLog(path)))
        for operator, own_blocks, task, _ in tasks:
            if 0 <= task < count:
                code = strings.code(operator)
                several[task] |= name[task] not in (NO_NAME, code)
                name[task], blocks[task] = code, own_blocks
                op_type[task] = strings.code(types.get(operator, ""))
        return cls(
            np.where(several, NO_NAME, name).astype(np.int32),
            np.where(several, NO_NAME, op_type).astype(np.int32),
            np.where(several, NO_ID, blocks),
        )


def _tasks_of(
    events: npt.NDArray[Any], operators: _Operators, strings: StringPool, rank: int
) -> tuple[Tasks, tuple[Omission, ...]]:
    """Return tasks of starts and ends; those of operators compute, as MindSpore counts them."""
    begins, ends, omissions = _paired(events, rank)
    start_ns = begins["tick"].astype(np.int64) * TICK_NS
    end_ns = ends["tick"].astype(np.int64) * TICK_NS
    task = begins["task"].astype(np.int64)
    known = operators.name[task] != NO_NAME
    ai_core = strings.code(AI_CORE)
    tasks = Tasks.of(
        len(begins),
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "stream": begins["stream"].astype(np.int64),
            "task": task,
            "name": np.where(known, operators.name[task], strings.code("not named")),
            "task_type": np.where(known, ai_core, NO_NAME),
            "op_type": operators.op_type[task],
            "blocks": operators.blocks[task],
            "compute": known,
        },
    )
    order = np.lexsort((tasks.stream, tasks.start_ns))
    return tasks.take(order), omissions


def _paired(
    events: npt.NDArray[Any], rank: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], tuple[Omission, ...]]:
    """Return start and end of each task: per stream and task id, first start with first end.

    An end before which no start is open is of a task that began before the capture.
    """
    kind = events["kind"] & _KIND
    marks = events[(kind == TASK_START) | (kind == TASK_END)]
    key = marks["stream"].astype(np.int64) << 16 | marks["task"]
    order = np.argsort(key, kind="stable")
    marks, key = marks[order], key[order]
    is_start = (marks["kind"] & _KIND) == TASK_START
    group = group_numbers(len(key), [key])
    lone = ~is_start & _below_all_before(np.where(is_start, 1, -1), group)
    start_at, end_at = np.flatnonzero(is_start), np.flatnonzero(~is_start & ~lone)
    starts, ends = (
        group[at] * (len(marks) + 1) + count_turns(group[at]) for at in (start_at, end_at)
    )
    unfinished = len(start_at) - len(end_at)
    halves = {
        "device tasks that had not ended when the capture did": unfinished,
        "ends of device tasks whose start is not in the capture": int(lone.sum()),
    }
    return (
        marks[start_at[np.searchsorted(starts, ends)]],
        marks[end_at],
        counted_losses(halves, rank, OmissionCode.UNPAIRED),
    )


def _below_all_before(change: Int64, group: Int64) -> Bool:
    """Return where the running sum of a group falls below 0 and below all of it before."""
    if not len(change):
        return np.zeros(0, np.bool_)
    total = np.cumsum(change)
    first = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
    base = (total - change)[first]
    inside = total - base[group]
    apart = group * (2 * len(change) + 2)
    lowest = np.minimum(np.minimum.accumulate(inside - apart) + apart, 0)
    before = np.concatenate([[0], lowest[:-1]])
    before[first] = 0
    return np.asarray(lowest < before)


TRAINING_EVENT = np.dtype([("tag", "<u8"), ("task", "<u2"), ("stream", "<u2"), ("tick", "<u8")])
FP_START, BP_END, STEP_END = 1, 2, 255
"""Tags; 0 and those above STEP_END mark the job, all others the start or end of a reduce."""
TICK_NS = 10


def read_training_trace(events: npt.NDArray[Any], strings: StringPool, rank: int) -> StepTicks:
    """Return steps in order of their ends; each starts where the one before ends.

    A first step without FP has no start, so it is left out, and so is what follows the last end.
    """
    tag, time_ns = events["tag"], events["tick"].astype(np.int64) * TICK_NS
    ended = tag == STEP_END
    step = np.cumsum(ended) - ended
    end_ns = time_ns[ended]
    count = len(end_ns)
    inside = step < count
    fp_ns, bp_ns = np.full(count, NO_TIME), np.full(count, NO_TIME)
    for mark, found_ns in ((FP_START, fp_ns), (BP_END, bp_ns)):
        here = inside & (tag == mark)
        found_ns[step[here]] = time_ns[here]
    start_ns = np.concatenate([fp_ns[:1], end_ns[:-1]])
    steps = Steps.of(
        count,
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "graph": np.full(count, NO_GRAPH),
            "iteration": np.arange(1, count + 1),
            "fp_start_ns": fp_ns,
            "bp_end_ns": bp_ns,
        },
    )
    good = start_ns != NO_TIME
    reduce = inside & (tag > BP_END) & (tag < STEP_END)
    parts, ops, odd = _reduces(
        step[reduce] + 1, events["stream"][reduce].astype(np.int64), time_ns[reduce], strings
    )
    lost = {
        "steps without a start": int(np.count_nonzero(~good)),
        "marks of a step that had not ended when the capture did": int((~inside).sum()),
        "starts of reduces without an end": odd,
    }
    return StepTicks(
        steps.take(good),
        parts,
        ops,
        StepTraceMeans.empty(),
        omissions=counted_losses(lost, rank, OmissionCode.UNPAIRED),
    )


def _reduces(
    step: Int64, stream: Int64, time_ns: Int64, strings: StringPool
) -> tuple[StepParts, CommunicationOps, int]:
    """Return pairs of start and end of a step and stream; also how many have no partner."""
    order = np.lexsort((np.arange(len(step)), stream, step))
    step, stream, time_ns = step[order], stream[order], time_ns[order]
    number = count_turns(step, stream)
    starts = np.flatnonzero((number[:-1] % 2 == 0) & (number[1:] == number[:-1] + 1))
    count = len(starts)
    shared = {
        "start_ns": time_ns[starts],
        "end_ns": time_ns[starts + 1],
        "graph": np.full(count, NO_GRAPH),
        "iteration": step[starts],
    }
    named = zip(stream[starts].tolist(), (number[starts] // 2).tolist(), strict=True)
    names = strings.codes(f"stream_{stream_id}_{place}" for stream_id, place in named)
    numbered = {"number": count_turns(step[starts]), "kind": np.full(count, StepPart.REDUCE)}
    parts = StepParts.of(count, shared | numbered)
    group = np.full(count, strings.code(GROUP))
    ops = CommunicationOps.of(count, shared | {"name": names, "group": group})
    return parts, ops, len(step) - 2 * count
