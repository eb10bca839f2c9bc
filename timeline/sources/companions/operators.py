"""Sums of operators on AI Core and AI CPU, and their runs by step and shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from timeline.columns.columns import Codes, ColumnTable, Int64
from timeline.columns.group_by import group_by
from timeline.columns.strings import NO_NAME
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.profiler_tables import (
    OperatorRuns,
    OperatorSource,
    OperatorSums,
    RunLevel,
)
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.losses import LossLog
from timeline.sources.companions.aicpu_log import read_aicpu_tasks, type_of_name
from timeline.sources.companions.delimited import (
    MOST,
    MOST_TIME_NS,
    TablesBuilder,
    Unit,
    cell,
    read_table,
    scale,
)
from timeline.sources.companions.file_kinds import NumberedFile, NumberedFiles
from timeline.sources.companions.framework import read_framework, sizes_of_shape
from timeline.sources.decoders.json_values import read_json

PICOSECONDS = 1000
"""Picoseconds in a nanosecond."""
AI_CPU = "AI_CPU"


_TIME: Any = {
    "unit": Unit.MICROSECONDS,
    "absent": NO_TIME,
    "least": -MOST_TIME_NS,
    "most": MOST_TIME_NS,
}
"""Arguments of cells with times, which may be on any clock."""


class _CpuRuns(ColumnTable):
    """Runs of operators on AI CPUs; op_type is the type in MindSpore 2.1 and 2.2."""

    name: Codes = cell(*("kernel_type", "node_type_name", "kernel_name", "op_name"), absent=NO_NAME)
    op_type: Codes = cell("op_type", absent=NO_NAME)
    total_ns: Int64 = cell("total_time", unit=Unit.MILLISECONDS)
    dispatch_ns: Int64 = cell("dispatch_time", unit=Unit.MILLISECONDS, absent=NO_TIME)
    start_ns: Int64 = cell("run_start", "runv2_start", **_TIME)
    end_ns: Int64 = cell("run_end", "runv2_end", **_TIME)
    execution_ns: Int64 = cell("execution_time", unit=Unit.MILLISECONDS, absent=NO_TIME)

    def run_ns(self) -> Int64:
        """Return the length of each run.

        It is the end minus the start, which are microseconds. MindSpore 2.1 and 2.2, whose files
        have op_type, write them in milliseconds, and an end that includes the wait before the
        start: their column of execution times is used instead.
        """
        is_known = (self.start_ns != NO_TIME) & (self.end_ns >= self.start_ns)
        between_ns = np.where(is_known, self.end_ns - np.where(is_known, self.start_ns, 0), NO_TIME)
        is_known &= between_ns <= MOST
        between_ns = np.where(is_known, between_ns, NO_TIME)
        spans_ns, totals_ns = int(between_ns[is_known].sum()), int(self.total_ns[is_known].sum())
        in_milliseconds = 1000 * spans_ns <= 2 * totals_ns  # 1000 us are a ms
        newer = in_milliseconds and bool((self.op_type != NO_NAME).any())
        return self.execution_ns if newer else between_ns


_COUNT: Any = {"unit": Unit.NUMBER, "absent": NO_ID}
"""Arguments of cells with counts."""


class _CoreTypes(ColumnTable):
    """The time of the operators of each type in a step."""

    kind: Codes = cell("kernel_type", "op_type")
    total_ns: Int64 = cell("total_time", "execution_time", unit=Unit.MILLISECONDS)
    count: Int64 = cell("execution_frequency", "execution_times", **_COUNT)


class _CoreOperators(ColumnTable):
    """The mean time of a run of each operator, in picoseconds, so that sums stay exact."""

    name: Codes = cell("full_kernel_name", "full_kernel_time", "full_op_name", "full_op_time")
    mean_ps: Int64 = cell(
        "execution_time",
        "avg_execution_time",
        unit=Unit.MILLISECONDS_AS_PS,
        most=MOST * PICOSECONDS,
    )
    count: Int64 = cell("execution_frequency", "execution_times", **_COUNT)


def read_operators(files: NumberedFiles, into: TablesBuilder) -> None:
    """Read OperatorSums, OperatorRuns and FrameworkOperators."""
    described = read_framework(files, into)
    for path in files.get(NumberedFile.AICPU_SUMS, ()):
        _add_cpu_sums(path, into)
    tasks = read_aicpu_tasks(files, into)
    lengths_ns = (tasks.total_ns, tasks.dispatch_ns, tasks.run_ns)
    _add_cpu_runs(OperatorSource.AICPU, tasks.kind, tasks.name, lengths_ns, into)
    types = files.get(NumberedFile.AICORE_TYPES, ())
    for path in types:
        sums = read_table(path, _CoreTypes, into)
        _add_core_sums(into, sums.kind, sums.count, sums.total_ns)
    for path in files.get(NumberedFile.AICORE_DETAIL, ()):
        _add_core_operators(path, described, into, with_types=not types)
    into.read_files(files, {NumberedFile.DYNAMIC_SHAPES: read_dynamic_shapes})


def _add_cpu_sums(path: Path, into: TablesBuilder) -> None:
    runs = read_table(path, _CpuRuns, into)
    name = np.where(runs.op_type == NO_NAME, runs.name, runs.op_type)
    kind = [into.strings.code(type_of_name(into.strings[code])) for code in name.tolist()]
    lengths_ns = (runs.total_ns, runs.dispatch_ns, runs.run_ns())
    source = OperatorSource.AICPU_INTERMEDIATE
    _add_cpu_runs(source, np.array(kind, np.int32), name, lengths_ns, into)


def _add_cpu_runs(
    source: OperatorSource,
    kind: Codes,
    name: Codes,
    lengths_ns: tuple[Int64, Int64, Int64],
    into: TablesBuilder,
) -> None:
    """Sum runs on AI CPUs by type and by operator.

    kind, name: (n,) codes of type and name, which are equal if only the type is known. lengths_ns:
    (n,) each: total time, time until dispatch, and time of the run.
    """
    named = np.where(name == kind, np.int32(NO_NAME), name)
    for level, keys in ((RunLevel.TYPE, [kind]), (RunLevel.NAME, [kind, named])):
        groups = group_by(len(kind), keys)
        count = groups.count()
        total_ns, dispatch_ns, run_ns = (
            np.where(groups.least(values) == NO_TIME, NO_TIME, groups.sum(np.maximum(values, 0)))
            for values in lengths_ns
        )
        named_too = {} if level is RunLevel.TYPE else {"name": named[groups.first]}
        _add_sums(
            into,
            source,
            level,
            kind=kind[groups.first],
            core=into.strings.code(AI_CPU),
            count=count,
            total_ns=total_ns,
            mean_ns=np.where(total_ns == NO_TIME, NO_TIME, _mean(total_ns, count)),
            dispatch_ns=dispatch_ns,
            run_ns=run_ns,
            **named_too,
        )


def _add_sums(
    into: TablesBuilder, source: OperatorSource, level: RunLevel, **columns: Int64 | Codes | int
) -> None:
    count = len(np.asarray(columns["kind"]))
    into.add(OperatorSums.of(count, columns, source=source, level=level))


def _add_core_sums(into: TablesBuilder, kind: Codes, count: Int64, total_ns: Int64) -> None:
    mean_ns = np.where(count > 0, _mean(total_ns, count), NO_TIME)
    source, sums = OperatorSource.AICORE_INTERMEDIATE, {"total_ns": total_ns, "mean_ns": mean_ns}
    _add_sums(into, source, RunLevel.TYPE, kind=kind, count=count, **sums)


def _add_core_operators(
    path: Path, described: Mapping[int, int], into: TablesBuilder, *, with_types: bool
) -> None:
    """Add the sums of operators and, `with_types`, of their types.

    described: codes of types by code of the name, of operators that the framework describes.
    """
    operators = read_table(path, _CoreOperators, into)
    kind = np.array(
        [
            described.get(code) or into.strings.code(type_of_name(into.strings[code]))
            for code in operators.name.tolist()
        ],
        np.int32,
    )
    has_total = operators.count >= 0
    fits = ~has_total | (operators.mean_ps <= MOST * PICOSECONDS // np.maximum(operators.count, 1))
    if not fits.all():
        with into.reading(path) as losses:
            where = f"the operator {into.strings[int(operators.name[np.argmin(fits)])]}"
            reason = "operators with an implausible total time"
            losses.add(reason, where, int(np.count_nonzero(~fits)))
        has_total &= fits
    total_ns = np.where(
        has_total,
        _nanoseconds(operators.mean_ps * np.where(has_total, operators.count, 0)),
        NO_TIME,
    )
    _add_sums(
        into,
        OperatorSource.AICORE_INTERMEDIATE,
        RunLevel.NAME,
        kind=kind,
        name=operators.name,
        count=operators.count,
        total_ns=total_ns,
        mean_ns=_nanoseconds(operators.mean_ps),
    )
    if with_types and has_total.all():
        groups = group_by(len(kind), [kind])
        sums = groups.sum(operators.count), groups.sum(total_ns)
        _add_core_sums(into, kind[groups.first], *sums)


def _mean(total_ns: Int64, count: Int64) -> Int64:
    """Return the mean of each row, rounded half up; arbitrary where the count is not positive."""
    divisor = np.maximum(count, 1)
    whole, rest = np.divmod(total_ns, divisor)
    mean_ns: Int64 = whole + (2 * rest >= divisor)
    return mean_ns


def _nanoseconds(times_ps: Int64) -> Int64:
    rounded: Int64 = (times_ps + PICOSECONDS // 2) // PICOSECONDS
    return rounded


MICROSECOND_NS, MILLISECOND_NS = 1000, 1_000_000
_LEVELS = {"operator": RunLevel.NAME, "kernel": RunLevel.KERNEL}


class _Run(NamedTuple):
    step: int
    level: int
    side: int
    kind: int
    name: int
    shapes: int
    times: int
    total_ns: int


def read_dynamic_shapes(path: Path, losses: LossLog, into: TablesBuilder) -> None:
    """Read dynamic_shape_info_N.json: rows per step of types, operators with shapes, and kernels.

    Types are summed from operators; in steps without any, the sums in the file are used. On Ascend
    the file lists a time for each operator and step, which count from 1, and no kernels.
    """
    document = read_json(path)
    runs = list(_single_runs(document, into, losses))
    if "operator" not in document:
        runs += _ascend_runs(document, into, losses)
    runs += list(_types_of(runs))
    summed = {run.step for run in runs if run.level == RunLevel.TYPE}
    runs += [run for run in _summed_types(document, into, losses) if run.step not in summed]
    _add(runs, into)


def _single_runs(document: dict[str, Any], into: TablesBuilder, losses: LossLog) -> Iterator[_Run]:
    """Yield the runs of operators and kernels, which are listed by step with times in us."""
    code = into.strings.code
    for key, level in _LEVELS.items():
        for step, items in _steps_of(document, key, list, losses):
            for item in items:
                run = item if isinstance(item, dict) else {}
                length_ns = scale(run.get("dur"), MICROSECOND_NS)
                if length_ns is None:
                    losses.add("runs without a length", f"{key} of step {step}")
                    continue
                side, kind, name = (code(str(run.get(field) or "")) for field in _NAME_KEYS)
                shapes = code(_shapes_of(run.get("shape_info")))
                yield _Run(step, level, side, kind, name, shapes, 1, length_ns)


_NAME_KEYS = ("op_side", "op_type", "op_name")


def _ascend_runs(document: dict[str, Any], into: TablesBuilder, losses: LossLog) -> Iterator[_Run]:
    """Yield the runs of operators, which are listed by type with times in ms."""
    code = into.strings.code
    for kind, operators in document.items():
        for entry in operators if isinstance(operators, list) else []:
            for name, detail in entry.items() if isinstance(entry, dict) else []:
                values = detail if isinstance(detail, dict) else {}
                times, shapes = (values.get(key) for key in ("op_exe_time", "op_shape"))
                if not isinstance(times, list):
                    losses.add("operators without times", f"{kind} {name}")
                    continue
                listed = [*(shapes if isinstance(shapes, list) else []), *[""] * len(times)]
                for at, time_ms in enumerate(times):
                    length_ns = scale(time_ms, MILLISECOND_NS)
                    if length_ns is None:
                        losses.add("runs without a length", f"{kind} {name}")
                        continue
                    inputs = {
                        int(number): shape for number, shape in _INPUT.findall(str(listed[at]))
                    }
                    ordered = _shapes_of([inputs[number] for number in sorted(inputs)])
                    codes = (code(kind), code(name), code(ordered))
                    yield _Run(at + 1, RunLevel.NAME, NO_NAME, *codes, 1, length_ns)


_INPUT = re.compile(r"[Ii]nput_(\d{1,4}): ?\{[^{}]*?shape: ?([^{}]*)\}")


def _types_of(runs: list[_Run]) -> Iterator[_Run]:
    """Yield the runs of operators as runs of their types, with the side if all in a step agree."""
    sides: dict[tuple[int, int], set[int]] = {}
    operators = [run for run in runs if run.level == RunLevel.NAME]
    for run in operators:
        sides.setdefault((run.step, run.kind), set()).add(run.side)
    for run in operators:
        several = len(sides[run.step, run.kind]) > 1
        yield run._replace(
            level=RunLevel.TYPE,
            side=NO_NAME if several else run.side,
            name=NO_NAME,
            shapes=NO_NAME,
        )


def _summed_types(document: dict[str, Any], into: TablesBuilder, losses: LossLog) -> Iterator[_Run]:
    """Yield the file's own sums by type, whose last numbers are total (us), count and mean."""
    for step, types in _steps_of(document, "operator_type", dict, losses):
        for kind, values in types.items():
            numbers = [
                value
                for value in (values if isinstance(values, list) else [])
                if isinstance(value, (int, float)) and not isinstance(value, bool)
            ][-3:]
            total_ns = scale(numbers[0], MICROSECOND_NS) if len(numbers) == 3 else None
            if total_ns is None or not 0 <= numbers[1] <= MOST:
                losses.add("sums of types without numbers", f"step {step}")
                continue
            names = NO_NAME, into.strings.code(str(kind)), NO_NAME, NO_NAME
            yield _Run(step, RunLevel.TYPE, *names, int(numbers[1]), total_ns)


