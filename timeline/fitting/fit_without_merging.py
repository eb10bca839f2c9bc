"""Files in which nothing is merged: everything, the detail of some steps, or parts of the time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from timeline.analysis.ordinary_steps import StepRun
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.selected_rank import ChosenDetail
from timeline.columns.columns import sort_rows
from timeline.columns.distinct import distinct
from timeline.encoders.formats import Format
from timeline.encoders.piece_maker import PieceMaker
from timeline.encoders.pieces import Compression
from timeline.errors import LimitError
from timeline.fitting.drawn_layers import without_half_arrows
from timeline.fitting.limits import Cost, Limits
from timeline.fitting.plan import Planner, screen_level
from timeline.fitting.sizes import measure_by, measure_layers
from timeline.fitting.writer import (
    Drawing,
    Kept,
    Part,
    Writer,
    Written,
    first_time_ns,
    last_time_ns,
    too_small_error,
)
from timeline.records.not_given import NO_TIME
from timeline.records.tables import Omission, OmissionCode
from timeline.tracks.model import Arg, ArgKind, Arrows, Samples, Slices, Track, element_count
from timeline.tracks.partition import is_partition
from timeline.tracks.rank_tracks import DrawnRank

ROUGH_BYTES = 8
"""Maximum bytes per slice or sample in a file of a large profile, where slices are similar."""
TRY_BELOW = 1.1
"""Largest expected multiple of the limits at which an exact file is tried."""
FAST_COMPRESSION_HEADROOM = 1.5
"""Ratio of the limit to the expected size from which fast compression is safe."""
FAST_COMPRESSION_ELEMENTS = 1 << 18
"""Slices and samples below which the best compression takes no noticeable time."""
STEPS_FILL, PARTS_FILL = 0.93, 0.85
"""Shares of the limits that files of steps and parts aim at.

