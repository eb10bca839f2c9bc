"""Makes tables of records from rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from timeline.columns.columns import ColumnTable
from timeline.columns.strings import StringPool

_Table = TypeVar("_Table", bound=ColumnTable)


def table_of(
    kind: type[_Table],
    rows: Iterable[Mapping[str, Any] | NamedTuple],
    strings: StringPool | None = None,
    /,
    **same: Any,
) -> _Table:
    """A table of rows that name equal columns; strings get their codes in the pool.

    same: values of further columns, each of all rows.
    """
    made = [{**(row if isinstance(row, Mapping) else row._asdict()), **same} for row in rows]
    if not made:
        return kind.empty()
    columns: dict[str, Any] = {name: [row[name] for row in made] for name in made[0]}
    for name, values in columns.items():
        if strings is not None and isinstance(values[0], str):
            columns[name] = strings.codes(values)
    return kind.of(len(made), columns)
