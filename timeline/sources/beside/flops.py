"""Floating-point operations of operators, scopes, steps and the rank."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from timeline.columns.columns import Float64
from timeline.records.not_given import FLOAT_NOT_GIVEN, NO_ID
from timeline.records.profiler_tables import FlopLevel, FlopRows, FlopUnit
from timeline.sources.beside.delimited import NOT_GIVEN, TablesBuilder, Unit, quantity, read_rows
from timeline.sources.beside.file_kinds import NumberedFile, NumberedFiles
from timeline.sources.decoders.json_values import read_json

_WORK, _RATE, _SHARE = "flop", "flop_per_s", "utilization"
_UNITS = {_WORK: Unit.MEGA, _RATE: Unit.GIGA, _SHARE: Unit.PERCENT}
_LAYOUTS: Mapping[int, tuple[tuple[FlopUnit, tuple[str, ...]], ...]] = {
    4: ((FlopUnit.ALL, (_WORK, _RATE, _SHARE)),),
    5: ((FlopUnit.CUBE, (_WORK, _RATE)), (FlopUnit.VECTOR, (_WORK, _RATE))),
    7: ((FlopUnit.CUBE, (_WORK, _RATE, _SHARE)), (FlopUnit.VECTOR, (_WORK, _RATE, _SHARE))),
}
"""What the cells behind the name are, by how many cells a row has. Headers do not tell: MindSpore
1.x calls all of it FLOPs and FLOPS, whatever the unit. Its 2.1 writes no shares."""
_SUMMARIES: Mapping[FlopUnit, Mapping[str, str]] = {
    FlopUnit.ALL: {_WORK: "FLOPs", _RATE: "FLOPS", _SHARE: "FLOPS_Utilization"},
    FlopUnit.CUBE: {_WORK: "cube_FLOPs", _RATE: "cube_FLOPS", _SHARE: "cube_FLOPS_Utilization"},
    FlopUnit.VECTOR: {_WORK: "vec_FLOPs", _RATE: "vec_FLOPS", _SHARE: "vec_FLOPS_Utilization"},
}
_UNREADABLE = "rows with a cell that cannot be read"

_MOST = 9e9
"""GFLOP/s, or MFLOP of an operator: no device does as much, and 64 bits hold it as FLOP."""
_Value = int | float | None
_Values = dict[str, _Value]


def read_flops(files: NumberedFiles, into: TablesBuilder) -> None:
    """Read the rows of FlopRows; files give MFLOP, GFLOP/s and percent."""
    for path in files.get(NumberedFile.FLOPS_SUMMARY, ()):
        _read_summary(path, into)
    for path in files.get(NumberedFile.FLOPS_STEPS, ()):
        _read_steps(path, into)
    for path in files.get(NumberedFile.FLOPS_SCOPE, ()):
        _read_scopes(path, into)
    for path in files.get(NumberedFile.FLOPS, ()):
        _read_operators(path, into)


@dataclass
class _Rows:
    """Rows of one level, as columns."""

    level: FlopLevel
    columns: dict[str, list[int | float]] = field(default_factory=dict)
    count: int = 0

    def add(self, values: _Values, **others: int) -> None:
        """Add a row; what is not given is None or absent."""
        self.count += 1
        for name, absent in ((_WORK, NO_ID), (_RATE, NO_ID), (_SHARE, FLOAT_NOT_GIVEN)):
            value = values.get(name)
            self.columns.setdefault(name, []).append(absent if value is None else value)
        for name, number in others.items():
            self.columns.setdefault(name, []).append(number)

    def fill(self, into: TablesBuilder) -> None:
        """Add the rows to the tables of the rank, if there are any."""
        if self.count:
            into.add(FlopRows.of(self.count, {"level": [self.level] * self.count, **self.columns}))


def _number(value: object, unit: Unit) -> _Value:
    """A value of JSON, or a cell; None where it is no number, or less than nothing."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    number = quantity(str(value).strip().rstrip("%"), unit)
    return None if number is None or number < 0 else number


def _read_summary(path: Path, into: TablesBuilder) -> None:
    """A row for all units, or one each for cube and vector."""
    with into.reading(path) as losses:
        held = read_json(path)
        rows = _Rows(FlopLevel.RANK)
        for unit, keys in _SUMMARIES.items():
            given = {name: key for name, key in keys.items() if held.get(key) is not None}
            values = {name: _number(held[key], _UNITS[name]) for name, key in given.items()}
            damaged = [given[name] for name, value in values.items() if value is None]
            if damaged:
                losses.add("values that are no numbers", damaged[0], len(damaged))
            if any(value is not None for value in values.values()):
                rows.add(values, unit=unit)
        if not rows.count and not losses.rows:
            losses.add("objects without FLOPs", "its beginning")
        rows.fill(into)