Estimates err by a few percent, and each part repeats the names it uses.
"""
MOST_WRITES = 3
"""Maximum number of attempts at a file of steps, including one without detail."""
PIECES_WITHOUT_STEPS = 64
"""A profile without steps is trimmed by this many equal pieces of its time instead."""
GROWTH = 1.25
"""Minimum factor between limits that are tried in the search for sufficient ones."""
PART_REASON = "arrows from one part to another"
"""Reason for leaving out arrows that a cut crosses."""

Redraw = Callable[[ChosenDetail], Sequence[DrawnRank]]
"""Draws all ranks again, with only the chosen detail."""


def try_exact(
    writer: Writer, drawing: Drawing, maker: PieceMaker
) -> tuple[Written | None, Planner]:
    """Write everything, unless it is clear that it exceeds the limits.

    Returns:
        The file, None if it does not fit; and the planner of what could be merged.
    """
    limits = writer.limits
    rough = limits.cost(element_count(drawing.tracks) * ROUGH_BYTES, drawing.tracks)
    # Measuring takes a fifth of the extra time of the best compression over a fast one.
    is_clear = not _is_large(drawing.tracks) or limits.hold(rough * FAST_COMPRESSION_HEADROOM)
    fits = is_clear and limits.hold(rough)
    if fits and (whole := _if_it_fits(writer, drawing, rough)) is not None:
        return whole, Planner({}, Cost(), 0)
    writer.progress.report("Measuring", 0, 0)
    planner = _planner(writer, drawing, maker)
    expected = replace(rough, size_bytes=planner.whole.size_bytes)
    likely = limits.share(expected) <= TRY_BELOW and limits.hold(replace(rough, size_bytes=0))
    if likely and not fits:
        return _if_it_fits(writer, drawing, expected), planner
    return None, planner


def choose_compression(limits: Limits, expected: Cost, tracks: Sequence[Track]) -> Compression:
    """Return the compression: a large file with room to spare need not be the smallest."""
    has_room = limits.hold(expected * FAST_COMPRESSION_HEADROOM)
    return Compression.FAST if has_room and _is_large(tracks) else Compression.BEST


def _is_large(tracks: Sequence[Track]) -> bool:
    return element_count(tracks) > FAST_COMPRESSION_ELEMENTS


def _if_it_fits(writer: Writer, drawing: Drawing, expected: Cost) -> Written | None:
    """Write everything in one file, if that keeps the limits."""
    in_bytes = Limits(writer.limits.size_bytes)
    written = writer.exact(drawing, choose_compression(in_bytes, expected, drawing.tracks))
    if writer.limits.hold(written.parts[0].cost):
        return written
    written.discard()
    return None


def _planner(writer: Writer, drawing: Drawing, maker: PieceMaker) -> Planner:
    measure = measure_by(maker, writer.limits, Compression.BEST)
    picture = writer.picture(drawing.tracks, Kept(drawing.steps, drawing.omissions), maker.first_ns)
    opening = maker.opening(picture.timeline, picture.sentences, Compression.BEST)
    rows = [track for track in drawing.tracks if is_partition(track)]
    return Planner(
        measure_layers(drawing.tracks, measure, drawing.floors),
        writer.limits.cost(len(opening), picture.sentences),
        screen_level(rows),
    )


def write_steps(
    writer: Writer, drawing: Drawing, runs: Iterable[StepRun], redraw: Redraw
) -> Written:
    """Write the whole summary, and the detail of as many of the most important steps as fit.

    Without steps, it is the detail of the first part of the time.

    Args:
        runs: runs of steps, the most important first; other steps follow in order of time.

    Raises:
        LimitError: the summary alone does not fit.
    """
    limits = writer.limits
    with writer.maker(drawing.tracks, first_time_ns(drawing.tracks)) as maker:
        whole, planner = try_exact(writer, drawing, maker)
    if whole is not None:
        return whole
    steps = _order_steps(drawing.facts, runs)
    edges_ns = () if steps else _time_edges(drawing.facts)

    def write(count: int) -> Written:
        if steps:
            detail = ChosenDetail(frozenset(steps[:count]), tuple(sorted(steps[count:])))
        elif edges_ns:
            detail = ChosenDetail(window_ns=(edges_ns[0], edges_ns[count]))
        else:
            detail = ChosenDetail()
        chosen = writer.draw(redraw(detail))
        return writer.exact(replace(chosen, kept_steps=tuple(sorted(steps[:count]))))

    everything = planner.whole
    low, high = 0, len(steps) or max(0, len(edges_ns) - 1)
    shares = {0: 0.0, high: limits.share(everything)}
    best: Written | None = None
    for _ in range(MOST_WRITES - 1):
        if high - low <= 1:
            break
        count = _count_that_fits(shares, low, high)
        tried = write(count)
        share = limits.share(tried.parts[0].cost)
        shares.pop(0, None)  # the cost of the summary was only assumed to be 0
        shares[count] = share
        if share <= 1:
            if best is not None:
                best.discard()
            best, low = tried, count
        else:
            tried.discard()
            high = count
    if best is None:
        best = write(0)
        least = best.parts[0].cost
        if not limits.hold(least):
            best.discard()
            exact = writer.exact(drawing)
            exact.discard()
            raise too_small_error(limits, min(least, exact.parts[0].cost, key=limits.share))
    kept = replace(best.kept, limited_by=limits.binding(everything))
    return replace(best, kept=kept, exact_share=limits.share(everything))


def _count_that_fits(shares: Mapping[int, float], low: int, high: int) -> int:
    """Return the number of steps that should just fit: `low` of them do, `high` do not.

    Args:
        shares: used share of the limits by number of steps; it grows in proportion.
    """
    (one, share), (other, other_share) = sorted(shares.items())[:2]
    each = max((other_share - share) / max(1, other - one), 1e-12)
    return min(max(one + int((STEPS_FILL - share) / each), low + 1), high - 1)


def _order_steps(ranks: Sequence[RankFacts], runs: Iterable[StepRun]) -> list[int]:
    first: dict[int, int] = {}
    for facts in ranks:
        on_device = facts.device_start_ns != NO_TIME
        for step, start in zip(
            facts.steps.iteration[on_device].tolist(),
            facts.steps.start_ns[on_device].tolist(),
            strict=True,
        ):
            first[step] = min(start, first.get(step, start))
    in_time = sorted(first, key=lambda step: (first[step], step))
    telling = [run.step for run in runs if run.step in first]
    return list(dict.fromkeys([*telling, *in_time]))


def _time_edges(ranks: Sequence[RankFacts]) -> tuple[int, ...]:
    """Return times that divide the time of all ranks into equal pieces."""
    spans = [facts.span_ns for facts in ranks if facts.span_ns is not None]
    if not spans:
        return ()
    first, last = min(span[0] for span in spans), max(span[1] for span in spans)
    edges = np.linspace(first, last + 1, PIECES_WITHOUT_STEPS + 1).astype(np.int64)
    return tuple(edges.tolist())


def cut_tracks(tracks: Sequence[Track], start_ns: int, end_ns: int) -> list[Track]:
    """Cut the part in [start_ns, end_ns) from all tracks.

    A slice that crosses a cut is closed there and opened again in the next part, where it has the
    arg `continued`; its pieces add up to its length. A slice without length is in the part of its
    time. An arrow touches the piece in which its slice begins. Arrows that end in another part are
    dropped by the caller.
    """
    return [_cut(track, start_ns, end_ns) for track in tracks]


def _cut(track: Track, start_ns: int, end_ns: int) -> Track:
    content = track.content
    if isinstance(content, Samples):
        kept = (content.time_ns >= start_ns) & (content.time_ns < end_ns)
        return replace(
            track,
            content=replace(content, time_ns=content.time_ns[kept], value=content.value[kept]),
        )
    if not isinstance(content, Slices):
        return track
    kept = np.where(
        content.start_ns == content.end_ns,
        (content.start_ns >= start_ns) & (content.start_ns < end_ns),
        (content.start_ns < end_ns) & (content.end_ns > start_ns),
    )
    rows = np.flatnonzero(kept)
    if content.nested:
        # A cut may make a call as long as the one around it; their order then distinguishes them.
        order = sort_rows(content.start_ns, -content.end_ns)
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


def cut_times(tracks: Sequence[Track], parts: int, start_ns: int, end_ns: int) -> list[int]:
    """Choose times that cut [start_ns, end_ns) into `parts` with about as many slices each.

    Returns:
        Ascending times with both ends; fewer parts if slices are too few.
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


