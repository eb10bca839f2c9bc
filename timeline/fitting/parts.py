"""Turns pictures into parts in order of time, each within the limit, together everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from timeline.encoders.formats import Format
from timeline.errors import LimitError
from timeline.fitting.writer import (
    AIM,
    Drawing,
    Part,
    Writer,
    Written,
    first_moment_ns,
    last_moment_ns,
)
from timeline.records.tables import Omission, OmissionCode
from timeline.tracks.model import Track
from timeline.tracks.resolve import without_half_arrows
from timeline.tracks.split import between, cut_moments
from timeline.units import spell_bytes

__all__ = ["split_up"]

PART_REASON = "arrows from one part to another"


def split_up(writer: Writer, drawing: Drawing) -> Written:
    """Write parts in order of time, each within the limit, together everything."""
    steps = drawing.steps
    whole = writer.write(drawing.tracks, drawing.omissions, (), steps)
    size = whole.draft.size_bytes
    if size <= writer.limit:
        return Written((whole,), drawing.facts, steps, drawing.omissions, exact_bytes=size)
    whole.draft.discard()
    first_ns = first_moment_ns(drawing.tracks)
    count = int(size / (writer.limit * AIM)) + 1
    moments = cut_moments(drawing.tracks, count, first_ns, last_moment_ns(drawing.tracks) + 1)
    parts: list[Part] = []
    lost = 0

    def write(start_ns: int, end_ns: int) -> int:
        nonlocal lost
        tracks, cut_arrows = without_half_arrows(between(drawing.tracks, start_ns, end_ns))
        part = writer.write(tracks, drawing.omissions, (), steps, first_ns)
        if part.draft.size_bytes <= writer.limit:
            parts.append(part)
            lost += cut_arrows
        else:
            part.draft.discard()
        return part.draft.size_bytes

    least = _cut_to_fit(drawing.tracks, moments, writer.limit, write)
    if least > writer.limit:
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
        tracks, _ = without_half_arrows(between(drawing.tracks, start_ns, end_ns))
        return writer.measure(tracks, drawing.omissions, steps, moments[0])

    while (needed := _cut_to_fit(drawing.tracks, moments, least, size_of)) > least:
        least = max(needed, least * 5 // 4)
    return LimitError(
        f"the limit of {spell_bytes(writer.limit)} cannot hold one moment of this selection in a "
        f"part; {least} bytes would do.",
        do="Raise --limit, or take fewer --ranks or --layers.",
    )


def _part_path(target: Path, form: Format, number: int, count: int) -> Path:
    """name.part01of07.pftrace for name.pftrace."""
    stem = target.name.removesuffix(form.suffix)
    width = max(2, len(str(count)))
    return target.with_name(f"{stem}.part{number:0{width}}of{count:0{width}}{form.suffix}")