def _read_steps(path: Path, into: TablesBuilder) -> None:
    """Lines of a step and its utilization; the file is called JSON and is none."""
    with into.reading(path) as losses:
        rows = _Rows(FlopLevel.STEP)
        for row in read_rows(path, losses):
            step = _number(row.cells[0], Unit.NUMBER)
            share = _number(row.cells[1], Unit.PERCENT) if len(row.cells) == 2 else None
            if isinstance(step, int) and share is not None:
                rows.add({_SHARE: share}, step=step)
            elif row.line > 1 or step is not None:
                losses.add(_UNREADABLE, f"line {row.line}")
        rows.fill(into)


def _read_scopes(path: Path, into: TablesBuilder) -> None:
    """A row for each link from a scope to one inside it: the operations of the inner one."""
    with into.reading(path) as losses:
        held = read_json(path)
        data = held.get("data")
        links = data.get("links") if isinstance(data, dict) else None
        if not isinstance(links, list):
            losses.add("objects without links", "data")
            return
        rows = _Rows(FlopLevel.SCOPE)
        for at, link in enumerate(links):
            found = _link(link)
            if found is None:
                losses.add("links without a source, a target and a value", f"link {at}")
                continue
            parent, name, flop = found
            code = into.strings.code
            rows.add({_WORK: flop}, name=code(name), parent=code(parent))
        rows.fill(into)


def _link(link: Any) -> tuple[str, str, _Value] | None:
    if not isinstance(link, dict):
        return None
    parent, name = link.get("source"), link.get("target")
    flop = _number(link.get("value"), Unit.MEGA)
    if not (isinstance(parent, str) and parent and isinstance(name, str) and name):
        return None
    return None if flop is None else (parent, name, flop)


def _read_operators(path: Path, into: TablesBuilder) -> None:
    """A row for each operator and unit; MindSpore 2.1 writes a line each time an operator runs."""
    with into.reading(path) as losses:
        runs: dict[str, _Runs] = {}
        for row in read_rows(path, losses):
            name, *cells = row.cells
            amounts = _amounts(cells)
            if amounts is None and row.line == 1 and not any(map(_is_number, cells)):
                continue  # the header, which need not be there
            if len(row.cells) not in _LAYOUTS:
                losses.add("rows with too few or many cells", f"line {row.line}")
                continue
            if amounts is None or not name:
                losses.add(_UNREADABLE, f"line {row.line}")
                continue
            known = runs.get(name)
            if known is None or len(known.first) != len(cells):
                runs[name] = _Runs(cells, amounts)
            else:
                known.add(amounts)
        rows = _Rows(FlopLevel.OPERATOR)
        for name, its in runs.items():
            for unit, values in its.means():
                rows.add(values, name=into.strings.code(name), unit=unit)
        rows.fill(into)


def _amounts(cells: Sequence[str]) -> list[float] | None:
    """Cells as numbers, NaN where one is left open.

    None where one is no number, or less than nothing, or all are open.
    """
    open_cells = [cell in NOT_GIVEN for cell in cells]
    if not all(
        is_open or _is_number(cell) for cell, is_open in zip(cells, open_cells, strict=True)
    ):
        return None
    amounts = [
        math.nan if is_open else float(cell.rstrip("%"))
        for cell, is_open in zip(cells, open_cells, strict=True)
    ]
    good = (
        is_open or 0 <= amount <= _MOST for amount, is_open in zip(amounts, open_cells, strict=True)
    )
    return amounts if all(good) and not all(open_cells) else None


def _is_number(cell: str) -> bool:
    return _number(cell, Unit.NUMBER) is not None


class _Runs:
    """The runs of one operator.

    first: the cells of the first run behind its name, which tell it exactly.
    """

    def __init__(self, first: Sequence[str], amounts: Sequence[float]) -> None:
        self.first = first
        self._amounts = array("d", amounts)

    def add(self, amounts: Sequence[float]) -> None:
        """Add a run."""
        self._amounts.extend(amounts)

    def means(self) -> Iterator[tuple[FlopUnit, _Values]]:
        """What a run does in the mean, and all work by all time, for each unit.

        What is the same in all runs is told exactly.
        """
        runs = np.frombuffer(self._amounts).reshape(-1, len(self.first))
        place = 0
        for unit, names in _LAYOUTS[len(self.first) + 1]:
            its = runs[:, place : place + len(names)]
            texts = dict(zip(names, self.first[place : place + len(names)], strict=True))
            values = {name: _number(text, _UNITS[name]) for name, text in texts.items()}
            whole = its[~np.isnan(its).any(axis=1)]
            if len(whole) > 1:
                values |= _differing_means(dict(zip(names, whole.T, strict=True)))
            if any(value is not None for value in values.values()):
                yield unit, values
            place += len(names)


def _differing_means(columns: Mapping[str, Float64]) -> _Values:
    """The means of those columns, (n,) each, that are not the same in all n runs."""
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
