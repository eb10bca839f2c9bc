"""Checks that records keep what they promise."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from timeline.columns.columns import ColumnTable
from timeline.records.not_given import NO_TIME
from timeline.records.tables import FlowEnd, Records, Spans

TABLES = ("tasks", "planes", "ops", "steps", "parts", "host", "series", "samples", "flows")
FLOW_TABLES = {
    FlowEnd.HOST: "host",
    FlowEnd.TASK: "tasks",
    FlowEnd.OP: "ops",
    FlowEnd.PLANE: "planes",
}


class BrokenPromise(Exception):  # noqa: N818 - it is no error of the profile
    """Something that always holds does not."""


_COLUMNS: dict[str, tuple[tuple[str, np.dtype], ...]] = {}


def _columns(table: ColumnTable) -> tuple[tuple[str, np.dtype], ...]:
    """Names and types of a table's columns; asking for them each time takes longer than reading."""
    kind = type(table).__name__
    if kind not in _COLUMNS:
        _COLUMNS[kind] = tuple((field.name, field.metadata["dtype"]) for field in fields(table))
    return _COLUMNS[kind]


def check_records(records: Records) -> None:
    """Columns are equally long and of their type, codes and rows exist, counts are counts."""
    for name in TABLES:
        _check_table(name, getattr(records, name), len(records.strings))
    small = records.profiler_tables
    for table in small.tables.values():
        _check_table(type(table).__name__, table, len(small.strings))
    _check_rows("samples.series", records.samples.series, len(records.series))
    for end in ("source", "target"):
        kinds, rows = getattr(records.flows, f"{end}_kind"), getattr(records.flows, f"{end}_row")
        if len(kinds) and not np.isin(kinds, [int(kind) for kind in FlowEnd]).all():
            raise BrokenPromise(f"flows.{end}_kind names no table")
        for kind, name in FLOW_TABLES.items() if len(kinds) else ():
            length = len(getattr(records, name))
            _check_rows(f"flows.{end}_row of {name}", rows[kinds == kind], length)
    for omission in records.omissions:
        if type(omission.rows) is not int or omission.rows < 0:
            raise BrokenPromise(f"an omission of {omission.rows!r} rows: {omission.reason}")
    for warning in records.warnings:
        if not isinstance(warning, str):
            raise BrokenPromise(f"a warning is {warning!r}")


def _check_table(name: str, table: ColumnTable, strings: int) -> None:
    shape = (len(table),)
    for column, dtype in _columns(table):
        values = getattr(table, column)
        if values.shape != shape:
            raise BrokenPromise(f"{name}.{column} has another length than its table")
        if values.dtype != dtype or (column.endswith("_ns") and dtype != np.int64):
            raise BrokenPromise(f"{name}.{column} is {values.dtype}")
        if dtype == np.int32:
            _check_rows(f"{name}.{column}", values, strings)


def _check_rows(name: str, rows: np.ndarray, length: int) -> None:
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < length:
        raise BrokenPromise(f"{name} points outside its table")


def check_valid(records: Records) -> None:
    """Intervals have both ends, in order; samples are finite."""
    check_records(records)
    for name in TABLES:
        table = getattr(records, name)
        if isinstance(table, Spans) and len(table):
            if (table.start_ns == NO_TIME).any() or (table.end_ns == NO_TIME).any():
                raise BrokenPromise(f"{name} keeps a row without a time")
            if (table.end_ns < table.start_ns).any():
                raise BrokenPromise(f"{name} keeps a row that ends before it starts")
    if not np.isfinite(records.samples.value).all():
        raise BrokenPromise("samples keeps a value that is not finite")
