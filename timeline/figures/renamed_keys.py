"""Keys of JSON that got a better word: the old one stays beside the new one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["RENAMED_KEYS", "with_renamed_keys"]

RENAMED_KEYS = {
    "gathered": "merged",
    "gathered_into": "merged_into",
    "not_overlapped_ns": "exposed_communication_ns",
}
"""What a key is called now, by what it was called first, which is deprecated."""
_OLD_KEYS = {new: old for old, new in RENAMED_KEYS.items()}


def with_renamed_keys(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a report where each renamed value has both its names, the old one first."""
    both: dict[str, Any] = {}
    for key, value in row.items():
        old = _OLD_KEYS.get(key, key)
        both[old] = value
        if new := RENAMED_KEYS.get(old):
            both[new] = value
    return both
