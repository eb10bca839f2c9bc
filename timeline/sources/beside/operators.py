"""Sums of operators on AI Core and AI CPU, and their runs by step and shape."""

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
from timeline.sources.beside.aicpu_log import read_aicpu_tasks, type_of_name
from timeline.sources.beside.delimited import (
    MOST,
    MOST_MOMENT_NS,
    TablesBuilder,
    Unit,
    cell,
    read_table,
    scale,
)
from timeline.sources.beside.file_kinds import NumberedFile, NumberedFiles
from timeline.sources.beside.framework import read_framework, sizes_of_shape
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.losses import LossLog
from timeline.sources.decoders.json_values import read_json

PICOSECONDS = 1000
"""Of a nanosecond."""
MICROSECONDS = 1000
"""Of a millisecond."""
AI_CPU = "AI_CPU"


_MOMENT: Any = {
    "unit": Unit.MICROSECONDS,
    "absent": NO_TIME,
    "least": -MOST_MOMENT_NS,
    "most": MOST_MOMENT_NS,
}
"""Moments may be on any clock."""


class _CpuRuns(ColumnTable):
    """One run of an operator on an AI CPU a row; op_type: its type, as some versions call it."""

    name: Codes = cell(*("kernel_type", "node_type_name", "kernel_name", "op_name"), absent=NO_NAME)
    op_type: Codes = cell("op_type", absent=NO_NAME)
    total_ns: Int64 = cell("total_time", unit=Unit.MILLISECONDS)
    dispatch_ns: Int64 = cell("dispatch_time", unit=Unit.MILLISECONDS, absent=NO_TIME)
    start_ns: Int64 = cell("run_start", "runv2_start", **_MOMENT)
    end_ns: Int64 = cell("run_end", "runv2_end", **_MOMENT)
    execution_ns: Int64 = cell("execution_time", unit=Unit.MILLISECONDS, absent=NO_TIME)

    def run_ns(self) -> Int64:
        """Return how long each ran.

        That is from its start to its end, in microseconds. MindSpore 2.1 and 2.2, which call the
        type op_type, write milliseconds there, and an end that includes the wait before the start:
        then it is what they call execution time.
        """
        known = (self.start_ns != NO_TIME) & (self.end_ns >= self.start_ns)
        between_ns = np.where(known, self.end_ns - np.where(known, self.start_ns, 0), NO_TIME)
        known &= between_ns <= MOST
        between_ns = np.where(known, between_ns, NO_TIME)
        spans_ns, totals_ns = int(between_ns[known].sum()), int(self.total_ns[known].sum())
        in_milliseconds = MICROSECONDS * spans_ns <= 2 * totals_ns
        newer = in_milliseconds and bool((self.op_type != NO_NAME).any())
        return self.execution_ns if newer else between_ns


_COUNT: Any = {"unit": Unit.NUMBER, "absent": NO_ID}


class _CoreTypes(ColumnTable):
    """The time of the operators of a type in a step."""

    kind: Codes = cell("kernel_type", "op_type")
    total_ns: Int64 = cell("total_time", "execution_time", unit=Unit.MILLISECONDS)
    count: Int64 = cell("execution_frequency", "execution_times", **_COUNT)


