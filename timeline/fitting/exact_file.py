"""Everything in one file, where that keeps the limits; and what it is expected to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from timeline.encoders.compression import Compression
from timeline.encoders.piece_maker import PieceMaker
from timeline.fitting.ladder import make_ladders, measure_by
from timeline.fitting.limits import Cost, Limits
from timeline.fitting.plan import Planner, screen_power
from timeline.fitting.resolve import count_arrows_between
from timeline.fitting.writer import Drawing, Kept, Writer, Written
from timeline.tracks.model import Track, element_count
from timeline.tracks.partition import is_partition

__all__ = ["choose_compression", "try_exact"]

ROUGH_BYTES = 8
"""What a slice or sample takes at most in a file of a large profile, where they are much alike."""
TRY_BELOW, TRY_SMALL_BELOW = 1.03, 1.25
"""An exact file is tried though it is expected to take up to so many times the limits: a small one
rather, which is written as soon as it is measured."""
FAST_COMPRESSION_HEADROOM = 1.5
"""How many times the expected size the limit must be, for fast compression to be safe."""
FAST_COMPRESSION_ELEMENTS = 1 << 18
"""Below so many slices and samples the best compression takes no time."""


def try_exact(
    writer: Writer, drawing: Drawing, maker: PieceMaker
) -> tuple[Written | None, Planner]:
    """Write everything, unless it is clear that it exceeds the limits.

    Returns:
        The file, None where it does not fit; and what knows what could be merged.
    """
    limits = writer.limits
    rough = limits.cost(element_count(drawing.tracks) * ROUGH_BYTES, drawing.tracks)
    # To measure takes a fifth of what the best compression of many takes longer than a fast one.
    is_clear = not _is_large(drawing.tracks) or limits.hold(rough * FAST_COMPRESSION_HEADROOM)
    fits = is_clear and limits.hold(rough)
    if fits and (whole := _if_it_fits(writer, drawing, rough)) is not None:
        return whole, Planner({}, Cost(), 0)
    writer.progress.report("Measuring", 0, 0)
    planner = _planner(writer, drawing, maker)
    expected = replace(rough, size_bytes=planner.whole.size_bytes)
    most = TRY_BELOW if _is_large(drawing.tracks) else TRY_SMALL_BELOW
    likely = limits.share(expected) <= most and limits.hold(replace(rough, size_bytes=0))
    return _if_it_fits(writer, drawing, expected) if likely else None, planner


def choose_compression(limits: Limits, expected: Cost, tracks: Sequence[Track]) -> Compression:
    """How hard a file is compressed: a large one that has room need not be the smallest."""
    has_room = limits.hold(expected * FAST_COMPRESSION_HEADROOM)
    return Compression.FAST if has_room and _is_large(tracks) else Compression.BEST


def _is_large(tracks: Sequence[Track]) -> bool:
    return element_count(tracks) > FAST_COMPRESSION_ELEMENTS


def _if_it_fits(writer: Writer, drawing: Drawing, expected: Cost) -> Written | None:
    """Everything in one file, if that keeps the limits."""
    in_bytes = Limits(writer.limits.size_bytes)
    written = writer.exact(drawing, choose_compression(in_bytes, expected, drawing.tracks))
    if writer.limits.hold(written.parts[0].cost):
        return written
    written.discard()
    return None


def _planner(writer: Writer, drawing: Drawing, maker: PieceMaker) -> Planner:
    measure = measure_by(maker, writer.limits, Compression.BEST)
    picture = writer.picture(drawing.tracks, Kept(drawing.steps, drawing.omissions), maker.first_ns)
    opening = maker.opening(picture.timeline, picture.said, Compression.BEST)
    rows = [track for track in drawing.tracks if is_partition(track)]
    return Planner(
        make_ladders(drawing.tracks, measure, drawing.floors),
        writer.limits.cost(len(opening), picture.said),
        screen_power(rows),
        arrows=count_arrows_between(drawing.tracks),
    )
