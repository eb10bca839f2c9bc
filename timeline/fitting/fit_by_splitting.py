"""`--fit split`: several files in order of time, which together hold everything."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from timeline.columns.columns import Bool, Int64
from timeline.columns.distinct import distinct
from timeline.columns.nesting import order_edges
from timeline.encoders.formats import Format
from timeline.errors import LimitError
from timeline.fitting.plan import without_half_arrows
from timeline.fitting.writer import (
    TARGET_FILL,
    Drawing,
    Part,
    Writer,
    Written,
    first_moment_ns,
    last_moment_ns,
)
from timeline.records.tables import Omission, OmissionCode
from timeline.tracks.model import Arg, ArgKind, Arrows, Samples, Slices, Track
from timeline.units import spell_bytes

__all__ = ["cut_moments", "cut_tracks", "parts_beside", "write_parts"]


def cut_tracks(tracks: Sequence[Track], start_ns: int, end_ns: int) -> list[Track]:
    """Cut from all tracks what lies in [start_ns, end_ns).

    A slice that crosses a cut is closed there and opened again in the next part, where it has the
    arg `continued`; its pieces together are as long as it was. A slice without length lies in the
    part that its moment lies in. An arrow touches the piece in which its slice begins; one whose
    other end is in another part is dropped by the caller.
    """
    return [_between(track, start_ns, end_ns) for track in tracks]


def _between(track: Track, start_ns: int, end_ns: int) -> Track:
    content = track.content
    if isinstance(content, Samples):
        kept = (content.time_ns >= start_ns) & (content.time_ns < end_ns)
        return replace(
            track,
            content=replace(content, time_ns=content.time_ns[kept], value=content.value[kept]),
        )
    if not isinstance(content, Slices):
        return track
    kept = _inside(content.start_ns, content.end_ns, start_ns, end_ns)
    rows = np.flatnonzero(kept)
    if content.nested:
        # A cut may make a call as long as the one around it; then the order tells them apart.
        edges = order_edges(content.start_ns, content.end_ns)
        order = edges.row[~edges.is_end]
        rows = order[kept[order]]
    begins = content.start_ns[rows] >= start_ns
    position = np.full(len(content), -1, np.int64)
    position[rows[begins]] = np.flatnonzero(begins)
    moved = position[content.arrows.slice]
    touched = np.argsort(moved, kind="stable")
    touched = touched[moved[touched] >= 0]
    part = content.take(rows, Arrows(moved[touched], content.arrows.arrow[touched]))
    args = part.args
    if not begins.all():
        args += (Arg("continued", ArgKind.INTEGER, np.ones(len(rows), np.int64), ~begins),)
    return replace(
        track,
        content=replace(
            part,
            start_ns=np.maximum(part.start_ns, start_ns),
            end_ns=np.minimum(part.end_ns, end_ns),
            args=args,
        ),
    )


def _inside(start_ns: Int64, end_ns: Int64, first_ns: int, last_ns: int) -> Bool:
    empty = start_ns == end_ns
    crosses = (start_ns < last_ns) & (end_ns > first_ns)
    made: Bool = np.where(empty, (start_ns >= first_ns) & (start_ns < last_ns), crosses)
    return made


def cut_moments(tracks: Sequence[Track], parts: int, start_ns: int, end_ns: int) -> list[int]:
    """Choose moments that cut [start_ns, end_ns) into `parts` with about as many slices each.

    Returns:
        Ascending moments with both ends; fewer parts where slices are too few to part them.
    """
    times = [
        track.content.start_ns if isinstance(track.content, Slices) else track.content.time_ns
        for track in tracks
        if track.content is not None
    ]
    every = np.concatenate([np.empty(0, np.int64), *times])
    every = every[(every > start_ns) & (every < end_ns)]
    if not len(every) or parts == 1:
        return [start_ns, end_ns]
    fractions = np.arange(1, parts) / parts
    inner = np.quantile(every, fractions, method="nearest").astype(np.int64)
    return [start_ns, *distinct(inner).tolist(), end_ns]


PART_REASON = "arrows from one part to another"
"""Why arrows are left out that a cut goes through."""


def write_parts(writer: Writer, drawing: Drawing) -> Written:
    """Write several files in order of time, each within the limit, which together hold everything.

    Raises:
        LimitError: a moment takes more than the limit.
    """
    steps = drawing.steps
    whole = writer.write(drawing.tracks, drawing.omissions, (), steps)
    size = whole.draft.size_bytes
    if size <= writer.limit_bytes:
        return Written((whole,), drawing.facts, steps, drawing.omissions, exact_bytes=size)
    whole.draft.discard()
    first_ns = first_moment_ns(drawing.tracks)
    count = int(size / (writer.limit_bytes * TARGET_FILL)) + 1
    moments = cut_moments(drawing.tracks, count, first_ns, last_moment_ns(drawing.tracks) + 1)
    parts: list[Part] = []
    lost = 0

    def write(start_ns: int, end_ns: int) -> int:
        nonlocal lost
        tracks, cut_arrows = without_half_arrows(cut_tracks(drawing.tracks, start_ns, end_ns))
        part = writer.write(tracks, drawing.omissions, (), steps, first_ns)
        if part.draft.size_bytes <= writer.limit_bytes:
            parts.append(part)
            lost += cut_arrows
        else:
            part.draft.discard()
        return part.draft.size_bytes

    least = _cut_to_fit(drawing.tracks, moments, writer.limit_bytes, write)
    if least > writer.limit_bytes:
        raise _too_small_for_parts(writer, drawing, moments, least, steps)
    omissions = drawing.omissions
    if lost:
        omissions += (Omission(PART_REASON, lost // 2, code=OmissionCode.ARROW_CUT),)
    named = tuple(
        replace(part, target=_part_path(writer.target, writer.form, number, len(parts)))
        for number, part in enumerate(parts, 1)
    )
    return Written(named, drawing.facts, steps, omissions, exact_bytes=size)


def _cut_to_fit(
    tracks: Sequence[Track], moments: Sequence[int], limit: int, size_of: Callable[[int, int], int]
) -> int:
    """Cut between the moments until every part fits, in order of time.

    Returns:
        The largest size of a part; above the limit for one that cannot be cut, and then no more
        parts are tried.
    """
    largest = 0
    for start, end in pairwise(moments):
        size = size_of(start, end)
        if size > limit:
            halves = cut_moments(tracks, 2, start, end)
            if len(halves) > 2:
                size = _cut_to_fit(tracks, halves, limit, size_of)
            if size > limit:
                return size
        largest = max(largest, size)
    return largest


def _too_small_for_parts(
    writer: Writer,
    drawing: Drawing,
    moments: Sequence[int],
    least: int,
    steps: Sequence[int],
) -> LimitError:
    """Look for a limit that would do, from the size of the part that could not be cut."""

    def size_of(start_ns: int, end_ns: int) -> int:
        tracks, _ = without_half_arrows(cut_tracks(drawing.tracks, start_ns, end_ns))
        return writer.measure(tracks, drawing.omissions, steps, moments[0])

    while (needed := _cut_to_fit(drawing.tracks, moments, least, size_of)) > least:
        least = max(needed, least * 5 // 4)
    return LimitError(
        f"the limit of {spell_bytes(writer.limit_bytes)} cannot hold one moment of this selection "
        f"in a part; {least} bytes would do.",
        do="Raise --limit, or take fewer --ranks or --layers.",
    )


def parts_beside(target: Path, form: Format) -> list[Path]:
    """The files that have names of parts of the target, in any number."""
    stem = target.name.removesuffix(form.suffix)
    pattern = re.compile(rf"{re.escape(stem)}\.part\d+of\d+{re.escape(form.suffix)}")
    return sorted(file for file in target.parent.iterdir() if pattern.fullmatch(file.name))


def _part_path(target: Path, form: Format, number: int, count: int) -> Path:
    """name.part01of07.pftrace for name.pftrace."""
    stem = target.name.removesuffix(form.suffix)
    width = max(2, len(str(count)))
    return target.with_name(f"{stem}.part{number:0{width}}of{count:0{width}}{form.suffix}")
