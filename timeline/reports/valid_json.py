"""Reports as JSON, even if they hold paths that are not valid text."""

from __future__ import annotations

from typing import Any

import orjson

from timeline.printable import valid_text


def json_of(value: Any, option: int | None = None) -> bytes:
    """Return the JSON of a value, with bytes escaped that are not valid text."""
    try:
        return orjson.dumps(value, option=option)
    except orjson.JSONEncodeError:  # rare, so strings are checked only then
        return orjson.dumps(_valid(value), option=option)


def _valid(value: Any) -> Any:
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, dict):
        return {_valid(key): _valid(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_valid(each) for each in value]
    return value
