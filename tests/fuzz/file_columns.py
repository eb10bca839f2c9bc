"""The columns, keys and fields of any file of a profile, each of which can be set to a value."""

from __future__ import annotations

import copy
import csv
import functools
import io
import json
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from tests.fuzz.extremes import LONG_CHARACTERS, MANY_DIGITS, Extreme, Special

csv.field_size_limit(1 << 30)  # a name of 1 MB is changed once more

MOST_ROWS_OF_LONG = 4
"""So many names of a megabyte are written; with more rows each is shorter."""
MOST_TOKENS = 64
MOST_BINARY_BYTES = 256
"""Records of an unknown size are swept from the start of the file, so far."""
RECORD_BYTES = {
    "hwts": 64,
    "stars_soc": 64,
    "ts_track": 40,
    "training_trace": 20,
    "aicpu": 128,
    "ffts": 128,
}
"""Sizes of packed records, by what file names hold."""
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_WHOLE_NUMBER = re.compile(r"(\s*-?)(\d{1,18})((?:\.\d*)?\s*)")
_Set = Callable[[bytes, Extreme, bool], "bytes | None"]


@dataclass(frozen=True)
class Column:
    """One column of a file; `change` gives the file with it set in all rows or one."""

    name: str
    change: _Set
    """Of the content, a value, and whether one row alone; None where the file cannot hold it."""


def unnumbered_name(path: Path) -> str:
    """The name of a file with # for each number, so that it stays the same from rank to rank."""
    return re.sub("[0-9]+", "#", path.name)


def columns_of(path: Path) -> list[Column]:
    """All columns of a file, by what is in it; none of an empty one."""
    content = path.read_bytes()
    if not content.strip() or path.name.endswith((".done", "-shm", "-wal")):
        return []
    if content.startswith(b"SQLite format 3"):
        return list(_database_columns(content))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return list(_binary_columns(path.name, content))
    if "\0" in text:
        return list(_binary_columns(path.name, content))
    if text.lstrip().startswith(("{", "[")):
        try:
            return list(_json_columns(json.loads(text)))
        except ValueError:
            return list(_token_columns(content))
    first = text.partition("\n")[0]
    separator = max(",\t ", key=first.count)
    if first.count(separator) and (path.suffix == ".csv" or separator == ","):
        return list(_table_columns(text, separator))
    return list(_token_columns(content))


