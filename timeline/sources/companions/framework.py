"""MindSpore's descriptions of operators, in a table or in the raw files that it derives from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from timeline.columns.columns import Codes, ColumnTable, Int64, column
from timeline.columns.group_by import group_by
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import NO_GRAPH, NO_ID
from timeline.records.profiler_tables import FrameworkOperators
from timeline.records.tables import Tasks
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.losses import LossLog
from timeline.sources.companions.delimited import (
    UNREADABLE,
    TablesBuilder,
    read_rows,
    table_of_rows,
)
from timeline.sources.companions.file_kinds import NumberedFile, NumberedFiles
from timeline.sources.decoders.csv_blocks import ColumnNames, RowShape, read_blocks

_COLUMNS: ColumnNames = {
    "graph": ("graph_id", "model_id"),
    "stream": ("stream_id",),
    "task": ("task_id",),
    "name": ("full_kernel_name", "full_op_name"),
    "kind": ("op_type", "kernel_type"),
    "blocks": ("block_dim",),
    "info": ("op_info",),
}
"""Column names of framework_raw_N.csv, newest first. In files with both op_type and kernel_type
(MindSpore 2.1 and 2.2), the latter is the core, and blocks are not set."""
Tensors = Mapping[tuple[str, int], Mapping[str, Any]]
"""Format, data_type and shape of tensors, by side (`input` or `output`) and number."""


def tensors_of_text(text: str) -> Tensors | None:
    """Return the tensors in a string; None if it is not a JSON object."""
    try:
        info = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return tensors_of(info) if isinstance(info, dict) else None


def tensors_of(info: Mapping[str, Any]) -> Tensors:
    """Return the tensors of an object with keys such as input_0 and Output_1."""
    tensors: dict[tuple[str, int], Mapping[str, Any]] = {}
    for key, value in info.items():
        side, _, number = key.lower().partition("_")
        place = whole_number(number)
        if place is not None and isinstance(value, dict):
            tensors[side, place] = value
    return tensors


_FIRST, _FIRST_NEWER = 27, 30
_NUMBERED = (
    *("bool", "int", "int8", "int16", "int32", "int64"),
    *("uint", "uint8", "uint16", "uint32", "uint64"),
    *("float", "float16", "float32", "float64"),
)
"""Data types by number: from 27 in the first versions (39 is float16), from 30 since 1.1."""
_PREFIX = "number_type_"
_END = "number_type_end"
"""MindSpore's name of number 42, which used to mark the end of the older numbers."""
_LAST = _FIRST + len(_NUMBERED) - 1
_ALIASES = {"dt_float": "float32", "dt_double": "float64"}
_NO_TYPE = frozenset({"", "unknown", "type_unknown", "undefined", "end"})


@dataclass(frozen=True)
class DataTypes:
    """The numbering of data types in one file, that of newer or of older versions.

    MindSpore's own table of operators translates newer numbers with the names of the older ones, so
    it writes NUMBER_TYPE_UINT8 for int32.
    """

    newer: bool = False

    @classmethod
    def of_file(cls, types: Iterable[object]) -> DataTypes:
        """Infer the numbering of a file: the newer one if a type exceeds the older numbers."""
        return cls(any(_is_beyond(value) for value in types))

    def name(self, value: object) -> str | None:
        """Return the name of a data type, such as float16; None if it is not one.

        >>> DataTypes().name("39"), DataTypes().name("NUMBER_TYPE_FLOAT16")
        ('float16', 'float16')
        >>> DataTypes(newer=True).name("42"), DataTypes(newer=True).name("NUMBER_TYPE_END")
        ('float16', 'float16')
        """
        text = str(value).strip().lower() if isinstance(value, (str, int)) else ""
        number = whole_number(text)
        if self.newer and text.startswith(_PREFIX):
            number = _older_number(text)
        if number is not None:
            at = number - (_FIRST_NEWER if self.newer else _FIRST)
            return _NUMBERED[at] if 0 <= at < len(_NUMBERED) else None
        text = _ALIASES.get(text, text).removeprefix(_PREFIX).removeprefix("dt_")
        return None if text in _NO_TYPE else text


def _is_beyond(value: object) -> bool:
    """Return whether a data type, a number or a name, exceeds the older numbers."""
    text = str(value).strip().lower()
    number = whole_number(text)
    return text == _END if number is None else number > _LAST


def _older_number(text: str) -> int | None:
    """Return the number of a name in the older numbering."""
    if text == _END:
        return _LAST + 1
    name = text.removeprefix(_PREFIX)
    return _FIRST + _NUMBERED.index(name) if name in _NUMBERED else None


