"""Runs of operators and GPU kernels by step, of networks with dynamic shapes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from timeline.columns.group_by import group_by
from timeline.columns.strings import NO_NAME
from timeline.patterns import compile_late
from timeline.records.profiler_tables.operators import OperatorRuns, RunLevel
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.losses import LossLog
from timeline.sources.decoders.json_values import read_json
from timeline.sources.profiler_tables.builder import TablesBuilder
from timeline.sources.profiler_tables.delimited import MOST
from timeline.sources.profiler_tables.framework import sizes_of_shape

__all__ = ["read_dynamic_shapes"]

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


def read_dynamic_shapes(path: Path, into: TablesBuilder) -> None:
    """Read dynamic_shape_info_N.json: a row per step and type, operator and shapes, and kernel.

    Types are summed of the operators; of steps without any, as the file sums them itself. On Ascend
    the file lists the times of each operator, one for each step from 1 on, and no kernels.
    """
    with into.reading(path) as losses:
        document = read_json(path)
        runs = list(_single_runs(document, into, losses))
        if "operator" not in document:
            runs += _ascend_runs(document, into, losses)
        runs += list(_types_of(runs))
        told = {run.step for run in runs if run.level == RunLevel.TYPE}
        runs += [run for run in _summed_types(document, into, losses) if run.step not in told]
        _add(runs, into)


def _single_runs(document: dict[str, Any], into: TablesBuilder, losses: LossLog) -> Iterator[_Run]:
    code = into.strings.code
    for key, level in _LEVELS.items():
        for step, items in _steps_of(document, key, list, losses):
            for item in items:
                length_ns = _length_ns(item.get("dur")) if isinstance(item, dict) else None
                if length_ns is None:
                    losses.add("runs without a length", f"{key} of step {step}")
                    continue
                side, kind, name = (code(str(item.get(f"op_{what}") or "")) for what in _WORDS)
                shapes = code(_shapes_of(item.get("shape_info")))
                yield _Run(step, level, side, kind, name, shapes, 1, length_ns)


_WORDS = ("side", "type", "name")


def _ascend_runs(document: dict[str, Any], into: TablesBuilder, losses: LossLog) -> Iterator[_Run]:
    """The runs of lists of operators by type, with times in milliseconds and their op_info."""
    code = into.strings.code
    for kind, operators in document.items():
        for one in operators if isinstance(operators, list) else []:
            for name, detail in one.items() if isinstance(one, dict) else []:
                known = detail if isinstance(detail, dict) else {}
                times, shapes = (known.get(key) for key in ("op_exe_time", "op_shape"))
                if not isinstance(times, list):
                    losses.add("operators without times", f"{kind} {name}")
                    continue
                spelled = shapes if isinstance(shapes, list) else []
                for at, time_ms in enumerate(times):
                    length_ns = _length_ns(time_ms, MILLISECOND_NS)
                    if length_ns is None:
                        losses.add("runs without a length", f"{kind} {name}")
                        continue
                    told = _inputs_of(spelled[at]) if at < len(spelled) else ""
                    texts = (code(kind), code(name), code(told))
                    yield _Run(at + 1, RunLevel.NAME, NO_NAME, *texts, 1, length_ns)


def _inputs_of(told: object) -> str:
    """The shapes of inputs in an op_info without its quotes."""
    found = {int(number): shape for number, shape in _INPUT.findall(str(told))}
    return _shapes_of([found[number] for number in sorted(found)])


_INPUT = compile_late(r"[Ii]nput_(\d{1,4}): ?\{[^{}]*?shape: ?([^{}]*)\}")


def _types_of(runs: list[_Run]) -> Iterator[_Run]:
    """The runs of operators again, as those of their types; the side where all agree on it."""
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
    """The sums by type that the file holds: the last numbers of each are total, count and mean."""
    for step, types in _steps_of(document, "operator_type", dict, losses):
        for kind, values in types.items():
            numbers = [
                value
                for value in (values if isinstance(values, list) else [])
                if isinstance(value, (int, float)) and not isinstance(value, bool)
            ][-3:]
            total_ns = _length_ns(numbers[0]) if len(numbers) == 3 else None
            if total_ns is None or not 0 <= numbers[1] <= MOST:
                losses.add("sums of types without numbers", f"step {step}")
                continue
            code = into.strings.code(str(kind))
            yield _Run(
                step, RunLevel.TYPE, NO_NAME, code, NO_NAME, NO_NAME, int(numbers[1]), total_ns
            )


def _steps_of(
    document: dict[str, Any], key: str, kind: type, losses: LossLog
) -> Iterator[tuple[int, Any]]:
    """What the file holds of each step; its keys are numbers as text."""
    steps = document.get(key)
    for step, items in (steps if isinstance(steps, dict) else {}).items():
        number = whole_number(step)
        if number is None or not isinstance(items, kind):
            losses.add("steps that cannot be read", f"{key} of step {step}")
            continue
        yield number, items


def _length_ns(duration: object, unit_ns: int = MICROSECOND_NS) -> int | None:
    if isinstance(duration, bool) or not isinstance(duration, (int, float)):
        return None
    return round(duration * unit_ns) if 0 <= duration * unit_ns <= MOST else None


def _shapes_of(told: object) -> str:
    """Shapes as kernel tables spell them: sizes parted by commas, inputs by semicolons."""
    if isinstance(told, str):
        told = told.replace("],", "];").split(";")
    if not isinstance(told, list):
        return ""
    shapes = [sizes_of_shape(shape) for shape in told]
    return ";".join("" if shape is None else ",".join(map(str, shape)) for shape in shapes)


def _add(runs: list[_Run], into: TablesBuilder) -> None:
    """Add the runs, those that are equal in all but their length as one row, in order of steps."""
    columns = np.array(runs, np.int64).reshape(len(runs), len(_Run._fields))
    table = dict(zip(_Run._fields, columns.T, strict=True))
    keys = ("level", "step", "side", "kind", "name", "shapes")
    groups = group_by(len(runs), [table[key] for key in keys])
    into.add(
        OperatorRuns,
        len(groups.first),
        {key: table[key][groups.first] for key in keys}
        | {"count": groups.sum(table["times"]), "total_ns": groups.sum(table["total_ns"])},
    )
