"""Reads the raw data of MindSpore 0.x and 1.x: hardware log and training trace."""

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
"""Of a key, below the stream."""
_SLICE = re.compile(r"(.*)\.slice_(\d+)")


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
        builder = RecordsBuilder(Records(rank, strings, records_copies=False))
        if paths := self._hardware():
            reader = RecordReader(HARDWARE_LOG, paths)
            found = read_intervals(reader, _marks_of)
            builder.report((*_losses_of(reader, rank), *_unpaired(found, rank)))
            operators = _Operators.of(self._tasks(), self._operators(), strings)
            builder.add_tasks(_tasks_of(found, operators, strings))
        if paths := self._training():
            reader = RecordReader(TRAINING_LOG, paths)
            events = np.concatenate([*reader.blocks(), np.empty(0, TRAINING_LOG.record)])
            builder.report(_losses_of(reader, rank))
            builder.add_steps(read_training_trace(events, strings, rank))
        preprocess = self._slices("DATA_PREPROCESS.*AICPUMI")
        if unread := [path for path in preprocess if path.stat().st_size]:
            reason = "raw files of data on AI CPUs, which are not read"
            builder.report(counted_losses({reason: len(unread)}, rank, OmissionCode.NOT_READ))
        return builder.build()


def _losses_of(reader: RecordReader, rank: int) -> tuple[Omission, ...]:
    """Return what was no record of a log that has been read.

    Raises:
        SourceError: it was all.
    """
    if not reader.records:
        path = reader.slices[0]
        raise SourceError(path, "holds no record of the expected shape.", offset=0)
    return tuple(reader.omissions(rank))


def _unpaired(found: TaskIntervals, rank: int) -> tuple[Omission, ...]:
    halves = {
        "device tasks that had not ended when the capture did": found.unfinished,
        "ends of device tasks whose start is not in the capture": found.unstarted,
    }
    return counted_losses(halves, rank, OmissionCode.UNPAIRED)


def _marks_of(records: RecordArray) -> TaskMarks:
    tasks = records[(records["head"] & 7) <= TASK_END]
    key = tasks["stream"].astype(np.uint64) << _TASK_BITS | tasks["task"].astype(np.uint64)
    is_end: Bool = tasks["head"] & 7 == TASK_END
    return TaskMarks(key, tasks["ticks"].astype(np.uint64), tasks["kind"], is_end)


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


def _tasks_of(found: TaskIntervals, operators: _Operators, strings: StringPool) -> Tasks:
    """Return tasks of starts and ends; those of operators compute, as MindSpore counts them."""
    stream, task = (found.key >> _TASK_BITS).astype(np.int64), found.key.astype(np.uint16)
    named = operators.name[task] != NO_NAME
    tasks = Tasks.of(
        len(task),
        start_ns=found.start_ticks.astype(np.int64) * TICK_NS,
        end_ns=found.end_ticks.astype(np.int64) * TICK_NS,
        stream=stream,
        task=task,
        name=np.where(named, operators.name[task], strings.code("not named")),
        task_type=np.where(named, strings.code(AI_CORE), NO_NAME),
        op_type=operators.op_type[task],
        blocks=operators.blocks[task],
        compute=named,
    )
    return tasks.take(np.lexsort((tasks.stream, tasks.start_ns)))


def _is_training_event(events: RecordArray) -> Bool:
    """Return a mask of events with a small tag: records that are read out of step have none."""
    return np.asarray((events["tag"] < 1 << 32) & (events["tick"] > 0))


TRAINING_LOG = Log(
    "training_trace",
    record_layout(20, tag=(0, "<u8"), task=(8, "<u2"), stream=(10, "<u2"), tick=(12, "<u8")),
    _is_training_event,
)
FP_START, BP_END, STEP_END = 1, 2, 255
"""Tags; 0 and those above STEP_END mark the job, all others the start or end of a reduce."""
TICK_NS = 10


def read_training_trace(events: RecordArray, strings: StringPool, rank: int) -> StepTicks:
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
        start_ns=start_ns,
        end_ns=end_ns,
        graph=NO_GRAPH,
        iteration=np.arange(1, count + 1),
        fp_start_ns=fp_ns,
        bp_end_ns=bp_ns,
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
        "graph": NO_GRAPH,
        "iteration": step[starts],
    }
    named = zip(stream[starts].tolist(), (number[starts] // 2).tolist(), strict=True)
    names = strings.codes(f"stream_{stream_id}_{place}" for stream_id, place in named)
    number = count_turns(step[starts])
    parts = StepParts.of(count, shared, number=number, kind=StepPart.REDUCE)
    ops = CommunicationOps.of(count, shared, name=names, group=strings.code(GROUP))
    return parts, ops, len(step) - 2 * count