def _steps_of(
    document: dict[str, Any], key: str, kind: type, losses: LossLog
) -> Iterator[tuple[int, Any]]:
    """Yield number and content of each step under a key; count other entries as damage."""
    steps = document.get(key)
    for step, items in (steps if isinstance(steps, dict) else {}).items():
        number = whole_number(step)
        if number is None or not isinstance(items, kind):
            losses.add("steps that cannot be read", f"{key} of step {step}")
            continue
        yield number, items


def _shapes_of(value: object) -> str:
    """Format shapes as in kernel tables: commas between sizes, semicolons between inputs."""
    if isinstance(value, str):
        value = value.replace("],", "];").split(";")
    if not isinstance(value, list):
        return ""
    shapes = [sizes_of_shape(shape) for shape in value]
    return ";".join("" if shape is None else ",".join(map(str, shape)) for shape in shapes)


def _add(runs: list[_Run], into: TablesBuilder) -> None:
    """Add the runs; sum runs that are equal in all but their length."""
    columns = np.array(runs, np.int64).reshape(len(runs), len(_Run._fields))
    table = dict(zip(_Run._fields, columns.T, strict=True))
    keys = ("level", "step", "side", "kind", "name", "shapes")
    groups = group_by(len(runs), [table[key] for key in keys])
    into.add(
        OperatorRuns.of(
            len(groups.first),
            {key: table[key][groups.first] for key in keys}
            | {"count": groups.sum(table["times"]), "total_ns": groups.sum(table["total_ns"])},
        )
    )
