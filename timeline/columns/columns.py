"""Tables of equally long NumPy columns, and functions that compute columns from columns.

Results are placed in files automatically if memory is short. Columns in files are read-only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from timeline.columns.chunks import ColumnBuilder, chunks, compute_in_chunks
from timeline.columns.constant import MOST_SHARED_BYTES, constant, is_constant
from timeline.columns.spill import spillable
from timeline.errors import RecordError

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_):
        """Return a decorator without effect, since only type checkers use it."""
        return lambda kind: kind


JOINED_ROWS = 1 << 17
"""Number of rows that a TableBuilder holds in small parts before it joins them."""
PACKED_ROWS = 64
"""Tables of at most this many rows are transferred and kept as one piece of bytes."""

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]
"""Positions in a StringPool."""
Bool = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]

_Table = TypeVar("_Table", bound="ColumnTable")
_Number = TypeVar("_Number", bound=np.generic)


def column(dtype: npt.DTypeLike, default: float | None = None, *, moment: bool = False) -> Any:
    """Declare one column; with a default, rows that do not name it hold the default.

    moment: whether it holds points in time, which follow a clock; lengths of time do not.
    """
    metadata = {"dtype": np.dtype(dtype), "default": default, "moment": moment}
    return dataclasses.field(metadata=metadata)


def concat_columns(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Concatenate parts of a column, at least one, which all have its dtype."""
    builder = ColumnBuilder(sum(map(len, parts)), parts[0].dtype)
    for part in parts:
        builder.add(part)
    return builder.build()


def take(values: npt.NDArray[Any], rows: Bool | Rows) -> npt.NDArray[Any]:
    """Copy the values of the rows chosen by a mask (n,) or positions (k,)."""
    if is_constant(values) and len(values):
        count = int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows)
        if count == len(values):
            return values
        return constant(values[0], count, values.dtype)
    if rows.dtype == np.bool_:
        return spillable(values[rows])
    return compute_in_chunks(values.dtype, values.take, rows)


def filter_in_place(values: npt.NDArray[Any], mask: Bool) -> npt.NDArray[Any]:
    """Return the values of the rows where the mask is true, reusing the memory if these are many.

    The passed column must not be used afterwards.
    """
    count = int(np.count_nonzero(mask))
    if not values.flags.writeable or count * 2 < len(values):
        return take(values, mask)
    first = 0
    for chunk in chunks(len(values)):
        left = values[chunk][mask[chunk]]
        values[first : first + len(left)] = left
        first += len(left)
    return values[:count]


