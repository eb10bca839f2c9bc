"""What heads the columns of framework_raw_N.csv, the tensors in it, and their data types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from timeline.frozen import dataclass
from timeline.sources.common.decimals import whole_number

__all__ = ["FRAMEWORK_COLUMNS", "DataTypes", "Tensors", "tensors_of", "tensors_of_text"]

FRAMEWORK_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "graph": ("graph_id", "model_id"),
    "stream": ("stream_id",),
    "task": ("task_id",),
    "name": ("full_kernel_name", "full_op_name"),
    "op_type": ("op_type",),
    "kernel_type": ("kernel_type",),
    "blocks": ("block_dim",),
    "info": ("op_info",),
}
"""What framework_raw_N.csv calls its columns, newest first. Beside op_type, kernel_type is the core
and blocks are not set (MindSpore 2.1 and 2.2)."""
Tensors = Mapping[tuple[str, int], Mapping[str, Any]]
"""By side, `input` or `output`, and number: format, data_type and shape."""


def tensors_of_text(text: str) -> Tensors | None:
    """The tensors that a JSON text tells; None where it is no JSON object."""
    try:
        info = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return tensors_of(info) if isinstance(info, dict) else None


def tensors_of(info: Mapping[str, Any]) -> Tensors:
    """The tensors of an object with keys such as input_0 and Output_1."""
    tensors: dict[tuple[str, int], Mapping[str, Any]] = {}
    for key, value in info.items():
        side, _, number = key.lower().partition("_")
        place = whole_number(number)
        if place is not None and isinstance(value, dict):
            tensors[side, place] = value
    return tensors


_FIRST, _FIRST_NEWER = 27, 30
_NUMBERED = (
    *("bool", "int", "int8", "int16", "int32", "int64"),
    *("uint", "uint8", "uint16", "uint32", "uint64"),
    *("float", "float16", "float32", "float64"),
)
"""By number, from 27 on in the first versions (39 is float16), and from 30 on since 1.1."""
_WORD = "number_type_"
_END = "number_type_end"
"""What MindSpore wrote for number 42, which it took for the end of the older numbers."""
_LAST = _FIRST + len(_NUMBERED) - 1
_OTHERWISE = {"dt_float": "float32", "dt_double": "float64"}
_NO_TYPE = frozenset({"", "unknown", "type_unknown", "undefined", "end"})


@dataclass(frozen=True)
class DataTypes:
    """How one file numbers data types.

    newer: whether as newer versions do. MindSpore's own table of operators names those numbers as
    if they were of the older ones, so that int32 is NUMBER_TYPE_UINT8 there.
    """

    newer: bool = False

    @classmethod
    def of_file(cls, told: Iterable[object]) -> DataTypes:
        """What all types in a file say together: only newer numbers go beyond the older ones."""
        return cls(any(_is_beyond(one) for one in told))

    def spell(self, told: object) -> str | None:
        """The data type of a tensor, such as float16; None where it is not told.

        >>> DataTypes().spell("39"), DataTypes().spell("NUMBER_TYPE_FLOAT16")
        ('float16', 'float16')
        >>> DataTypes(newer=True).spell("42"), DataTypes(newer=True).spell("NUMBER_TYPE_END")
        ('float16', 'float16')
        """
        text = str(told).strip().lower() if isinstance(told, (str, int)) else ""
        number = whole_number(text)
        if self.newer and text.startswith(_WORD):
            number = _older_number(text)
        if number is not None:
            at = number - (_FIRST_NEWER if self.newer else _FIRST)
            return _NUMBERED[at] if 0 <= at < len(_NUMBERED) else None
        text = _OTHERWISE.get(text, text).removeprefix(_WORD).removeprefix("dt_")
        return None if text in _NO_TYPE else text


def _is_beyond(told: object) -> bool:
    text = str(told).strip().lower()
    number = whole_number(text)
    return text == _END if number is None else number > _LAST


def _older_number(word: str) -> int | None:
    """The number that older versions gave to a word."""
    if word == _END:
        return _LAST + 1
    name = word.removeprefix(_WORD)
    return _FIRST + _NUMBERED.index(name) if name in _NUMBERED else None
