"""Floating-point operations (FLOP) of operators, scopes, steps and the rank."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np

from timeline.columns.columns import Float64
from timeline.records.not_given import FLOAT_NOT_GIVEN, NO_ID
from timeline.records.profiler_tables import FlopLevel, FlopRows, FlopUnit
from timeline.sources.common.losses import LossLog
from timeline.sources.companions.delimited import (
    NOT_GIVEN,
    UNREADABLE,
    TablesBuilder,
    Unit,
    quantity,
    read_rows,
)
from timeline.sources.companions.file_kinds import NumberedFile, NumberedFiles
from timeline.sources.decoders.json_values import read_json

_WORK, _RATE, _SHARE = "flop", "flop_per_s", "utilization"
_UNITS = {_WORK: Unit.MEGA, _RATE: Unit.GIGA, _SHARE: Unit.PERCENT}
_LAYOUTS: Mapping[int, tuple[tuple[FlopUnit, tuple[str, ...]], ...]] = {
    4: ((FlopUnit.ALL, (_WORK, _RATE, _SHARE)),),
    5: ((FlopUnit.CUBE, (_WORK, _RATE)), (FlopUnit.VECTOR, (_WORK, _RATE))),
    7: ((FlopUnit.CUBE, (_WORK, _RATE, _SHARE)), (FlopUnit.VECTOR, (_WORK, _RATE, _SHARE))),
}
"""Columns after the name by number of cells in a row: unit of the core, and its amounts. Headers do
not distinguish units in MindSpore 1.x; MindSpore 2.1 writes no utilization."""
_SUMMARIES: Mapping[FlopUnit, Mapping[str, str]] = {
    FlopUnit.ALL: {_WORK: "FLOPs", _RATE: "FLOPS", _SHARE: "FLOPS_Utilization"},
    FlopUnit.CUBE: {_WORK: "cube_FLOPs", _RATE: "cube_FLOPS", _SHARE: "cube_FLOPS_Utilization"},
    FlopUnit.VECTOR: {_WORK: "vec_FLOPs", _RATE: "vec_FLOPS", _SHARE: "vec_FLOPS_Utilization"},
}
_MOST = 9e9
"""The largest plausible GFLOP/s, or MFLOP of an operator; as FLOP it fits 64 bits."""
_Value = int | float | None
_Values = dict[str, _Value]


def read_flops(files: NumberedFiles, into: TablesBuilder) -> None:
    """Read FlopRows from files, which hold MFLOP, GFLOP/s and percent."""
    readers = {
        NumberedFile.FLOPS_SUMMARY: _read_summary,
        NumberedFile.FLOPS_STEPS: _read_steps,
        NumberedFile.FLOPS_SCOPE: _read_scopes,
        NumberedFile.FLOPS: _read_operators,
    }
    into.read_files(files, readers)


def _add_rows(into: TablesBuilder, level: FlopLevel, rows: Sequence[_Values]) -> None:
    """Add rows of one level, which all have the same columns except for missing amounts."""
    absent = {_WORK: NO_ID, _RATE: NO_ID, _SHARE: FLOAT_NOT_GIVEN}
    if rows:
        columns = {name: [row.get(name) for row in rows] for name in absent | rows[0]}
        for name, value in absent.items():
            columns[name] = [value if amount is None else amount for amount in columns[name]]
        into.add(FlopRows.of(len(rows), columns | {"level": [level] * len(rows)}))


def _number(value: object, unit: Unit) -> _Value:
    """Parse a number of JSON or a cell in a unit; None if it is negative or not a number.

    Only a percentage may end with its sign.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    text = str(value).strip()
    number = quantity(text.removesuffix("%") if unit is Unit.PERCENT else text, unit)
    return None if number is None or number < 0 else number


def _read_summary(path: Path, losses: LossLog, into: TablesBuilder) -> None:
    """Read the sums of the rank, one row for each unit of the core."""
    summary, rows = read_json(path), list[_Values]()
    for unit, keys in _SUMMARIES.items():
        present = {name: key for name, key in keys.items() if summary.get(key) is not None}
        values = {name: _number(summary[key], _UNITS[name]) for name, key in present.items()}
        damaged = [present[name] for name, value in values.items() if value is None]
        if damaged:
            losses.add("values that are not numbers", damaged[0], len(damaged))
        if any(value is not None for value in values.values()):
            rows.append({**values, "unit": unit})
    if not rows and not losses.rows:
        losses.add("objects without FLOPs", "its beginning")
    _add_rows(into, FlopLevel.RANK, rows)


def _read_steps(path: Path, losses: LossLog, into: TablesBuilder) -> None:
    """Read lines of a step and its utilization: the file is named .json but is not JSON."""
    rows: list[_Values] = []
    for row in read_rows(path, losses):
        step = _number(row.cells[0], Unit.NUMBER)
        share = _number(row.cells[1], Unit.PERCENT) if len(row.cells) == 2 else None
        if isinstance(step, int) and share is not None:
            rows.append({_SHARE: share, "step": step})
        elif row.line > 1 or step is not None:
            losses.add(UNREADABLE, f"line {row.line}")
    _add_rows(into, FlopLevel.STEP, rows)