def ascending(values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """Return the values (n,) in ascending order.

    Times and positions come in a few sorted runs: a sort that merges runs takes a tenth of the time
    of NumPy's default, which does not use them.
    """
    return np.sort(values, kind="stable")


def sort_rows(*keys: npt.NDArray[Any]) -> Rows:
    """Return the rows in order of the first key, ties in order of the next, and so on.

    keys: (n,) each. Rows that are equal in all keys keep their order.
    """
    order = np.argsort(keys[0], kind="stable")
    if len(keys) > 1:
        # Usually few rows are equal in the first key, which is often nearly sorted: this is
        # several times faster than sorting all rows by each key.
        at = _tied_places(keys[0][order])
        rows = order[at]
        order[at] = rows[np.lexsort([key[rows] for key in reversed(keys)])]
    return spillable(order)


def _tied_places(ordered: npt.NDArray[Any]) -> Rows:
    """Return the positions of sorted values that equal a neighbour."""
    tied = ordered[1:] == ordered[:-1]
    return np.flatnonzero(np.append(tied, False) | np.append(False, tied))


def rows_of_runs(first: Rows, count: Rows) -> Rows:
    """Return the concatenated rows of runs, given the first row and the number of each."""
    before = np.cumsum(count) - count
    rows: Rows = np.arange(int(count.sum())) + np.repeat(first - before, count)
    return rows


class Columnar:
    """Base of frozen dataclasses with columns, whose arrays may be moved to files."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, np.ndarray) and (kept := spillable(value)) is not value:
                object.__setattr__(self, name, kept)


@dataclass_transform(eq_default=False, frozen_default=True, field_specifiers=(column,))
class ColumnTable:
    """A table: every field is a one-dimensional array, and all are equally long.

    Subclasses are frozen dataclasses without being declared so, and compare by identity. They share
    the methods below: generating methods for each of a hundred tables would take a twentieth of the
    time of a small export.

    A short table that was pickled, or packed by `ranks.shared_columns.pack`, holds its columns as
    one bytes object and creates each column on access: an array takes ten times as much memory as
    the few numbers in it.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    _dtypes: ClassVar[dict[str, np.dtype[Any]]]
    """Dtypes of the columns, in their order."""
    _places: ClassVar[dict[str, int]]
    """Offset of each column in a row of a packed table, the widest columns first for alignment."""
    _empty: ClassVar[ColumnTable]
    _packed_rows = -1
    """Number of rows if the table is packed, else -1."""
    _packed = b""

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
        cls._dtypes = {one.name: one.metadata["dtype"] for one in dataclasses.fields(cls)}
        widest_first = sorted(cls._dtypes.items(), key=lambda one: -one[1].itemsize)
        cls._places, place = {}, 0
        for name, dtype in widest_first:
            cls._places[name], place = place, place + dtype.itemsize

    def __init__(self, *in_order: npt.NDArray[Any], **by_name: npt.NDArray[Any]) -> None:
        dtypes = self._dtypes
        columns = by_name
        if in_order:
            columns = {**dict(zip(dtypes, in_order, strict=False)), **by_name}
        if len(in_order) + len(by_name) != len(dtypes) or columns.keys() != dtypes.keys():
            raise TypeError(f"{type(self).__name__} takes its columns, each once: {[*dtypes]}.")
        lengths, attributes = set[int](), vars(self)  # bypasses __setattr__ and is faster
        for name, dtype in dtypes.items():
            values = columns[name]
            if values.dtype is not dtype and values.dtype != dtype:
                raise RecordError(
                    f"{type(self).__name__}.{name}: expected {dtype}, found {values.dtype}."
                )
            lengths.add(len(values))
            attributes[name] = spillable(values)
        if len(lengths) > 1:
            raise RecordError(f"{type(self).__name__}: columns of different lengths {lengths}.")

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        """Return a column of a packed table."""
        rows, dtype = self._packed_rows, type(self)._dtypes.get(name)
        if rows < 0 or dtype is None:
            raise AttributeError(name)
        return np.frombuffer(self._packed, dtype, rows, rows * self._places[name])

    def __reduce__(self) -> tuple[Callable[..., ColumnTable], tuple[Any, ...]]:
        rows = len(self)
        if rows > PACKED_ROWS:
            return _with_columns, (type(self), self.columns())
        packed = self._packed or b"".join(getattr(self, name).tobytes() for name in self._places)
        return _packed_table, (type(self), rows, packed)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return all columns by name, in their order."""
        return {name: getattr(self, name) for name in self._dtypes}

    def __setattr__(self, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __repr__(self) -> str:
        columns = (f"{name}={getattr(self, name)!r}" for name in self._dtypes)
        return f"{type(self).__qualname__}({', '.join(columns)})"

    def __len__(self) -> int:
        if self._packed_rows >= 0:
            return self._packed_rows
        return len(getattr(self, next(iter(self._dtypes))))

    @classmethod
    def of(
        cls: type[_Table], count: int, values: Mapping[str, Any] | None = None, /, **more: Any
    ) -> _Table:
        """Make a table of `count` rows from any sequences; absent columns hold their default.

        values, more: columns by name; a single number fills its column.
        """
        values = {**(values or {}), **more}
        columns: dict[str, npt.NDArray[Any]] = {}
        for field in dataclasses.fields(cls):
            dtype, default = field.metadata["dtype"], field.metadata["default"]
            if field.name in values:
                column = np.asarray(values[field.name], dtype=dtype)
                columns[field.name] = (
                    column if column.ndim else constant(column.item(), count, dtype)
                )
            elif default is None:
                raise RecordError(f"{cls.__name__}: column {field.name} is missing.")
            else:
                columns[field.name] = constant(default, count, dtype)
        return cls(**columns)

    @classmethod
    def empty(cls: type[_Table]) -> _Table:
        """Return the table without rows, one shared instance, since most ranks lack many tables."""
        if "_empty" not in vars(cls):
            cls._empty = cls(**{name: np.empty(0, dtype) for name, dtype in cls._dtypes.items()})
        empty: _Table = vars(cls)["_empty"]
        return empty

    @classmethod
    def concat(cls: type[_Table], parts: Iterable[_Table]) -> _Table:
        """Concatenate the rows of all parts."""
        filled = [part for part in parts if len(part)]
        if not filled:
            return cls.empty()
        if len(filled) == 1:
            return filled[0]
        columns = {name: [getattr(part, name) for part in filled] for name in cls._dtypes}
        return cls(**{name: concat_columns(parts) for name, parts in columns.items()})

    def __getitem__(self: _Table, rows: slice) -> _Table:
        """Return consecutive rows, without a copy."""
        return type(self)(**{name: getattr(self, name)[rows] for name in self._dtypes})

    def take(self: _Table, rows: Bool | Rows) -> _Table:
        """Copy the rows chosen by a mask (n,) or positions (k,)."""
        if rows.dtype == np.bool_ and rows.all():
            return self
        if not len(rows):
            return type(self).empty()
        return type(self)(**{name: take(getattr(self, name), rows) for name in self._dtypes})


def _with_columns(kind: type[_Table], columns: Mapping[str, npt.NDArray[Any]]) -> _Table:
    """Restore a table without checking its columns again."""
    table = object.__new__(kind)
    vars(table).update(columns)
    return table


def _packed_table(kind: Any, rows: int, packed: bytes) -> Any:
    """Return a short table; equal ones are shared if they occur soon after each other."""
    if not rows:
        return kind.empty()
    if len(packed) > MOST_SHARED_BYTES:
        return _unshared_table(kind, rows, packed)
    return _shared_table(kind, rows, packed)


@lru_cache(maxsize=2048)
def _shared_table(kind: Any, rows: int, packed: bytes) -> Any:
    return _unshared_table(kind, rows, packed)


def _unshared_table(kind: type[_Table], rows: int, packed: bytes) -> _Table:
    table = object.__new__(kind)
    object.__setattr__(table, "_packed_rows", rows)
    object.__setattr__(table, "_packed", packed)
    return table


class TableBuilder(Generic[_Table]):
    """Builder that concatenates many small tables of one kind.

    Small tables are joined as they arrive, and the last join frees each column in turn.
    """

    def __init__(self, kind: type[_Table]) -> None:
        self._kind = kind
        self._large: list[_Table] = []
        self._small: list[_Table] = []
        self._small_rows = 0
        self.rows = 0
        """Number of all rows so far."""

    def add(self, part: _Table) -> None:
        """Append the rows of a table."""
        self._small.append(part)
        self._small_rows += len(part)
        self.rows += len(part)
        if self._small_rows >= JOINED_ROWS:
            self._join_small()

    def extend(self, other: TableBuilder[_Table]) -> None:
        """Append the rows of another builder, which is empty afterwards."""
        self._join_small()
        other._join_small()
        self._large += other._large
        self.rows += other.rows
        other._large.clear()
        other.rows = 0

    def _join_small(self) -> None:
        self._large.append(self._kind.concat(self._small))
        self._small.clear()
        self._small_rows = 0

    def build(self, order: Rows | None = None) -> _Table:
        """Return all rows, optionally in another order; the builder is empty afterwards."""
        self._join_small()
        filled = [part for part in self._large if len(part)]
        self._large.clear()
        if not filled:
            return self._kind.empty()
        columns = {name: [getattr(part, name) for part in filled] for name in self._kind._dtypes}
        filled.clear()
        built: dict[str, npt.NDArray[Any]] = {}
        for name in self._kind._dtypes:
            parts = columns.pop(name)
            joined = concat_columns(parts) if len(parts) > 1 else parts[0]
            built[name] = joined if order is None else take(joined, order)
        return self._kind(**built)
