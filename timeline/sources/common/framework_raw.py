"""What heads the columns of framework_raw_N.csv, and the tensors that objects in it tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from timeline.sources.common.decimals import whole_number

__all__ = ["FRAMEWORK_COLUMNS", "Tensors", "tensors_of", "tensors_of_text"]

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
