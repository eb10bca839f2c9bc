"""Turns communication.json into the group of each communication op."""

from __future__ import annotations

from pathlib import Path

import msgspec

from timeline.errors import SourceError
from timeline.sources.files.opened import opened

__all__ = ["read_groups"]

_Document = dict[str, dict[str, dict[str, msgspec.Raw]]]
"""By step and kind: what is measured of each op. Its times are rounded, so they are not read."""


def read_groups(path: Path) -> dict[str, str]:
    """The id of the group of each op, by name; ops whose key has no group are left out.

    Raises:
        SourceError: the file cannot be read, or holds something else.
    """
    try:
        with opened(path) as file:
            document = msgspec.json.decode(file.read(), type=_Document)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SourceError(path, f"does not tell groups: {error}.") from error
    found: dict[str, str] = {}
    for kinds in document.values():
        for ops in kinds.values():
            for key in ops:
                name, _, group = key.rpartition("@")
                if name:
                    found.setdefault(name, group)
    return found