def _long(rows: int) -> str:
    return "n" * (LONG_CHARACTERS * MOST_ROWS_OF_LONG // max(rows, MOST_ROWS_OF_LONG))


def _other_text(before: str) -> str:
    """Another value of the same kind, with as many digits behind the point."""
    number = _WHOLE_NUMBER.fullmatch(before)
    if not number:
        return f"{before}x"
    sign, whole, rest = number.groups()
    return f"{sign}{int(whole) + 1}{rest}"


def _middle(count: int) -> int:
    return count // 2


# -- JSON ----------------------------------------------------------------------------------------

_Spot = tuple[Any, Any]
"""A container, and the key or index of one value in it."""


def _json_columns(document: Any) -> Iterator[Column]:
    for name in dict.fromkeys(name for name, _ in _spots(document)):
        yield Column(name, functools.partial(_set_in_json, name))


def _spots(value: Any, way: str = "") -> Iterator[tuple[str, _Spot]]:
    """Each value below a document, by the names of keys on the way; events also by their phase."""
    if isinstance(value, dict):
        if "ph" in value:
            way += f"{value['ph']}:{value.get('cat') or ''}"
            if value["ph"] == "M":
                way += str(value.get("name"))
        for key, one in value.items():
            name = f"{way}/{re.sub(r'[0-9]+', '#', key)[:60]}"
            yield name, (value, key)
            yield from _spots(one, name)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            if isinstance(one, (dict, list)):
                yield from _spots(one, f"{way}[]")
            else:
                yield f"{way}[]", (value, index)


def _set_in_json(name: str, content: bytes, extreme: Extreme, one: bool) -> bytes | None:
    document = json.loads(content)
    spots = [spot for found, spot in _spots(document) if found == name]
    chosen = [spots[_middle(len(spots))]] if one else spots
    for place, key in reversed(chosen):
        if extreme.value is Special.ABSENT:
            del place[key]
        elif extreme.value is Special.TWICE:
            if isinstance(place, list):
                place.insert(key, copy.deepcopy(place[key]))
            elif isinstance(place[key], list):
                place[key] = place[key] * 2
            else:
                place[f"{key} "] = place[key]
        else:
            place[key] = _as_json(extreme, place[key], len(chosen))
    return json.dumps(document).encode()


def _as_json(extreme: Extreme, before: Any, rows: int) -> Any:
    if extreme.value is Special.LONG:
        return _long(rows)
    if extreme.value is Special.DIGITS:
        return (before if isinstance(before, str) else "") + MANY_DIGITS
    if extreme.value is Special.OTHER:
        return _other_value(before)
    is_number = isinstance(extreme.value, (int, float))
    return str(extreme.value) if is_number and isinstance(before, str) else extreme.value


def _other_value(before: Any) -> Any:
    if isinstance(before, bool):
        return not before
    if isinstance(before, (int, float)):
        return before + 1
    if isinstance(before, str):
        return _other_text(before)
    return None if before else "x"


# -- tables --------------------------------------------------------------------------------------


def _table_columns(text: str, separator: str) -> Iterator[Column]:
    header = next(csv.reader(io.StringIO(text), delimiter=separator))
    for index, name in enumerate(header):
        change = functools.partial(_set_in_table, index, separator)
        yield Column(name.strip() or f"column {index}", change)
    yield Column("header", functools.partial(_set_header, separator))


def _set_in_table(
    index: int, separator: str, content: bytes, extreme: Extreme, one: bool
) -> bytes | None:
    header, *rows = csv.reader(io.StringIO(content.decode("utf-8-sig")), delimiter=separator)
    if not rows:
        return None
    chosen = [rows[_middle(len(rows))]] if one else rows
    for row in chosen:
        if index >= len(row):
            continue
        if extreme.value is Special.ABSENT:
            del row[index]
        elif extreme.value is not Special.TWICE:
            row[index] = _as_text(extreme, len(chosen), row[index])
    if extreme.value is Special.ABSENT and not one:
        del header[index]
    if extreme.value is Special.TWICE:
        rows = [*rows, *(list(row) for row in chosen)]
        if not one:  # the column comes twice as well
            for row in (header, *rows):
                row.extend(row[index : index + 1])
    return _table_text([header, *rows], separator)


def _set_header(separator: str, content: bytes, extreme: Extreme, one: bool) -> bytes | None:
    header, *rows = csv.reader(io.StringIO(content.decode("utf-8-sig")), delimiter=separator)
    if extreme.value is Special.ABSENT:
        return _table_text(rows, separator)
    if extreme.value is Special.TWICE:
        return _table_text([header, header, *rows], separator)
    header = [
        _as_text(extreme, len(header), name) if not one or at == _middle(len(header)) else name
        for at, name in enumerate(header)
    ]
    return _table_text([header, *rows], separator)


def _as_text(extreme: Extreme, rows: int, before: str = "") -> str:
    if extreme.value is Special.DIGITS:
        return before + MANY_DIGITS
    if extreme.value is Special.LONG:
        return _long(rows)
    if extreme.value is Special.OTHER:
        return _other_text(before)
    return "" if extreme.value is None else str(extreme.value)


def _table_text(rows: Sequence[Sequence[str]], separator: str) -> bytes:
    written = io.StringIO()
    csv.writer(written, delimiter=separator, lineterminator="\n").writerows(rows)
    return written.getvalue().encode()


# -- plain text ----------------------------------------------------------------------------------


def _token_columns(content: bytes) -> Iterator[Column]:
    for number in range(min(len(_NUMBER.findall(content)), MOST_TOKENS)):
        yield Column(f"number {number}", functools.partial(_set_token, number))


def _set_token(number: int, content: bytes, extreme: Extreme, one: bool) -> bytes | None:
    if not one:
        return None  # a number of plain text is in no column
    at = list(_NUMBER.finditer(content))[number]
    if extreme.value is Special.TWICE:
        return content + content
    text = "" if extreme.value is Special.ABSENT else _as_text(extreme, 1, at.group().decode())
    return content[: at.start()] + text.encode() + content[at.end() :]


# -- databases -----------------------------------------------------------------------------------

_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"


def _database_columns(content: bytes) -> Iterator[Column]:
    with closing(apsw.Connection(":memory:")) as connection:
        connection.deserialize("main", content)
        for (table,) in list(connection.execute(_TABLES)):
            for _, column, *_ in list(connection.execute(f'PRAGMA table_info("{table}")')):
                change = functools.partial(_set_in_database, table, column)
                yield Column(f"{table}.{column}", change)


def _set_in_database(
    table: str, column: str, content: bytes, extreme: Extreme, one: bool
) -> bytes | None:
    with closing(apsw.Connection(":memory:")) as connection:
        connection.deserialize("main", content)
        ((rows,),) = connection.execute(f'SELECT count(*) FROM "{table}"')
        if not rows:
            return None
        which = (
            f'rowid = (SELECT rowid FROM "{table}" LIMIT 1 OFFSET {_middle(rows)})' if one else "1"
        )
        value: Any = extreme.value
        try:
            if value is Special.ABSENT:
                if one:
                    return None
                connection.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
            elif value is Special.TWICE:
                connection.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}" WHERE {which}')
            elif value is Special.DIGITS:
                connection.execute(
                    f'UPDATE "{table}" SET "{column}" = "{column}" || ? WHERE {which}',
                    (MANY_DIGITS,),
                )
            elif value is Special.OTHER:
                connection.execute(
                    f'UPDATE "{table}" SET "{column}" = CASE typeof("{column}") '
                    f"""WHEN 'text' THEN "{column}" || 'x' WHEN 'null' THEN 1 """
                    f'ELSE "{column}" + 1 END WHERE {which}'
                )
            else:
                if value is Special.LONG:
                    value = _long(1 if one else rows)
                if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
                    value = str(value)
                if value != value:  # SQLite makes NULL of NaN
                    value = "NaN"
                connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE {which}', (value,))
        except apsw.Error:  # a key must be unique, or a column is used by an index
            return None
        return connection.serialize("main")


