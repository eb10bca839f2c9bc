"""`--fit split`: several files in order of time, which together hold everything."""

from __future__ import annotations

import math
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
from timeline.fitting.exact_file import try_exact
from timeline.fitting.limits import Cost, Limits
from timeline.fitting.resolve import without_half_arrows
from timeline.fitting.writer import (
    Drawing,
    Kept,
    Part,
    Writer,
    Written,
    first_moment_ns,
    last_moment_ns,
)
from timeline.records.tables import Omission, OmissionCode
from timeline.tracks.model import Arg, ArgKind, Arrows, Samples, Slices, Track

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


TARGET_FILL = 0.93
"""How much of the limits parts are aimed at: estimates err by a few percent."""
GROWTH = 1.25
"""Limits that would do are looked for in such steps at least."""
PART_REASON = "arrows from one part to another"
"""Why arrows are left out that a cut goes through."""


def write_parts(writer: Writer, drawing: Drawing) -> Written:
    """Write several files in order of time, each within the limits, which together hold everything.

    Raises:
        LimitError: a moment takes more than a limit.
    """
    limits = writer.limits
    first_ns = first_moment_ns(drawing.tracks)
    with writer.maker(drawing.tracks, first_ns) as maker:
        whole, planner = try_exact(writer, drawing, maker)
    if whole is not None:
        return whole
    everything = planner.whole
    share = limits.share(everything)
    count = max(2, int(share / TARGET_FILL) + 1)
    moments = cut_moments(drawing.tracks, count, first_ns, last_moment_ns(drawing.tracks) + 1)
    parts: list[Part] = []
    lost = 0
    kept = Kept(drawing.steps, drawing.omissions, limited_by=limits.binding(everything))

    def write(start_ns: int, end_ns: int) -> Cost:
        nonlocal lost
        tracks, cut_arrows = without_half_arrows(cut_tracks(drawing.tracks, start_ns, end_ns))
        if not limits.hold(least := limits.cost(0, tracks)):
            return least
        part = writer.write(tracks, kept, first_ns)
        if limits.hold(part.cost):
            parts.append(part)
            lost += cut_arrows
        else:
            part.draft.discard()
        return part.cost

    least = _cut_to_fit(drawing.tracks, moments, limits, write)
    if not limits.hold(least):
        raise _too_small_for_parts(writer, drawing, moments, least)
    omissions = drawing.omissions
    if lost:
        omissions += (Omission(PART_REASON, lost // 2, code=OmissionCode.ARROW_CUT),)
    named = tuple(
        replace(part, target=_part_path(writer.target, writer.form, number, len(parts)))
        for number, part in enumerate(parts, 1)
    )
    return Written(named, drawing.facts, replace(kept, omissions=omissions), share)


def _cut_to_fit(
    tracks: Sequence[Track],
    moments: Sequence[int],
    limits: Limits,
    cost_of: Callable[[int, int], Cost],
) -> Cost:
    """Cut between the moments until every part fits, in order of time.

    Returns:
        What the largest part takes; above the limits for one that cannot be cut, and then no more
        parts are tried.
    """
    largest = Cost()
    for start, end in pairwise(moments):
        cost = cost_of(start, end)
        if not limits.hold(cost):
            halves = cut_moments(tracks, 2, start, end)
            if len(halves) > 2:
                cost = _cut_to_fit(tracks, halves, limits, cost_of)
            if not limits.hold(cost):
                return cost
        largest = max(largest, cost, key=limits.share)
    return largest


def _too_small_for_parts(
    writer: Writer, drawing: Drawing, moments: Sequence[int], least: Cost
) -> LimitError:
    """Look for limits that would do, from what the part takes that could not be cut."""
    kept = Kept(drawing.steps, drawing.omissions)

    def cost_of(start_ns: int, end_ns: int) -> Cost:
        tracks, _ = without_half_arrows(cut_tracks(drawing.tracks, start_ns, end_ns))
        part = writer.write(tracks, kept, moments[0])
        part.draft.discard()
        return part.cost

    limits = writer.limits
    enough = _raised(limits, least)
    while not enough.hold(needed := _cut_to_fit(drawing.tracks, moments, enough, cost_of)):
        enough = _raised(enough, needed, GROWTH)
    raised = []
    if enough.size_bytes > limits.size_bytes:
        raised.append((f"{int(enough.size_bytes)} bytes", "--limit"))
    if max(enough.elements - limits.elements, enough.memory_bytes - limits.memory_bytes) > 0:
        raised.append((f"{int(enough.elements)} events", "--max-events"))
    needs, options = (" and ".join(words) for words in zip(*raised, strict=True))
    return LimitError(
        f"the limit of {limits.spelled(least)[0]} cannot hold one moment of this selection "
        f"in a part; {needs} would do.",
        do=f"Raise {options}, or take fewer --ranks or --layers.",
    )


def _raised(limits: Limits, cost: Cost, growth: float = 1.0) -> Limits:
    """The limits, of which those that do not hold a cost are raised so that they do.

    growth: how many times they are at least what they were.
    """
    size_bytes, elements, memory_bytes = limits.size_bytes, limits.elements, limits.memory_bytes
    if 0 < size_bytes < cost.size_bytes:
        size_bytes = max(math.ceil(cost.size_bytes), size_bytes * growth)
    if 0 < elements < cost.elements:
        elements = max(math.ceil(cost.elements), elements * growth)
    if 0 < memory_bytes < cost.memory_bytes:
        memory_bytes = max(cost.memory_bytes, memory_bytes * growth)
    return Limits(size_bytes, elements, memory_bytes)


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
