"""The slices and tracks of a loaded trace, with the names of the rows around them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.support.perfetto_sql import TraceProcessor


@dataclass(frozen=True)
class DrawnSlice:
    """One slice; `row` names its track and the groups around it, outermost first."""

    row: tuple[str, ...]
    name: str
    start_ns: int
    duration_ns: int

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


def drawn_rows(processor: TraceProcessor) -> dict[int, tuple[str, ...]]:
    """The names on the way to each track, outermost first, by track id.

    Of those without a parent, without what orders them or what is said of a rank.
    """
    found = processor.rows("SELECT id, name, parent_id FROM track")
    names = {
        track: (_plain(name) if parent is None else name, parent) for track, name, parent in found
    }

    def way(track: int) -> tuple[str, ...]:
        name, parent = names[track]
        return (*(() if parent is None else way(parent)), name)

    return {track: way(track) for track in names}


def _plain(name: str | None) -> str:
    return re.sub(r"^\d+ |(?<=^Rank )0+(?=\d)|(?<=\d): .*$", "", (name or "").strip())


def drawn_slices(processor: TraceProcessor, *within: str) -> list[DrawnSlice]:
    """All slices in order of time; with names, only those whose row has all of them.

    Times of a .pftrace are the recorded ones.
    """
    rows = drawn_rows(processor)
    found = processor.rows("SELECT track_id, name, ts, dur FROM slice ORDER BY ts, dur, id")
    return [
        DrawnSlice(rows[track], name, start + processor.zero_ns, duration)
        for track, name, start, duration in found
        if set(within) <= set(rows[track])
    ]