# -- packed records ------------------------------------------------------------------------------


def _binary_columns(name: str, content: bytes) -> Iterator[Column]:
    size = next((size for part, size in RECORD_BYTES.items() if part in name), 0)
    width = size or min(len(content), MOST_BINARY_BYTES)
    for form, step in (("<Q", 8), ("<H", 2)):
        for at in range(0, width - step + 1, step):
            change = functools.partial(_set_field, size or len(content), at, form)
            yield Column(f"bytes {at}:{at + step}", change)


def _set_field(
    size: int, at: int, form: str, content: bytes, extreme: Extreme, one: bool
) -> bytes | None:
    records = len(content) // size
    if extreme.value is Special.TWICE:
        return content + (content[:size] if one else content)
    if extreme.value is Special.ABSENT:
        return content[: len(content) - at - 1] if one else None
    is_value = isinstance(extreme.value, int) or extreme.value is Special.OTHER
    if not is_value or not records:
        return None
    width = struct.calcsize(form)
    changed = bytearray(content)
    for record in [_middle(records)] if one else range(records):
        first = record * size + at
        before = int.from_bytes(content[first : first + width], "little")
        value = extreme.value if isinstance(extreme.value, int) else before + 1
        changed[first : first + width] = struct.pack(form, value % (1 << (8 * width)))
    return bytes(changed)
