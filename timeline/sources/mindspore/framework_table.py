"""What framework_raw_N.csv knows of each operator: type, graph, task and shapes."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path

import numpy as np

from timeline.columns.columns import Codes, ColumnTable, Int64, column
from timeline.columns.strings import NO_NAME, StringPool
from timeline.frozen import dataclass
from timeline.records.not_given import NO_GRAPH, NO_ID
from timeline.records.tables import Tasks
from timeline.sources.common.framework_raw import FRAMEWORK_COLUMNS, Tensors, tensors_of_text
from timeline.sources.common.losses import LossLog
from timeline.sources.decoders.csv_blocks import Block, ColumnNames, RowShape, read_blocks

__all__ = ["FrameworkTable", "OperatorShapes", "describe_operators", "read_framework_table"]

_COLUMNS: ColumnNames = {
    **{name: FRAMEWORK_COLUMNS[name] for name in ("name", "graph", "task", "blocks")},
    "type": FRAMEWORK_COLUMNS["op_type"] + FRAMEWORK_COLUMNS["kernel_type"],
    "shapes": FRAMEWORK_COLUMNS["info"],
}


class FrameworkTable(ColumnTable):
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
    def of(cls, tensors: Tensors) -> OperatorShapes:
        """Those of an operator's tensors, in order of their numbers."""
        inputs, outputs = (
            [tensors[key] for key in sorted(tensors) if key[0] == side]
            for side in ("input", "output")
        )
        return cls(
            ";".join(_shape(tensor.get("shape")) for tensor in inputs),
            ";".join(_shape(tensor.get("shape")) for tensor in outputs),
            ";".join(str(tensor.get("data_type", "")) for tensor in inputs),
        )

    @classmethod
    def of_text(cls, text: str) -> OperatorShapes:
        """The shapes and types that a JSON text tells; nothing where it is no JSON object."""
        return cls.of(tensors_of_text(text) or {})


def _shape(value: object) -> str:
    if isinstance(value, list):
        return ",".join(str(size) for size in value)
    return "" if value is None else str(value)


def read_framework_table(path: Path, strings: StringPool, damage: LossLog) -> FrameworkTable:
    """Read the operators.

    kernel_type is the operator's type, except where a column op_type beside it is (MindSpore 2.1
    and 2.2, which also leave block_dim unset).

    Raises:
        SourceError: the file cannot be read or has no column of full names.
    """
    blocks = read_blocks(path, _COLUMNS, ("name",), damage, RowShape.ENDED)
    rows = FrameworkTable.concat(_of_block(block, strings) for block in blocks)
    given = {
        field.name: getattr(rows, field.name)
        for field in dataclasses.fields(rows)
        if field.name != "name"
    }
    return _agreed(rows.name, given)


def _of_block(block: Block, strings: StringPool) -> FrameworkTable:
    newer = "op_type" in block.header
    shapes = _Shapes()
    return FrameworkTable.of(
        len(block),
        {
            "name": block.codes("name", strings, str.strip),
            "op_type": block.codes("type", strings, str.strip),
            "graph": block.integers("graph", NO_GRAPH),
            "task": block.integers("task", NO_ID),
            "blocks": block.integers("none" if newer else "blocks", NO_ID),
            "input_shapes": block.codes("shapes", strings, lambda text: shapes[text].inputs),
            "output_shapes": block.codes("shapes", strings, lambda text: shapes[text].outputs),
            "input_types": block.codes("shapes", strings, lambda text: shapes[text].types),
        },
    )


class _Shapes(dict[str, OperatorShapes]):
    """Shapes by their JSON, each decoded once."""

    def __missing__(self, text: str) -> OperatorShapes:
        made = self[text] = OperatorShapes.of_text(text)
        return made


def _agreed(names: Codes, given: dict[str, np.ndarray]) -> FrameworkTable:
    """One row per name; where its rows differ, the default of the column."""
    order = np.argsort(names, kind="stable")
    distinct, first = np.unique(names[order], return_index=True)
    values: dict[str, np.ndarray] = {"name": distinct}
    defaults = {"graph": NO_GRAPH, "task": NO_ID, "blocks": NO_ID}
    for key, column_values in given.items():
        agreed = column_values[order]
        if len(agreed):
            least, most = np.minimum.reduceat(agreed, first), np.maximum.reduceat(agreed, first)
            agreed = np.where(least == most, least, defaults.get(key, NO_NAME))
        values[key] = agreed
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
        known, values = getattr(tasks, name), getattr(table, name)
        made: np.ndarray = np.where(has & (known == absent), values[at], known)
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
