"""Distinct JSON values of trace events by code, and the strings and numbers that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Codes, Int64
from timeline.columns.distinct import distinct, map_values
from timeline.columns.strings import StringPool
from timeline.sources.decoders.exported_values import number, text

LaneKey = tuple[object, object]
"""(pid, tid) as the file spells them."""
NOT_KNOWN = -1
_Scalar = TypeVar("_Scalar", np.int64, np.float64, np.bool_)


class JsonValues:
    """Distinct JSON values by code, and their codes in a pool of strings.

    A group is a list of such codes: process and thread of a lane, or the keys of the args of
    counters, their process and their name.
    """

    def __init__(self, strings: StringPool) -> None:
        self.strings = strings
        self._values: list[Any] = []
        self._codes: Codes = np.empty(0, np.int32)
        self._groups: list[Sequence[int]] = []
        self.pids: Mapping[object, object] | None = None
        """The ids to give for those of processes, None for those that are not here."""

    def add(self, values: Sequence[Any], groups: Sequence[Sequence[int]]) -> None:
        """Take in the next values and groups, whose codes follow on those before."""
        self._values += values
        self._groups += groups

    def add_texts(self, texts: Sequence[bytes], groups: Sequence[bytes]) -> bool:
        """Take in values as JSON and groups as int32; whether all of the values can be decoded."""
        values, are_good = _decoded(texts)
        self.add(values, [np.frombuffer(group, np.int32).tolist() for group in groups])
        return are_good

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, code: int) -> Any:
        return self._values[code]

    def lane(self, group: int) -> LaneKey:
        """The process and thread that a group stands for."""
        _, thread = self._groups[group]
        return self.process(group), self[thread]

    def counters(self, group: int) -> tuple[object, str, list[str]]:
        """The process, the name and the keys that a group of counters stands for."""
        *keys, _, name = self._groups[group]
        return self.process(group), self[name], [self[key] for key in keys]

    def process(self, group: int) -> object:
        """The process of a group of either kind."""
        process = self[self._groups[group][-2]]
        return process if self.pids is None else self.pids.get(process)

    def names(self, codes: Codes) -> Codes:
        """The codes of the strings in the pool, (n,) int32; numbers are strings as `text` does."""
        if len(self._codes) < len(self._values):
            more = np.full(2 * len(self._values) - len(self._codes), NOT_KNOWN, np.int32)
            self._codes = np.concatenate([self._codes, more])
        found = self._codes[codes]
        if (found == NOT_KNOWN).any():
            fresh = distinct(codes[found == NOT_KNOWN])
            self._codes[fresh] = self.strings.codes(self.texts(fresh))
            found = self._codes[codes]
        return found

    def texts(self, codes: Codes | Int64) -> list[str]:
        """The strings that the values are; numbers are spelled, and null is the empty one."""
        found = list(map(self._values.__getitem__, codes.tolist()))
        return found if set(map(type, found)) == {str} else list(map(text, found))

    def numbers(self, codes: Int64, default: int) -> Int64:
        """The ids or amounts that the values are; see `number`."""
        return self.meanings(codes, np.int64, lambda value: number(value, default))

    def meanings(
        self, codes: Codes | Int64, dtype: type[_Scalar], meaning: Callable[[Any], float]
    ) -> npt.NDArray[_Scalar]:
        """What the values mean, each asked once."""

        def table(found: npt.NDArray[np.integer[Any]]) -> npt.NDArray[_Scalar]:
            return np.array([meaning(self._values[code]) for code in found.tolist()], dtype)

        return map_values(codes, table)


def _decoded(texts: Sequence[bytes]) -> tuple[list[Any], bool]:
    """Decode each text: the values, None where one is no JSON, and whether all were decoded."""
    try:
        values: list[Any] = msgspec.json.decode(b"[" + b",".join(texts) + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [_one(text) for text in texts], False
    return values, True


def _one(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
