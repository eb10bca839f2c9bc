"""Source of the raw files of MindSpore 0.x and 1.x: hardware log and training trace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from timeline.columns.columns import Bool, Codes, Int64
from timeline.columns.group_by import count_turns
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
from timeline.sources.capture import Capture
from timeline.sources.common.losses import LossLog, counted_losses
from timeline.sources.common.raw_logs import (
    HWTS_RECORD,
    TASK_END,
    Log,
    RecordArray,
    RecordReader,
    TaskIntervals,
    TaskMarks,
    has_magic,
    read_intervals,
    record_layout,
)
from timeline.sources.companions.file_kinds import NumberedFile, find_numbered_files
from timeline.sources.companions.framework import read_descriptions, read_tasks
from timeline.sources.companions.step_trace import GROUP, StepTicks
from timeline.sources.mindspore.records_builder import AI_CORE, RecordsBuilder
from timeline.sources.source import Identity, ReadRequest

HARDWARE_LOG = Log("hwts.log", HWTS_RECORD, has_magic)
_TASK_BITS = np.uint64(16)
"""Number of bits of the task id in a task key, below the stream."""
_SLICE = re.compile(r"(.*)\.slice_(\d+)")


@dataclass(frozen=True)
class MindSporeRawSource:
    """The raw files of one id in a directory and in its `data`."""

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
        """The slices of all logs that are read, and the files that describe operators."""
        descriptions = (NumberedFile.TASK_DESCRIPTIONS, NumberedFile.GRAPH_DESCRIPTIONS)
        return (
            *self._hardware(),
            *self._training(),
            *(path for kind in descriptions for path in self._descriptions(kind)),
        )

    def _slices(self, kind: str) -> tuple[Path, ...]:
        slices = [
            (match[1], int(match[2]), path)
            for directory in self._directories
            for path in directory.glob(f"{kind}.{self.capture.device}.slice_*")
            if (match := _SLICE.fullmatch(path.name))
        ]
        return tuple(path for *_, path in sorted(slices))

    def _hardware(self) -> tuple[Path, ...]:
        return self._slices("hwts.log.data.*.dev.*")

    def _training(self) -> tuple[Path, ...]:
        return self._slices("training_trace.*.dev.*")

    def _descriptions(self, kind: NumberedFile) -> tuple[Path, ...]:
        number = self.capture.device
        assert number is not None
        return find_numbered_files(self._directories, number).get(kind, ())

    def read(self, wanted: ReadRequest) -> Records:
        """Read at least what is wanted.

        Raises:
            SourceError: a file cannot be read.
        """
        strings, rank = StringPool(), self.identity.rank
        builder = RecordsBuilder(Records(rank, strings, records_copies=False))
        if paths := self._hardware():
            reader = RecordReader(HARDWARE_LOG, paths)
            intervals = read_intervals(reader, _decode_marks)
            builder.report((*_count_losses(reader, rank), *_count_unpaired(intervals, rank)))
            operators = _Operators.read(
                self._descriptions(NumberedFile.TASK_DESCRIPTIONS),
                self._descriptions(NumberedFile.GRAPH_DESCRIPTIONS),
                strings,
            )
            builder.add_tasks(_build_tasks(intervals, operators, strings))
        if paths := self._training():
            reader = RecordReader(TRAINING_LOG, paths)
            events = np.concatenate([*reader.blocks(), np.empty(0, TRAINING_LOG.record)])
            builder.report(_count_losses(reader, rank))
            builder.add_steps(read_training_trace(events, strings, rank))
        preprocess = self._slices("DATA_PREPROCESS.*AICPUMI")
        if unread := [path for path in preprocess if path.stat().st_size]:
            reason = "raw files of data on AI CPUs, which are not read"
            builder.report(counted_losses({reason: len(unread)}, rank, OmissionCode.NOT_READ))
        return builder.build()


def _count_losses(reader: RecordReader, rank: int) -> tuple[Omission, ...]:
    """Return the damage of a log that has been read.

    Raises:
        SourceError: the log holds no valid record.
    """
    if not reader.records:
        path = reader.slices[0]
        raise SourceError(path, "holds no record of the expected shape.", offset=0)
    return tuple(reader.omissions(rank))


def _count_unpaired(intervals: TaskIntervals, rank: int) -> tuple[Omission, ...]:
    halves = {
        "device tasks that had not ended when the capture did": intervals.unfinished,
        "ends of device tasks whose start is not in the capture": intervals.unstarted,
    }
    return counted_losses(halves, rank, OmissionCode.UNPAIRED)


def _decode_marks(records: RecordArray) -> TaskMarks:
    tasks = records[(records["head"] & 7) <= TASK_END]
    key = tasks["stream"].astype(np.uint64) << _TASK_BITS | tasks["task"].astype(np.uint64)
    is_end: Bool = tasks["head"] & 7 == TASK_END
    return TaskMarks(key, tasks["ticks"].astype(np.uint64), tasks["kind"], is_end)


@dataclass(frozen=True)
class _Operators:
    """Name, type and blocks of the operator of each task id; empty for ids of several operators."""

    name: Codes
    op_type: Codes
    blocks: Int64

    @classmethod
    def read(
        cls, task_paths: Sequence[Path], type_paths: Sequence[Path], strings: StringPool
    ) -> _Operators:
        """Read operators from the framework's descriptions of tasks and of graphs.

        Operators are found by task id only, as the framework and the hardware number streams
        differently. Damage is not counted here, but by the reader of the operator tables.
        """
        descriptions = (
            row for path in type_paths for row in read_descriptions(path, LossLog(path))
        )
        types = {name: kind for name, (kind, _) in descriptions}
        count = np.iinfo(np.uint16).max + 1
        name, op_type = np.zeros(count, np.int32), np.zeros(count, np.int32)
        blocks, several = np.full(count, NO_ID), np.zeros(count, np.bool_)
        tasks = (row for path in task_paths for row in read_tasks(path, LossLog(path)))
        for operator, task_blocks, task, _ in tasks:
            if 0 <= task < count:
                code = strings.code(operator)
                several[task] |= name[task] not in (NO_NAME, code)
                name[task], blocks[task] = code, task_blocks
                op_type[task] = strings.code(types.get(operator, ""))
        return cls(
            np.where(several, NO_NAME, name).astype(np.int32),
            np.where(several, NO_NAME, op_type).astype(np.int32),
            np.where(several, NO_ID, blocks),
        )


def _build_tasks(intervals: TaskIntervals, operators: _Operators, strings: StringPool) -> Tasks:
    """Build device tasks; those with an operator count as computing, as in MindSpore."""
    stream, task = (intervals.key >> _TASK_BITS).astype(np.int64), intervals.key.astype(np.uint16)
    is_named = operators.name[task] != NO_NAME
    tasks = Tasks.of(
        len(task),
        start_ns=intervals.start_ticks.astype(np.int64) * TICK_NS,
        end_ns=intervals.end_ticks.astype(np.int64) * TICK_NS,
        stream=stream,
        task=task,
        name=np.where(is_named, operators.name[task], strings.code("not named")),
        task_type=np.where(is_named, strings.code(AI_CORE), NO_NAME),
        op_type=operators.op_type[task],
        blocks=operators.blocks[task],
        compute=is_named,
    )
    return tasks.take(np.lexsort((tasks.stream, tasks.start_ns)))


def _is_training_event(events: RecordArray) -> Bool:
    """Return which records are valid events; records read at a wrong offset have larger tags."""
    return np.asarray((events["tag"] < 1 << 32) & (events["tick"] > 0))


TRAINING_LOG = Log(
    "training_trace",
    record_layout(20, tag=(0, "<u8"), task=(8, "<u2"), stream=(10, "<u2"), tick=(12, "<u8")),
    _is_training_event,
)
FP_START, BP_END, STEP_END = 1, 2, 255
"""Tags of events; 0 and tags above STEP_END mark the job, all others starts or ends of reduces."""
TICK_NS = 10


def read_training_trace(events: RecordArray, strings: StringPool, rank: int) -> StepTicks:
    """Build steps in order of their ends, each starting at the end of the step before it.

    The first step starts at its forward start; it is left out if it has none. Events after the last
    end are left out too.
    """
    tag, time_ns = events["tag"], events["tick"].astype(np.int64) * TICK_NS
    ended = tag == STEP_END
    step = np.cumsum(ended) - ended
    end_ns = time_ns[ended]
    count = len(end_ns)
    in_step = step < count
    fp_ns, bp_ns = np.full(count, NO_TIME), np.full(count, NO_TIME)
    for mark, mark_ns in ((FP_START, fp_ns), (BP_END, bp_ns)):
        is_mark = in_step & (tag == mark)
        mark_ns[step[is_mark]] = time_ns[is_mark]
    start_ns = np.concatenate([fp_ns[:1], end_ns[:-1]])
    steps = Steps.of(
        count,
        start_ns=start_ns,
        end_ns=end_ns,
        graph=NO_GRAPH,
        iteration=np.arange(1, count + 1),
        fp_start_ns=fp_ns,
        bp_end_ns=bp_ns,
    )
    has_start = start_ns != NO_TIME
    reduce = in_step & (tag > BP_END) & (tag < STEP_END)
    parts, ops, unpaired = _pair_reduces(
        step[reduce] + 1, events["stream"][reduce].astype(np.int64), time_ns[reduce], strings
    )
    reasons = {
        "steps without a start": int(np.count_nonzero(~has_start)),
        "marks of a step that had not ended when the capture did": int((~in_step).sum()),
        "starts of reduces without an end": unpaired,
    }
    return StepTicks(
        steps.take(has_start),
        parts,
        ops,
        StepTraceMeans.empty(),
        omissions=counted_losses(reasons, rank, OmissionCode.UNPAIRED),
    )


def _pair_reduces(
    step: Int64, stream: Int64, time_ns: Int64, strings: StringPool
) -> tuple[StepParts, CommunicationOps, int]:
    """Pair starts and ends of reduces of each step and stream; return parts, ops and unpaired.

    Both tables hold the same reduces. The last value is the number of events without a partner.
    """
    order = np.lexsort((np.arange(len(step)), stream, step))
    step, stream, time_ns = step[order], stream[order], time_ns[order]
    number = count_turns(step, stream)
    starts = np.flatnonzero((number[:-1] % 2 == 0) & (number[1:] == number[:-1] + 1))
    count = len(starts)
    shared = {
        "start_ns": time_ns[starts],
        "end_ns": time_ns[starts + 1],
        "graph": NO_GRAPH,
        "iteration": step[starts],
    }
    ids = zip(stream[starts].tolist(), (number[starts] // 2).tolist(), strict=True)
    names = strings.codes(f"stream_{stream_id}_{place}" for stream_id, place in ids)
    number = count_turns(step[starts])
    parts = StepParts.of(count, shared, number=number, kind=StepPart.REDUCE)
    ops = CommunicationOps.of(count, shared, name=names, group=strings.code(GROUP))
    return parts, ops, len(step) - 2 * count
