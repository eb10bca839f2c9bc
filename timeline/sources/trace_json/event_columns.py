"""Turns what the compiled scanner writes into columns of events and of their args."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool, Codes, Float64, Int64, Rows
from timeline.sources.common.decimals import real
from timeline.sources.trace_json.events import Metadata, text
from timeline.sources.trace_json.spellings import Spellings

__all__ = ["ARROWS", "ARROW_START", "COMPLETE", "COUNTER", "ArgValues", "ScannedEvents"]

Bytes = npt.NDArray[np.uint8]
COMPLETE, COUNTER, ARROW_START = ord("X"), ord("C"), ord("s")
"""Phases of events."""
ARROWS = b"stf"
IS_TEXT, IS_WHOLE, IS_QUOTED_WHOLE, IS_REAL = range(4)
"""What an arg is: another value, or an integer, or one in quotes, or another number."""
_COLUMNS = {
    "phase": np.uint8,
    "group": np.int32,
    "name": np.int32,
    "category": np.int32,
    "start_ns": np.int64,
    "end_ns": np.int64,
    "arg_row": np.int32,
    "arg_key": np.int32,
    "kind": np.uint8,
    "value": np.int64,
}
"""In the order in which the scanner gives them."""


@dataclass(frozen=True)
class ArgValues:
    """Values of args: (n,) each, of which `kind` tells how to take `value`."""

    kind: Bytes
    value: Int64

    def __getitem__(self, rows: Rows) -> ArgValues:
        return ArgValues(self.kind[rows], self.value[rows])

    def ids(self, spellings: Spellings, default: int) -> Int64:
        """Ids or amounts; see `number`."""
        made = self.value.copy()
        reals = self.kind == IS_REAL
        if reals.any():
            made[reals] = [_whole(value, default) for value in self._reals(reals).tolist()]
        texts = self.kind == IS_TEXT
        if texts.any():
            made[texts] = spellings.numbers(self.value[texts], default)
        return made

    def names(self, spellings: Spellings) -> Codes:
        """Names in the pool of strings."""
        made = np.empty(len(self.value), np.int32)
        texts = self.kind == IS_TEXT
        made[texts] = spellings.names(self.value[texts].astype(np.int32))
        if not texts.all():
            rest = self[np.flatnonzero(~texts)].objects(spellings)
            made[~texts] = spellings.strings.codes(map(text, rest))
        return made

    def reals(self, spellings: Spellings) -> tuple[Rows, Float64]:
        """Which of the values are numbers, and these."""
        made = self.value.astype(np.float64)
        is_real = self.kind == IS_REAL
        made[is_real] = self._reals(is_real)
        good = self.kind != IS_QUOTED_WHOLE
        texts = np.flatnonzero(self.kind == IS_TEXT)
        if len(texts):
            codes = self.value[texts]
            good[texts] = spellings.meanings(codes, np.bool_, _is_number)
            made[texts] = spellings.meanings(codes, np.float64, _real)
        rows = np.flatnonzero(good)
        return rows, made[rows]

    def are_falsy(self, spellings: Spellings) -> Bool:
        """Which are zero or empty."""
        made: Bool = (self.kind == IS_WHOLE) & (self.value == 0)
        made |= (self.kind == IS_REAL) & (self.value.view(np.float64) == 0)
        texts = self.kind == IS_TEXT
        made[texts] = spellings.meanings(self.value[texts], np.bool_, operator.not_)
        return made

    def objects(self, spellings: Spellings) -> list[Any]:
        """The values as the decoder gives them."""
        made: npt.NDArray[Any] = self.value.astype(np.object_)
        for kind, objects in (
            (IS_TEXT, map(spellings.__getitem__, self.value[self.kind == IS_TEXT].tolist())),
            (IS_QUOTED_WHOLE, map(str, self.value[self.kind == IS_QUOTED_WHOLE].tolist())),
            (IS_REAL, self._reals(self.kind == IS_REAL).tolist()),
        ):
            made[self.kind == kind] = np.fromiter(objects, np.object_)
        return list(made)

    def _reals(self, rows: Bool) -> Float64:
        return self.value.view(np.float64)[rows]


def _whole(value: float, default: int) -> int:
    return int(value) if value.is_integer() and -(2.0**63) <= value < 2.0**63 else default


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _real(value: Any) -> float:
    return real(value) if isinstance(value, (int, float)) else np.nan


@dataclass(frozen=True)
class ScannedEvents:
    """Events in file order, and the args of all of them, in the order of their events.

    group, name and category are codes of spellings; arg_row is a row of the events. The end of an
    arrow is its id, or the complement of a code where that is no number above zero.
    """

    phase: Bytes
    group: Codes
    name: Codes
    category: Codes
    start_ns: Int64
    end_ns: Int64
    arg_row: Codes
    arg_key: Codes
    args: ArgValues
    metadata: list[Metadata]
    others: int
    """Events of a phase that is not drawn."""
    unread: int
    """Counter events that were not asked for."""

    @classmethod
    def of(
        cls,
        columns: Sequence[bytes],
        metadata: list[Metadata],
        others: int,
        unread: int,
    ) -> ScannedEvents:
        """The events of one text."""
        made: dict[str, Any] = {
            name: np.frombuffer(column, dtype)
            for (name, dtype), column in zip(_COLUMNS.items(), columns, strict=True)
        }
        args = ArgValues(made.pop("kind"), made.pop("value"))
        return cls(**made, args=args, metadata=metadata, others=others, unread=unread)

    @classmethod
    def concat(cls, parts: Sequence[ScannedEvents]) -> ScannedEvents:
        """The events of texts one behind the other."""
        firsts = np.cumsum([0, *(len(part.phase) for part in parts)], dtype=np.int32)[:-1]

        def joined(column: Callable[[ScannedEvents], npt.NDArray[Any]]) -> npt.NDArray[Any]:
            return np.concatenate([column(part) for part in parts])

        return cls(
            phase=joined(lambda part: part.phase),
            group=joined(lambda part: part.group),
            name=joined(lambda part: part.name),
            category=joined(lambda part: part.category),
            start_ns=joined(lambda part: part.start_ns),
            end_ns=joined(lambda part: part.end_ns),
            arg_row=np.concatenate(
                [part.arg_row + first for part, first in zip(parts, firsts, strict=True)]
            ),
            arg_key=joined(lambda part: part.arg_key),
            args=ArgValues(
                joined(lambda part: part.args.kind), joined(lambda part: part.args.value)
            ),
            metadata=[event for part in parts for event in part.metadata],
            others=sum(part.others for part in parts),
            unread=sum(part.unread for part in parts),
        )

    def __len__(self) -> int:
        return len(self.phase) + len(self.metadata) + self.others + self.unread

    def with_times(self, starts: Rows, start_ns: Int64, ends: Rows, end_ns: Int64) -> ScannedEvents:
        """The events, some with other times."""
        every_start_ns, every_end_ns = self.start_ns.copy(), self.end_ns.copy()
        every_start_ns[starts], every_end_ns[ends] = start_ns, end_ns
        return replace(self, start_ns=every_start_ns, end_ns=every_end_ns)