def _read_scopes(path: Path, losses: LossLog, into: TablesBuilder) -> None:
    """Read links from a scope to a scope within it, with the MFLOP of the inner one."""
    data = read_json(path).get("data")
    links = data.get("links") if isinstance(data, dict) else None
    if not isinstance(links, list):
        losses.add("objects without links", "data")
        return
    rows, code = list[_Values](), into.strings.code
    for at, link in enumerate(links):
        values = link if isinstance(link, dict) else {}
        parent, name = values.get("source"), values.get("target")
        flop = _number(values.get("value"), Unit.MEGA)
        are_strings = isinstance(parent, str) and isinstance(name, str)
        if are_strings and parent and name and flop is not None:
            rows.append({_WORK: flop, "name": code(str(name)), "parent": code(str(parent))})
        else:
            losses.add("links without a source, a target and a value", f"link {at}")
    _add_rows(into, FlopLevel.SCOPE, rows)


def _read_operators(path: Path, losses: LossLog, into: TablesBuilder) -> None:
    """Read a row for each operator; MindSpore 2.1 writes one for each run, which are averaged."""
    runs: dict[str, tuple[Sequence[str], array[float]]] = {}
    for row in read_rows(path, losses):
        name, *cells = row.cells
        amounts = _amounts(cells)
        if amounts is None and row.line == 1 and not any(map(_is_number, cells)):
            continue  # an optional header
        if len(row.cells) not in _LAYOUTS:
            losses.add("rows with too few or many cells", f"line {row.line}")
        elif amounts is None or not name:
            losses.add(UNREADABLE, f"line {row.line}")
        elif name in runs and len(runs[name][0]) == len(cells):
            runs[name][1].extend(amounts)
        else:
            runs[name] = cells, array("d", amounts)
    code = into.strings.code
    rows = [
        {**values, "name": code(name), "unit": unit}
        for name, run in runs.items()
        for unit, values in _means(*run)
    ]
    _add_rows(into, FlopLevel.OPERATOR, rows)


def _amounts(cells: Sequence[str]) -> list[float] | None:
    """Parse cells, NaN for one that is empty or N/A.

    None if a cell is not a number, is negative or too large, or if all are empty.
    """
    amounts, names = [], [name for _, names in _LAYOUTS.get(len(cells) + 1, ()) for name in names]
    for text, name in zip_longest(cells, names, fillvalue=_WORK):
        is_empty = text in NOT_GIVEN
        if not is_empty and _number(text, _UNITS[name]) is None:
            return None
        amounts.append(math.nan if is_empty else float(text.removesuffix("%")))
        if amounts[-1] > _MOST:
            return None
    return None if all(map(math.isnan, amounts)) else amounts


def _is_number(cell: str) -> bool:
    return _number(cell, Unit.PERCENT) is not None


def _means(first: Sequence[str], amounts: array[float]) -> Iterator[tuple[FlopUnit, _Values]]:
    """Yield the means over the runs of an operator for each unit of the core.

    Values that are equal in all runs stay exact.

    Args:
        first: the cells of the first run after the name.
        amounts: the parsed cells of all runs, one run after the other.
    """
    runs = np.frombuffer(amounts).reshape(-1, len(first))
    place = 0
    for unit, names in _LAYOUTS[len(first) + 1]:
        of_unit = runs[:, place : place + len(names)]
        texts = dict(zip(names, first[place : place + len(names)], strict=True))
        values = {name: _number(text, _UNITS[name]) for name, text in texts.items()}
        whole = of_unit[~np.isnan(of_unit).any(axis=1)]
        if len(whole) > 1:
            values |= _differing_means(dict(zip(names, whole.T, strict=True)))
        if any(value is not None for value in values.values()):
            yield unit, values
        place += len(names)


def _differing_means(columns: Mapping[str, Float64]) -> _Values:
    """Return the means of columns, (n,) each, that differ between the n runs.

    Rates and utilization are weighted by the time of each run: work divided by rate.
    """
    work, rate = columns[_WORK], columns[_RATE]
    milliseconds = np.divide(work, rate, out=np.zeros(len(work)), where=rate > 0)
    total = float(milliseconds.sum())
    means: dict[str, float] = {_WORK: float(work.mean())}
    if total:
        means[_RATE] = float(work.sum()) / total
        if _SHARE in columns:
            means[_SHARE] = float((columns[_SHARE] * milliseconds).sum()) / total
    return {
        name: _number(mean, _UNITS[name])
        for name, mean in means.items()
        if (columns[name] != columns[name][0]).any()
    }
