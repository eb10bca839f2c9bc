"""Turns framework_raw_N.csv into what is known of each operator: type, graph, task and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from timeline.errors import SourceError
from timeline.records.columns import Codes, Columns, Int64, column
from timeline.records.strings import NO_NAME, StringPool
from timeline.records.tables import NO_GRAPH, NO_ID, Tasks
from timeline.sources.text_rows import TextRows, read_text_rows

__all__ = ["FrameworkTable", "OperatorShapes", "describe_operators", "read_framework_table"]

_NAME = ("full_kernel_name", "full_op_name")
_GRAPH = ("graph_id", "model_id")


@dataclass(frozen=True)
class FrameworkTable(Columns):
    """One row per operator, in order of its name's code.

    A value on which the rows of an operator do not agree is not given.
    """

    name: Codes = column(np.int32)
    op_type: Codes = column(np.int32, NO_NAME)
    graph: Int64 = column(np.int64, NO_GRAPH)
    task: Int64 = column(np.int64, NO_ID)
    blocks: Int64 = column(np.int64, NO_ID)
    input_shapes: Codes = column(np.int32, NO_NAME)
    output_shapes: Codes = column(np.int32, NO_NAME)
    input_types: Codes = column(np.int32, NO_NAME)


@dataclass(frozen=True)
class OperatorShapes:
    """Shapes and types of the inputs and outputs of an operator, as kernel tables spell them."""

    inputs: str = ""
    outputs: str = ""
    types: str = ""

    @classmethod
    def of(cls, info: dict[str, Any]) -> OperatorShapes:
        """Take them out of an object with keys such as input_0 and Output_1."""
        inputs, outputs = _tensors(info, "input_"), _tensors(info, "output_")
        return cls(
            ";".join(_shape(tensor.get("shape")) for tensor in inputs),
            ";".join(_shape(tensor.get("shape")) for tensor in outputs),
            ";".join(str(tensor.get("data_type", "")) for tensor in inputs),
        )

    @classmethod
    def of_text(cls, text: str) -> OperatorShapes:
        """The same of JSON; nothing where it is none."""
        try:
            info = orjson.loads(text)
        except orjson.JSONDecodeError:
            return cls()
        return cls.of(info) if isinstance(info, dict) else cls()


def _tensors(info: dict[str, Any], prefix: str) -> list[dict[str, Any]]:
    found = {}
    for key, value in info.items():
        number = key.lower().removeprefix(prefix)
        if number != key.lower() and number.isdigit() and isinstance(value, dict):
            found[int(number)] = value
    return [found[number] for number in sorted(found)]


def _shape(value: object) -> str:
    if isinstance(value, list):
        return ",".join(str(size) for size in value)
    return "" if value is None else str(value)


def read_framework_table(path: Path, strings: StringPool) -> FrameworkTable:
    """Read the operators.

    kernel_type is the operator's type, except where a column op_type beside it is (MindSpore 2.1
    and 2.2, which also leave block_dim unset).

    Raises:
        SourceError: the file cannot be read or has no column of full names.
    """
    rows = read_text_rows(path)
    if rows.place(*_NAME) is None:
        raise SourceError(
            path, f"has no column {' or '.join(_NAME)}; found {', '.join(rows.header)}."
        )
    newer = "op_type" in rows.header
    names = strings.codes(rows.column(*_NAME))
    shapes = _shapes(rows)
    given: dict[str, np.ndarray] = {
        "op_type": strings.codes(rows.column("op_type", "kernel_type")),
        "graph": _ids(rows.column(*_GRAPH), NO_GRAPH),
        "task": _ids(rows.column("task_id"), NO_ID),
        "blocks": _ids([] if newer else rows.column("block_dim"), NO_ID, len(names)),
        "input_shapes": strings.codes(shape.inputs for shape in shapes),
        "output_shapes": strings.codes(shape.outputs for shape in shapes),
        "input_types": strings.codes(shape.types for shape in shapes),
    }
    return _agreed(names, given)


def _shapes(rows: TextRows) -> list[OperatorShapes]:
    texts = rows.column("op_info")
    known = {text: OperatorShapes.of_text(text) for text in set(texts)}
    return [known[text] for text in texts]


def _ids(texts: Sequence[str], absent: int, count: int | None = None) -> Int64:
    if not texts:
        return np.full(count or 0, absent, np.int64)
    return np.array([_id(text, absent) for text in texts], np.int64)


def _id(text: str, absent: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else absent


def _agreed(names: Codes, given: dict[str, np.ndarray]) -> FrameworkTable:
    """One row per name; where its rows differ, the default of the column."""
    order = np.argsort(names, kind="stable")
    distinct, first = np.unique(names[order], return_index=True)
    values: dict[str, np.ndarray] = {"name": distinct}
    defaults = {"graph": NO_GRAPH, "task": NO_ID, "blocks": NO_ID}
    for key, column_values in given.items():
        own = column_values[order]
        if len(own):
            least, most = np.minimum.reduceat(own, first), np.maximum.reduceat(own, first)
            own = np.where(least == most, least, defaults.get(key, NO_NAME))
        values[key] = own
    table = FrameworkTable.of(len(distinct), values)
    return table.take(table.name != NO_NAME)


def describe_operators(tasks: Tasks, table: FrameworkTable) -> tuple[Tasks, int]:
    """Give tasks what the table says of the operator of their name; also the tasks that have one.

    What a task already has stays.
    """
    if not len(table) or not len(tasks):
        return tasks, 0
    at = np.minimum(np.searchsorted(table.name, tasks.name), len(table) - 1)
    has = table.name[at] == tasks.name

    def filled(name: str, absent: int) -> np.ndarray:
        own, values = getattr(tasks, name), getattr(table, name)
        made: np.ndarray = np.where(has & (own == absent), values[at], own)
        return made

    described = replace(
        tasks,
        graph=filled("graph", NO_GRAPH),
        **{name: filled(name, NO_ID) for name in ("task", "blocks")},
        **{
            name: filled(name, NO_NAME)
            for name in ("op_type", "input_shapes", "output_shapes", "input_types")
        },
    )
    return described, int(np.count_nonzero(has))
