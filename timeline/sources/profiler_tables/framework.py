"""Operators as the framework describes them: a table, or the raw texts that it is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from timeline.columns.columns import Codes, ColumnTable, Int64, column
from timeline.columns.strings import NO_NAME
from timeline.patterns import compile_late
from timeline.records.not_given import NO_GRAPH, NO_ID
from timeline.records.profiler_tables.operators import FrameworkOperators
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.framework_raw import (
    FRAMEWORK_COLUMNS,
    DataTypes,
    Tensors,
    tensors_of_text,
)
from timeline.sources.common.losses import LossLog
from timeline.sources.profiler_tables.builder import TablesBuilder, table_of_rows
from timeline.sources.profiler_tables.delimited import (
    Cell,
    DelimitedTable,
    Unit,
    read_columns,
    read_rows,
)
from timeline.sources.profiler_tables.file_kinds import TableFile, TableFiles

__all__ = ["read_framework", "read_tasks", "sizes_of_shape"]


class _Described(ColumnTable):
    """A row of framework_raw_N.csv; kernel_type: the type, or the core where op_type tells that."""

    graph: Int64 = column(np.int64, NO_GRAPH)
    stream: Int64 = column(np.int64, NO_ID)
    task: Int64 = column(np.int64, NO_ID)
    name: Codes = column(np.int32)
    op_type: Codes = column(np.int32, NO_NAME)
    kernel_type: Codes = column(np.int32, NO_NAME)
    blocks: Int64 = column(np.int64, NO_ID)
    info: Codes = column(np.int32, NO_NAME)


_FRAMEWORK = DelimitedTable(
    _Described,
    (
        Cell("graph", FRAMEWORK_COLUMNS["graph"], Unit.NUMBER, required=False, least=NO_ID),
        Cell("stream", FRAMEWORK_COLUMNS["stream"], Unit.NUMBER, required=False, least=NO_ID),
        Cell("task", FRAMEWORK_COLUMNS["task"], Unit.NUMBER, required=False, least=NO_ID),
        Cell("name", FRAMEWORK_COLUMNS["name"]),
        Cell("op_type", FRAMEWORK_COLUMNS["op_type"], required=False),
        Cell("kernel_type", FRAMEWORK_COLUMNS["kernel_type"], required=False),
        Cell("blocks", FRAMEWORK_COLUMNS["blocks"], Unit.NUMBER, required=False, least=NO_ID),
        Cell("info", FRAMEWORK_COLUMNS["info"], required=False),
    ),
)
_PAIR = compile_late(r'(?:^|\s)(\w+):("[^"]*"|\S*)')
_TASK_CELLS = 4


@dataclass
class _Operator:
    """An operator of the raw texts."""

    kind: str = ""
    tensors: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)


def read_framework(files: TableFiles, into: TablesBuilder) -> Mapping[int, int]:
    """Read FrameworkOperators: of the table, else of the raw texts of the host.

    Returns:
        The type of each operator by its full name, both codes of the strings of `into`.
    """
    tables = files.get(TableFile.FRAMEWORK, ())
    found = [_of_table(path, into) for path in tables]
    if not sum(map(len, found)):
        found = [_of_texts(files, into)]
    kinds: dict[int, int] = {}
    for rows in found:
        into.add(FrameworkOperators, len(rows), rows.columns())
        kinds.update(zip(rows.name.tolist(), rows.kind.tolist(), strict=True))
    return kinds


def _of_table(path: Path, into: TablesBuilder) -> FrameworkOperators:
    rows = _Described.of(*read_columns(path, _FRAMEWORK, into))
    # Beside a column of types, kernel_type is the core, and blocks are not set (2.1 and 2.2).
    newer = bool((rows.op_type != NO_NAME).any() and (rows.kernel_type != NO_NAME).any())
    tensors = {code: tensors_of_text(into.strings[code]) for code in np.unique(rows.info).tolist()}
    types = _types_of(tensors.values())
    sides = {code: _codes_of(its, types, into) for code, its in tensors.items() if its is not None}
    inputs, outputs = (
        [sides.get(code, (NO_NAME, NO_NAME))[side] for code in rows.info.tolist()]
        for side in (0, 1)
    )
    return FrameworkOperators.of(
        len(rows),
        {
            "graph": rows.graph,
            "stream": rows.stream,
            "task": rows.task,
            "name": rows.name,
            "kind": np.where(rows.op_type == NO_NAME, rows.kernel_type, rows.op_type),
            "blocks": np.full(len(rows), NO_ID) if newer else rows.blocks,
            "inputs": inputs,
            "outputs": outputs,
        },
    )


def _types_of(operators: Iterable[Tensors | None]) -> DataTypes:
    return DataTypes.of_file(
        tensor.get("data_type") for its in operators if its for tensor in its.values()
    )


def _codes_of(tensors: Tensors, types: DataTypes, into: TablesBuilder) -> tuple[int, int]:
    """Inputs and outputs as JSON lists, in order of their numbers."""
    inputs, outputs = (
        [
            {
                "format": tensors[key].get("format") or None,
                "type": types.spell(tensors[key].get("data_type")),
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


def sizes_of_shape(told: object) -> list[int] | None:
    """The sizes of a shape that is a list or a text such as `32,3` or `[32, 3]`.

    None where it is neither, or a size is no number of 64 bits.
    """
    parts: Sequence[object]
    if isinstance(told, str):
        parts = [part for part in told.strip().strip("[]()").split(",") if part.strip()]
    elif isinstance(told, list):
        parts = told
    else:
        return None
    sizes = [whole_number(part) for part in parts]
    known = [size for size in sizes if size is not None]
    return known if len(known) == len(sizes) else None


def _of_texts(files: TableFiles, into: TablesBuilder) -> FrameworkOperators:
    described: dict[str, _Operator] = {}
    for path in files.get(TableFile.GRAPH_DESCRIPTIONS, ()):
        with into.reading(path) as losses:
            described.update(_descriptions(path, losses))
    types = _types_of(one.tensors for one in described.values())
    told = {
        name: (into.strings.code(one.kind), *_codes_of(one.tensors, types, into))
        for name, one in described.items()
    }
    tasks: list[tuple[str, int, int, int]] = []
    for path in files.get(TableFile.TASK_DESCRIPTIONS, ()):
        with into.reading(path) as losses:
            tasks += read_tasks(path, losses)
    run = {name for name, *_ in tasks}
    tasks += [(name, NO_ID, NO_ID, NO_ID) for name in described if name not in run]
    rows = []
    for name, blocks, task, stream in tasks:
        kind, *sides = told.get(name, (NO_NAME, NO_NAME, NO_NAME))
        rows.append((NO_GRAPH, stream, task, into.strings.code(name), kind, blocks, *sides))
    return table_of_rows(FrameworkOperators, rows)


def _descriptions(path: Path, losses: LossLog) -> Iterator[tuple[str, _Operator]]:
    """Operators of lines of `name:value` pairs, in which input_id begins a tensor."""
    for row in read_rows(path, losses, "\0"):
        name, operator, tensor = "", _Operator(), dict[str, Any]()
        for key, quoted in _PAIR.findall(row.cells[0]):
            value = quoted.strip('"')
            side, _, what = key.partition("_")
            if key == "op_name":
                name = value
            elif key == "op_type":
                operator.kind = value
            elif what == "id":
                number = whole_number(value)
                tensor = {}
                operator.tensors[side, NO_ID if number is None else number] = tensor
            else:
                tensor[what] = value
        if name:
            yield name, operator
        else:
            losses.add("lines without op_name", f"line {row.line}")


def read_tasks(path: Path, losses: LossLog) -> Iterator[tuple[str, int, int, int]]:
    """Name, blocks, task and stream of each line."""
    for row in read_rows(path, losses, None):
        numbers = [whole_number(cell) for cell in row.cells[1:_TASK_CELLS]]
        if len(numbers) < _TASK_CELLS - 1 or None in numbers:
            losses.add("lines that are no task", f"line {row.line}")
            continue
        blocks, task, stream = (number or 0 for number in numbers)
        yield row.cells[0], blocks, task, stream