class FrameworkRows(ColumnTable):
    """The rows of framework_raw_N.csv; kind is the type, info the JSON of tensors."""

    name: Codes = column(np.int32)
    kind: Codes = column(np.int32, NO_NAME)
    graph: Int64 = column(np.int64, NO_GRAPH)
    stream: Int64 = column(np.int64, NO_ID)
    task: Int64 = column(np.int64, NO_ID)
    blocks: Int64 = column(np.int64, NO_ID)
    info: Codes = column(np.int32, NO_NAME)


def format_tensors(tensors: Tensors) -> tuple[str, str, str]:
    """Format shapes of inputs, shapes of outputs, and types of inputs as in kernel tables."""
    inputs, outputs = (
        [tensors[key] for key in sorted(tensors) if key[0] == side] for side in ("input", "output")
    )
    return (
        ";".join(_shape(tensor.get("shape")) for tensor in inputs),
        ";".join(_shape(tensor.get("shape")) for tensor in outputs),
        ";".join(str(tensor.get("data_type", "")) for tensor in inputs),
    )


def _shape(value: object) -> str:
    if isinstance(value, list):
        return ",".join(str(size) for size in value)
    return "" if value is None else str(value)


def read_framework_rows(path: Path, strings: StringPool, damage: LossLog) -> FrameworkRows:
    """Read framework_raw_N.csv, skipping rows without a name.

    Raises:
        SourceError: the file cannot be read or has no column of full names.
    """
    parts = []
    for block in read_blocks(path, _COLUMNS, ("name",), damage, RowShape.RAGGED):
        names = {key: block.codes(key, strings, str.strip) for key in ("name", "kind", "info")}
        absent = {"stream": NO_ID, "task": NO_ID, "blocks": NO_ID, "graph": NO_GRAPH}
        if {"op_type", "kernel_type"} <= set(block.header):
            del absent["blocks"]
        ids = {key: block.integers(key, default) for key, default in absent.items()}
        for key, default in absent.items():
            damage.add_lines(UNREADABLE, block.lines_without(key, ids[key], default))
        parts.append(FrameworkRows.of(len(block), **names, **ids))
    rows = FrameworkRows.concat(parts)
    return rows.take(rows.name != NO_NAME)


def describe_operators(
    tasks: Tasks, rows: FrameworkRows, texts: StringPool, strings: StringPool
) -> tuple[Tasks, int]:
    """Fill missing columns of tasks from the rows of the operator of their name; count such tasks.

    A value on which the rows of an operator differ is not used. texts, strings: the strings of rows
    and of tasks.
    """
    if not len(rows) or not len(tasks):
        return tasks, 0
    formatted = {
        code: strings.codes(format_tensors(tensors_of_text(texts[code]) or {}))
        for code in np.unique(rows.info).tolist()
    }
    sides = np.array([formatted[code] for code in rows.info.tolist()], np.int32).T
    described = {
        "op_type": (strings.codes(texts[code] for code in rows.kind.tolist()), NO_NAME),
        "graph": (rows.graph, NO_GRAPH),
        "task": (rows.task, NO_ID),
        "blocks": (rows.blocks, NO_ID),
        "input_shapes": (sides[0], NO_NAME),
        "output_shapes": (sides[1], NO_NAME),
        "input_types": (sides[2], NO_NAME),
    }
    names = strings.codes(texts[code] for code in rows.name.tolist())
    groups = group_by(len(rows), [names])
    names = names[groups.first]
    at = np.minimum(np.searchsorted(names, tasks.name), len(names) - 1)
    has = names[at] == tasks.name
    filled = {}
    for field, (values, absent) in described.items():
        least = groups.least(values)
        agreed = np.where(least == groups.greatest(values), least, absent)[at]
        old = getattr(tasks, field)
        filled[field] = np.where(has & (old == absent), agreed, old).astype(old.dtype)
    return replace(tasks, **filled), int(np.count_nonzero(has))


_PAIR = re.compile(r'(?:^|\s)(\w+):("[^"]*"|\S*)')
_TASK_CELLS = 4


def read_framework(files: NumberedFiles, into: TablesBuilder) -> Mapping[int, int]:
    """Read FrameworkOperators from the table, else from raw files, unless the source has read them.

    Returns:
        The type of each operator by its full name, as codes of the strings of `into`.
    """
    if not into.holds(FrameworkOperators):
        into.read_files(files, {NumberedFile.FRAMEWORK: _read_table})
    operators = into.of(FrameworkOperators)
    if not len(operators):
        operators = _read_raw_files(files, into)
        into.add(operators)
    return dict(zip(operators.name.tolist(), operators.kind.tolist(), strict=True))


def _read_table(path: Path, losses: LossLog, into: TablesBuilder) -> None:
    add_operators(read_framework_rows(path, into.strings, losses), into)


