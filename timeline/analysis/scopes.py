"""Intervals of the scopes in task names, level by level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timeline.columns.columns import Codes, Int64
from timeline.columns.distinct import distinct
from timeline.columns.strings import StringPool


@dataclass(frozen=True)
class Scopes:
    """Scopes of one stream: name, level (0 is the outermost) and interval."""

    start_ns: Int64
    end_ns: Int64
    name: Codes
    level: Int64


def find_scopes(start_ns: Int64, end_ns: Int64, names: Codes, strings: StringPool) -> Scopes:
    """Find the scopes of one stream's tasks.

    A name a/b/op lies in the scopes a and a/b. Tasks are taken in order of start; each closes the
    scopes that it does not share with the previous task and opens its own. A scope lasts from the
    first start to the last end of its consecutive tasks; overlapping tasks all count.

    An end is recorded at the innermost scope, and passed outwards when that closes: recording it at
    every level would take quadratic time if there are as many levels as tasks.
    """
    order = np.argsort(start_ns, kind="stable")
    paths = {code: tuple(strings[code].split("/")[:-1]) for code in distinct(names).tolist()}
    starts: list[int] = []
    ends: list[int] = []
    labels: list[str] = []
    levels: list[int] = []
    open_scopes: list[int] = []
    open_path: tuple[str, ...] = ()
    for begin, end, code in zip(
        start_ns[order].tolist(), end_ns[order].tolist(), names[order].tolist(), strict=True
    ):
        path = paths[code]
        common = len(path) if path is open_path else _common(open_path, path)
        _close(open_scopes, common, ends)
        for level in range(common, len(path)):
            open_scopes.append(len(starts))
            starts.append(begin)
            ends.append(end)
            labels.append(path[level])
            levels.append(level)
        if open_scopes:
            ends[open_scopes[-1]] = max(ends[open_scopes[-1]], end)
        open_path = path
    _close(open_scopes, 0, ends)
    return Scopes(
        np.array(starts, np.int64),
        np.array(ends, np.int64),
        strings.codes(labels),
        np.array(levels, np.int64),
    )


def _close(open_scopes: list[int], levels: int, ends: list[int]) -> None:
    """Close the scopes below `levels`; the enclosing scope ends no earlier."""
    while len(open_scopes) > levels:
        closed = open_scopes.pop()
        if open_scopes:
            ends[open_scopes[-1]] = max(ends[open_scopes[-1]], ends[closed])


def _common(left: tuple[str, ...], right: tuple[str, ...]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count
