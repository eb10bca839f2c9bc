"""Turns a frozen dataclass of equally long NumPy arrays into a table that can be cut and joined."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from timeline.columns.constant import constant, is_constant
from timeline.columns.spill import by_parts, kept, parts_of
from timeline.errors import RecordError

__all__ = [
    "Bool",
    "Codes",
    "Columns",
    "Float64",
    "Int64",
    "Pile",
    "Rows",
    "column",
    "compacted",
    "picked",
    "rows_of_runs",
]

PILED_ROWS = 1 << 17
"""Rows that a pile holds in small parts."""

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]
"""Positions in a StringPool."""
Bool = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]

_Table = TypeVar("_Table", bound="Columns")


def column(dtype: npt.DTypeLike, default: float | None = None) -> Any:
    """Declare one column; with a default, rows that do not name it hold the default."""
    metadata = {"dtype": np.dtype(dtype), "default": default}
    return dataclasses.field(metadata=metadata)


def _joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """All rows of all parts of one column."""
    first = parts[0][:1].tobytes()
    if all(is_constant(part) and part[:1].tobytes() == first for part in parts):
        return constant(parts[0][0], sum(len(part) for part in parts), parts[0].dtype)
    return kept(np.concatenate(parts))


def picked(values: npt.NDArray[Any], rows: Bool | Rows) -> npt.NDArray[Any]:
    """The values of the rows chosen by a mask or by positions."""
    if is_constant(values) and len(values):
        count = int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows)
        return constant(values[0], count, values.dtype)
    if rows.dtype == np.bool_:
        return kept(values[rows])
    return by_parts(len(rows), values.dtype, lambda part: values[rows[part]])


def compacted(values: npt.NDArray[Any], stays: Bool) -> npt.NDArray[Any]:
    """The values of the rows that stay, in the memory that held all rows if most of them do.

    So the column must not be used any more.
    """
    count = int(np.count_nonzero(stays))
    if not values.flags.writeable or count * 2 < len(values):
        return picked(values, stays)
    first = 0
    for part in parts_of(len(values)):
        own = values[part][stays[part]]
        values[first : first + len(own)] = own
        first += len(own)
    return values[:count]


def rows_of_runs(first: Rows, count: Rows) -> Rows:
    """The rows of runs, of which the first row and the number are given, one run after another."""
    before = np.cumsum(count) - count
    rows: Rows = np.arange(int(count.sum())) + np.repeat(first - before, count)
    return rows


@dataclasses.dataclass(frozen=True)
class Columns:
    """A table: every field is a one-dimensional array, and all are equally long."""

    def __post_init__(self) -> None:
        lengths = set()
        for field in dataclasses.fields(self):
            values = getattr(self, field.name)
            if values.dtype != field.metadata["dtype"]:
                raise RecordError(
                    f"{type(self).__name__}.{field.name}: expected {field.metadata['dtype']}, "
                    f"found {values.dtype}."
                )
            lengths.add(len(values))
            object.__setattr__(self, field.name, kept(values))
        if len(lengths) > 1:
            raise RecordError(f"{type(self).__name__}: columns of different lengths {lengths}.")

    def __len__(self) -> int:
        return len(getattr(self, dataclasses.fields(self)[0].name))

    @classmethod
    def of(cls: type[_Table], count: int, values: Mapping[str, Any]) -> _Table:
        """Make a table of `count` rows from any sequences; absent columns hold their default."""
        made: dict[str, npt.NDArray[Any]] = {}
        for field in dataclasses.fields(cls):
            dtype, default = field.metadata["dtype"], field.metadata["default"]
            if field.name in values:
                made[field.name] = np.asarray(values[field.name], dtype=dtype)
            elif default is None:
                raise RecordError(f"{cls.__name__}: column {field.name} is missing.")
            else:
                made[field.name] = constant(default, count, dtype)
        return cls(**made)

    @classmethod
    def empty(cls: type[_Table]) -> _Table:
        """A table without rows."""
        fields = dataclasses.fields(cls)
        return cls(**{field.name: np.empty(0, field.metadata["dtype"]) for field in fields})

    @classmethod
    def concat(cls: type[_Table], parts: Iterable[_Table]) -> _Table:
        """All rows of all parts, in order."""
        held = [part for part in parts if len(part)]
        if not held:
            return cls.empty()
        if len(held) == 1:
            return held[0]
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: _joined([getattr(part, name) for part in held]) for name in names})

    def part(self: _Table, rows: slice) -> _Table:
        """Some rows that follow each other, without a copy."""
        names = [field.name for field in dataclasses.fields(self)]
        return type(self)(**{name: getattr(self, name)[rows] for name in names})

    def take(self: _Table, rows: Bool | Rows) -> _Table:
        """The rows chosen by a mask or by positions."""
        if rows.dtype == np.bool_ and rows.all():
            return self
        names = [field.name for field in dataclasses.fields(self)]
        return type(self)(**{name: picked(getattr(self, name), rows) for name in names})


class Pile(Generic[_Table]):
    """A table that grows by small parts, which are joined as they come.

    So the memory of the parts is used again, and the last join frees each column as it goes.
    """

    def __init__(self, kind: type[_Table]) -> None:
        self._kind = kind
        self._large: list[_Table] = []
        self._small: list[_Table] = []
        self._small_rows = 0
        self.rows = 0
        """All rows so far."""

    def add(self, part: _Table) -> None:
        """Put a part on top."""
        self._small.append(part)
        self._small_rows += len(part)
        self.rows += len(part)
        if self._small_rows >= PILED_ROWS:
            self._join_small()

    def _join_small(self) -> None:
        self._large.append(self._kind.concat(self._small))
        self._small.clear()
        self._small_rows = 0

    def joined(self) -> _Table:
        """The whole table; the pile is empty then."""
        self._join_small()
        held = [part for part in self._large if len(part)]
        self._large.clear()
        if len(held) < 2:
            return held[0] if held else self._kind.empty()
        names = [field.name for field in dataclasses.fields(self._kind)]
        columns = {name: [getattr(part, name) for part in held] for name in names}
        held.clear()
        return self._kind(**{name: _joined(columns.pop(name)) for name in names})