class _CoreOperators(ColumnTable):
    """The mean time of a run of an operator, in picoseconds, so that sums stay exact."""

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
    """Sum up runs on AI CPUs by type, and by operator.

    kind, name: (n,) codes of its strings, the latter where the run has more than a type.
    lengths_ns: (n,) each: how long it took in all, until it was dispatched, and how long it ran.
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
    """Add the rows of operators, and of their types where no file of types is there.

    described: the type of each operator that the framework describes, both codes.
    """
    found = read_table(path, _CoreOperators, into)
    kind = np.array(
        [
            described.get(code) or into.strings.code(type_of_name(into.strings[code]))
            for code in found.name.tolist()
        ],
        np.int32,
    )
    known = found.count >= 0
    fits = ~known | (found.mean_ps <= MOST * PICOSECONDS // np.maximum(found.count, 1))
    if not fits.all():
        with into.reading(path) as losses:
            where = f"the operator {into.strings[int(found.name[np.argmin(fits)])]}"
            reason = "operators whose runs together take longer than any run"
            losses.add(reason, where, int(np.count_nonzero(~fits)))
        known &= fits
    total_ns = np.where(
        known, _nanoseconds(found.mean_ps * np.where(known, found.count, 0)), NO_TIME
    )
    _add_sums(
        into,
        OperatorSource.AICORE_INTERMEDIATE,
        RunLevel.NAME,
        kind=kind,
        name=found.name,
        count=found.count,
        total_ns=total_ns,
        mean_ns=_nanoseconds(found.mean_ps),
    )
    if with_types and known.all():
        groups = group_by(len(kind), [kind])
        sums = groups.sum(found.count), groups.sum(total_ns)
        _add_core_sums(into, kind[groups.first], *sums)


def _mean(total_ns: Int64, count: Int64) -> Int64:
    """Return the mean of each row, rounded; any number where there is no count."""
    divisor = np.maximum(count, 1)
    whole, rest = np.divmod(total_ns, divisor)
    mean_ns: Int64 = whole + (2 * rest >= divisor)
    return mean_ns


def _nanoseconds(times_ps: Int64) -> Int64:
    rounded: Int64 = (times_ps + PICOSECONDS // 2) // PICOSECONDS
    return rounded


MICROSECOND_NS, MILLISECOND_NS = 1_000, 1_000_000
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
    """Read dynamic_shape_info_N.json: a row per step and type, operator and shapes, and kernel.

    Types are summed of the operators; of steps without any, as the file sums them itself. On Ascend
    the file lists the times of each operator, one for each step from 1 on, and no kernels.
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
    code = into.strings.code
    for key, level in _LEVELS.items():
        for step, items in _steps_of(document, key, list, losses):
            for item in items:
                length_ns = (
                    scale(item.get("dur"), MICROSECOND_NS) if isinstance(item, dict) else None
                )
                if length_ns is None:
                    losses.add("runs without a length", f"{key} of step {step}")
                    continue
                side, kind, name = (code(str(item.get(f"op_{what}") or "")) for what in _WORDS)
                shapes = code(_shapes_of(item.get("shape_info")))
                yield _Run(step, level, side, kind, name, shapes, 1, length_ns)


_WORDS = ("side", "type", "name")


def _ascend_runs(document: dict[str, Any], into: TablesBuilder, losses: LossLog) -> Iterator[_Run]:
    """Return the runs of lists of operators by type, with times in ms and op_info."""
    code = into.strings.code
    for kind, operators in document.items():
        for one in operators if isinstance(operators, list) else []:
            for name, detail in one.items() if isinstance(one, dict) else []:
                known = detail if isinstance(detail, dict) else {}
                times, shapes = (known.get(key) for key in ("op_exe_time", "op_shape"))
                if not isinstance(times, list):
                    losses.add("operators without times", f"{kind} {name}")
                    continue
                listed = [*(shapes if isinstance(shapes, list) else []), *[""] * len(times)]
                for at, time_ms in enumerate(times):
                    length_ns = scale(time_ms, MILLISECOND_NS)
                    if length_ns is None:
                        losses.add("runs without a length", f"{kind} {name}")
                        continue
                    inputs = {int(number): one for number, one in _INPUT.findall(str(listed[at]))}
                    ordered = _shapes_of([inputs[number] for number in sorted(inputs)])
                    texts = (code(kind), code(name), code(ordered))
                    yield _Run(at + 1, RunLevel.NAME, NO_NAME, *texts, 1, length_ns)


_INPUT = re.compile(r"[Ii]nput_(\d{1,4}): ?\{[^{}]*?shape: ?([^{}]*)\}")


def _types_of(runs: list[_Run]) -> Iterator[_Run]:
    """Return the runs of operators as those of their types; the side if all agree on it."""
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
    """Return the sums by type that the file holds: the last numbers are total, count and mean."""
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
    """Return the content of each step; the keys are numbers as strings."""
    steps = document.get(key)
    for step, items in (steps if isinstance(steps, dict) else {}).items():
        number = whole_number(step)
        if number is None or not isinstance(items, kind):
            losses.add("steps that cannot be read", f"{key} of step {step}")
            continue
        yield number, items


def _shapes_of(value: object) -> str:
    """Return shapes as in kernel tables: commas between sizes, semicolons between inputs."""
    if isinstance(value, str):
        value = value.replace("],", "];").split(";")
    if not isinstance(value, list):
        return ""
    shapes = [sizes_of_shape(shape) for shape in value]
    return ";".join("" if shape is None else ",".join(map(str, shape)) for shape in shapes)


def _add(runs: list[_Run], into: TablesBuilder) -> None:
    """Add the runs, those that are equal in all but their length as one row, in order of steps."""
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