def write_parts(writer: Writer, drawing: Drawing) -> Written:
    """Write several files in order of time, each within the limits, which together hold everything.

    Raises:
        LimitError: a single point in time takes more than a limit.
    """
    limits = writer.limits
    first_ns = first_time_ns(drawing.tracks)
    with writer.maker(drawing.tracks, first_ns) as maker:
        whole, planner = try_exact(writer, drawing, maker)
    if whole is not None:
        return whole
    everything = planner.whole
    share = limits.share(everything)
    count = max(2, int(share / PARTS_FILL) + 1)
    times = cut_times(drawing.tracks, count, first_ns, last_time_ns(drawing.tracks) + 1)
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

    least = _cut_to_fit(drawing.tracks, times, limits, write)
    if not limits.hold(least):
        raise _too_small_for_parts(writer, drawing, times, least)
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
    times: Sequence[int],
    limits: Limits,
    cost_of: Callable[[int, int], Cost],
) -> Cost:
    """Cut between the given times until every part fits, in order of time.

    Returns:
        The cost of the largest part; above the limits for one that cannot be cut, after which no
        more parts are tried.
    """
    largest = Cost()
    for start, end in pairwise(times):
        cost = cost_of(start, end)
        if not limits.hold(cost):
            halves = cut_times(tracks, 2, start, end)
            if len(halves) > 2:
                cost = _cut_to_fit(tracks, halves, limits, cost_of)
            if not limits.hold(cost):
                return cost
        largest = max(largest, cost, key=limits.share)
    return largest


def _too_small_for_parts(
    writer: Writer, drawing: Drawing, times: Sequence[int], least: Cost
) -> LimitError:
    """Search for sufficient limits, starting from the cost of the part that could not be cut."""
    kept = Kept(drawing.steps, drawing.omissions)

    def cost_of(start_ns: int, end_ns: int) -> Cost:
        tracks, _ = without_half_arrows(cut_tracks(drawing.tracks, start_ns, end_ns))
        part = writer.write(tracks, kept, times[0])
        part.draft.discard()
        return part.cost

    limits = writer.limits
    enough = _raised(limits, least)
    while not enough.hold(needed := _cut_to_fit(drawing.tracks, times, enough, cost_of)):
        enough = _raised(enough, needed, GROWTH)
    raised = []
    if enough.size_bytes > limits.size_bytes:
        raised.append((f"{int(enough.size_bytes)} bytes", "--limit"))
    if max(enough.elements - limits.elements, enough.memory_bytes - limits.memory_bytes) > 0:
        raised.append((f"{int(enough.elements)} events", "--max-events"))
    needs, options = (" and ".join(words) for words in zip(*raised, strict=True))
    return LimitError(
        f"the limit of {limits.format(least)[0]} cannot hold one point in time of this selection "
        f"in a part; {needs} would do.",
        do=f"Raise {options}, or take fewer --ranks or --layers.",
    )


def _raised(limits: Limits, cost: Cost, growth: float = 1.0) -> Limits:
    """Raise the limits that a cost exceeds so that they hold it.

    growth: least factor by which they are raised.
    """

    def raised(limit: float, needed: float) -> float:
        return max(math.ceil(needed), limit * growth) if 0 < limit < needed else limit

    return Limits(
        raised(limits.size_bytes, cost.size_bytes),
        raised(limits.elements, cost.elements),
        raised(limits.memory_bytes, cost.memory_bytes),
    )


def existing_parts(target: Path, form: Format) -> list[Path]:
    """Return the existing files that are named as parts of the target, of any number of parts."""
    stem = target.name.removesuffix(form.suffix)
    pattern = re.compile(rf"{re.escape(stem)}\.part\d+of\d+{re.escape(form.suffix)}")
    return sorted(file for file in target.parent.iterdir() if pattern.fullmatch(file.name))


def _part_path(target: Path, form: Format, number: int, count: int) -> Path:
    """Return name.part01of07.pftrace for name.pftrace."""
    stem = target.name.removesuffix(form.suffix)
    width = max(2, len(str(count)))
    return target.with_name(f"{stem}.part{number:0{width}}of{count:0{width}}{form.suffix}")