def add_operators(rows: FrameworkRows, into: TablesBuilder) -> None:
    """Add operators from rows, whose codes must be those of the strings of `into`."""
    tensors = {code: tensors_of_text(into.strings[code]) for code in np.unique(rows.info).tolist()}
    types = _types_of(tensors.values())
    sides = {code: _codes_of(one, types, into) for code, one in tensors.items() if one is not None}
    inputs, outputs = (
        [sides.get(code, (NO_NAME, NO_NAME))[side] for code in rows.info.tolist()]
        for side in (0, 1)
    )
    columns: dict[str, Any] = {**rows.columns(), "inputs": inputs, "outputs": outputs}
    del columns["info"]
    into.add(FrameworkOperators.of(len(rows), columns))


def _types_of(operators: Iterable[Tensors | None]) -> DataTypes:
    return DataTypes.of_file(
        tensor.get("data_type") for tensors in operators if tensors for tensor in tensors.values()
    )


def _codes_of(tensors: Tensors, types: DataTypes, into: TablesBuilder) -> tuple[int, int]:
    """Return codes of the JSON lists of inputs and outputs, in order of their numbers."""
    inputs, outputs = (
        [
            {
                "format": tensors[key].get("format") or None,
                "type": types.name(tensors[key].get("data_type")),
                "shape": sizes_of_shape(tensors[key].get("shape")),
            }
            for key in sorted(tensors)
            if key[0] == side
        ]
        for side in ("input", "output")
    )
    return _json_code(inputs, into), _json_code(outputs, into)


def _json_code(tensors: list[dict[str, Any]], into: TablesBuilder) -> int:
    return into.strings.code(orjson.dumps(tensors).decode())


def sizes_of_shape(value: object) -> list[int] | None:
    """Return the sizes of a shape that is a list or a string such as `32,3` or `[32, 3]`.

    None if it is neither, or a size is not a number of 64 bits.
    """
    parts: Sequence[object]
    if isinstance(value, str):
        parts = [part for part in value.strip().strip("[]()").split(",") if part.strip()]
    elif isinstance(value, list):
        parts = value
    else:
        return None
    sizes = [whole_number(part) for part in parts]
    valid = [size for size in sizes if size is not None]
    return valid if len(valid) == len(sizes) else None


def _read_raw_files(files: NumberedFiles, into: TablesBuilder) -> FrameworkOperators:
    """Read operators with tasks, and described ones without, from the host's raw files."""
    described: dict[str, tuple[str, Tensors]] = {}
    for path in files.get(NumberedFile.GRAPH_DESCRIPTIONS, ()):
        with into.reading(path) as losses:
            described.update(read_descriptions(path, losses))
    types = _types_of(tensors for _, tensors in described.values())
    codes = {
        name: (into.strings.code(kind), *_codes_of(tensors, types, into))
        for name, (kind, tensors) in described.items()
    }
    tasks: list[tuple[str, int, int, int]] = []
    for path in files.get(NumberedFile.TASK_DESCRIPTIONS, ()):
        with into.reading(path) as losses:
            tasks += read_tasks(path, losses)
    with_tasks = {name for name, *_ in tasks}
    tasks += [(name, NO_ID, NO_ID, NO_ID) for name in described if name not in with_tasks]
    rows = []
    for name, blocks, task, stream in tasks:
        kind, *sides = codes.get(name, (NO_NAME, NO_NAME, NO_NAME))
        rows.append((NO_GRAPH, stream, task, into.strings.code(name), kind, blocks, *sides))
    return table_of_rows(FrameworkOperators, rows)


def read_descriptions(path: Path, losses: LossLog) -> Iterator[tuple[str, tuple[str, Tensors]]]:
    """Yield name, type and tensors from lines of `name:value` pairs.

    The pairs after `input_id` or `output_id` describe that tensor.
    """
    for row in read_rows(path, losses, "\0"):
        name, kind, tensor = "", "", dict[str, Any]()
        tensors: dict[tuple[str, int], dict[str, Any]] = {}
        for key, quoted in _PAIR.findall(row.cells[0]):
            value = quoted.strip('"')
            side, _, attribute = key.partition("_")
            if key == "op_name":
                name = value
            elif key == "op_type":
                kind = value
            elif attribute == "id":
                number = whole_number(value)
                tensor = tensors[side, NO_ID if number is None else number] = {}
            else:
                tensor[attribute] = value
        if name:
            yield name, (kind, tensors)
        else:
            losses.add("lines without op_name", f"line {row.line}")


def read_tasks(path: Path, losses: LossLog) -> Iterator[tuple[str, int, int, int]]:
    """Yield name, blocks, task and stream of each line; count other lines as damage."""
    for row in read_rows(path, losses, None):
        numbers = [whole_number(cell) for cell in row.cells[1:_TASK_CELLS]]
        if len(numbers) < _TASK_CELLS - 1 or None in numbers:
            losses.add("lines that are not a task", f"line {row.line}")
            continue
        blocks, task, stream = (number or 0 for number in numbers)
        yield row.cells[0], blocks, task, stream
