"""Floating-point operations of operators, scopes, steps and the rank."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from timeline.columns.columns import Float64
from timeline.records.not_given import FLOAT_NOT_GIVEN, NO_ID
from timeline.records.profiler_tables import FlopLevel, FlopRows, FlopUnit
from timeline.sources.beside.delimited import (
    NOT_GIVEN,
    UNREADABLE,
    TablesBuilder,
    Unit,
    quantity,
    read_rows,
)
from timeline.sources.beside.file_kinds import NumberedFile, NumberedFiles
from timeline.sources.common.losses import LossLog
from timeline.sources.decoders.json_values import read_json

_WORK, _RATE, _SHARE = "flop", "flop_per_s", "utilization"
_UNITS = {_WORK: Unit.MEGA, _RATE: Unit.GIGA, _SHARE: Unit.PERCENT}
_LAYOUTS: Mapping[int, tuple[tuple[FlopUnit, tuple[str, ...]], ...]] = {
    4: ((FlopUnit.ALL, (_WORK, _RATE, _SHARE)),),
    5: ((FlopUnit.CUBE, (_WORK, _RATE)), (FlopUnit.VECTOR, (_WORK, _RATE))),
    7: ((FlopUnit.CUBE, (_WORK, _RATE, _SHARE)), (FlopUnit.VECTOR, (_WORK, _RATE, _SHARE))),
}
"""What the cells behind the name are, by how many cells a row has. Headers do not say: MindSpore
1.x calls all of it FLOPs and FLOPS, whatever the unit. Its 2.1 writes no shares."""
_SUMMARIES: Mapping[FlopUnit, Mapping[str, str]] = {
    FlopUnit.ALL: {_WORK: "FLOPs", _RATE: "FLOPS", _SHARE: "FLOPS_Utilization"},
    FlopUnit.CUBE: {_WORK: "cube_FLOPs", _RATE: "cube_FLOPS", _SHARE: "cube_FLOPS_Utilization"},
    FlopUnit.VECTOR: {_WORK: "vec_FLOPs", _RATE: "vec_FLOPS", _SHARE: "vec_FLOPS_Utilization"},
}

_MOST = 9e9
"""GFLOP/s, or MFLOP of an operator: no device does as much, and 64 bits hold it as FLOP."""
_Value = int | float | None
_Values = dict[str, _Value]


def read_flops(files: NumberedFiles, into: TablesBuilder) -> None:
    """Read the rows of FlopRows; files give MFLOP, GFLOP/s and percent."""
    readers = {
        NumberedFile.FLOPS_SUMMARY: _read_summary,
        NumberedFile.FLOPS_STEPS: _read_steps,
        NumberedFile.FLOPS_SCOPE: _read_scopes,
        NumberedFile.FLOPS: _read_operators,
    }
    into.read_files(files, readers)


def _add_rows(into: TablesBuilder, level: FlopLevel, rows: Sequence[_Values]) -> None:
    """Add rows of one level with equal other columns; amounts may be None or missing."""
    absent = {_WORK: NO_ID, _RATE: NO_ID, _SHARE: FLOAT_NOT_GIVEN}
    if rows:
        columns = {name: [row.get(name) for row in rows] for name in absent | rows[0]}
        for name, value in absent.items():
            columns[name] = [value if one is None else one for one in columns[name]]
        into.add(FlopRows.of(len(rows), columns | {"level": [level] * len(rows)}))


def _number(value: object, unit: Unit) -> _Value:
    """Return a number of JSON, or of a cell; None for anything else, or a negative one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    number = quantity(str(value).strip().rstrip("%"), unit)
    return None if number is None or number < 0 else number


def _read_summary(path: Path, losses: LossLog, into: TablesBuilder) -> None:
    held, rows = read_json(path), list[_Values]()
    for unit, keys in _SUMMARIES.items():
        given = {name: key for name, key in keys.items() if held.get(key) is not None}
        values = {name: _number(held[key], _UNITS[name]) for name, key in given.items()}
        damaged = [given[name] for name, value in values.items() if value is None]
        if damaged:
            losses.add("values that are no numbers", damaged[0], len(damaged))
        if any(value is not None for value in values.values()):
            rows.append({**values, "unit": unit})
    if not rows and not losses.rows:
        losses.add("objects without FLOPs", "its beginning")
    _add_rows(into, FlopLevel.RANK, rows)


def _read_steps(path: Path, losses: LossLog, into: TablesBuilder) -> None:
    """Read lines of a step and its utilization; the file is called JSON and is not."""
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
    """Read a row for each link from a scope to one inside it, with the inner operations."""
    data = read_json(path).get("data")
    links = data.get("links") if isinstance(data, dict) else None
    if not isinstance(links, list):
        losses.add("objects without links", "data")
        return
    rows, code = list[_Values](), into.strings.code
    for at, link in enumerate(links):
        held = link if isinstance(link, dict) else {}
        parent, name = held.get("source"), held.get("target")
        flop = _number(held.get("value"), Unit.MEGA)
        texts = isinstance(parent, str) and isinstance(name, str)
        if texts and parent and name and flop is not None:
            rows.append({_WORK: flop, "name": code(str(name)), "parent": code(str(parent))})
        else:
            losses.add("links without a source, a target and a value", f"link {at}")
    _add_rows(into, FlopLevel.SCOPE, rows)


def _read_operators(path: Path, losses: LossLog, into: TablesBuilder) -> None:
    """Read a row for each operator and unit; MindSpore 2.1 writes one for each run."""
    runs: dict[str, tuple[Sequence[str], array[float]]] = {}
    for row in read_rows(path, losses):
        name, *cells = row.cells
        amounts = _amounts(cells)
        if amounts is None and row.line == 1 and not any(map(_is_number, cells)):
            continue  # the header, which need not be there
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
    """Return cells as numbers, NaN for one that is left open.

    None if one is not a number, is negative or too large, or if all are open.
    """
    amounts = []
    for text in cells:
        is_open = text in NOT_GIVEN
        if not is_open and not _is_number(text):
            return None
        amounts.append(math.nan if is_open else float(text.rstrip("%")))
        if amounts[-1] > _MOST:
            return None
    return None if all(map(math.isnan, amounts)) else amounts


def _is_number(cell: str) -> bool:
    return _number(cell, Unit.NUMBER) is not None


def _means(first: Sequence[str], amounts: array[float]) -> Iterator[tuple[FlopUnit, _Values]]:
    """Return what a run of an operator does in the mean, and all work by all time, for each unit.

    Values that all runs share are exact.

    Args:
        first: the cells of the first run behind the name.
        amounts: those of all runs, one after the other.
    """
    runs = np.frombuffer(amounts).reshape(-1, len(first))
    place = 0
    for unit, names in _LAYOUTS[len(first) + 1]:
        its = runs[:, place : place + len(names)]
        texts = dict(zip(names, first[place : place + len(names)], strict=True))
        values = {name: _number(text, _UNITS[name]) for name, text in texts.items()}
        whole = its[~np.isnan(its).any(axis=1)]
        if len(whole) > 1:
            values |= _differing_means(dict(zip(names, whole.T, strict=True)))
        if any(value is not None for value in values.values()):
            yield unit, values
        place += len(names)


def _differing_means(columns: Mapping[str, Float64]) -> _Values:
    """Return the means of columns, (n,) each, that differ between the n runs."""
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
