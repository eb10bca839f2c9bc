"""Files in which nothing is merged: everything, the detail of some steps, or parts of the time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from timeline.analysis.chosen_detail import ChosenDetail
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.telling_steps import StepRun
from timeline.columns.columns import Bool, Int64
from timeline.columns.distinct import distinct
from timeline.columns.nesting import order_edges
from timeline.encoders.compression import Compression
from timeline.encoders.formats import Format
from timeline.encoders.piece_maker import PieceMaker
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
    first_moment_ns,
    last_moment_ns,
    too_small_error,
)
from timeline.frozen import dataclass
from timeline.layers import SliceKind
from timeline.records.not_given import NO_TIME
from timeline.records.tables import Omission, OmissionCode
from timeline.tracks.model import Arg, ArgKind, Arrows, Samples, Slices, Track, element_count
from timeline.tracks.partition import is_partition
from timeline.tracks.rank_tracks import DrawnRank

ROUGH_BYTES = 8
"""What a slice or sample takes at most in a file of a large profile, where they are much alike."""
TRY_BELOW, TRY_SMALL_BELOW = 1.1, 1.25
"""An exact file is tried though it is expected to take up to so many times the limits: a small one
rather, which is written as soon as it is measured."""
FAST_COMPRESSION_HEADROOM = 1.5
"""How many times the expected size the limit must be, for fast compression to be safe."""
FAST_COMPRESSION_ELEMENTS = 1 << 18
"""Below so many slices and samples the best compression takes no time."""


TARGET_FILL = 0.93
"""How much of the limits files of steps and parts aim at: estimates err by a few percent."""
MOST_WRITES = 3
"""How often a file of steps is written at the most, besides the one that keeps no detail."""
PIECES_WITHOUT_STEPS = 64
"""A profile without steps is trimmed by this many equal pieces of its time instead."""
GROWTH = 1.25
"""Limits that would do are looked for in such steps at least."""
PART_REASON = "arrows from one part to another"
"""Why arrows are left out that a cut goes through."""

Redraw = Callable[[ChosenDetail], Sequence[DrawnRank]]
"""Draws all ranks again, with nothing but the detail that was chosen."""


def try_exact(
    writer: Writer, drawing: Drawing, maker: PieceMaker
) -> tuple[Written | None, Planner]:
    """Write everything, unless it is clear that it exceeds the limits.

    Returns:
        The file, None if it does not fit; and the planner of what could be merged.
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
    likely = not fits and limits.share(expected) <= most
    likely = likely and limits.hold(replace(rough, size_bytes=0))
    return _if_it_fits(writer, drawing, expected) if likely else None, planner


def choose_compression(limits: Limits, expected: Cost, tracks: Sequence[Track]) -> Compression:
    """Return how hard to compress: a large file that has room need not be the smallest."""
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
    opening = maker.opening(picture.timeline, picture.said, Compression.BEST)
    rows = [track for track in drawing.tracks if is_partition(track)]
    return Planner(
        measure_layers(drawing.tracks, measure, drawing.floors),
        writer.limits.cost(len(opening), picture.said),
        screen_level(rows),
    )


@dataclass(frozen=True)
class Trimming:
    """One way to trim: the detail of a number of pieces of all ranks, those that tell most first.

    weights[i] is the number of records in piece i, so the size of any number of pieces can be
    estimated before it is encoded. Without steps pieces are parts of the time, in order.
    """

    steps: tuple[int, ...]
    edges_ns: tuple[int, ...]
    weights: tuple[int, ...]

    @property
    def pieces(self) -> int:
        """The number of pieces."""
        return len(self.weights)

    def first(self, kept: int) -> ChosenDetail:
        """Choose the first `kept` pieces."""
        if self.steps:
            return ChosenDetail(frozenset(self.steps[:kept]), tuple(sorted(self.steps[kept:])))
        if not self.edges_ns:
            return ChosenDetail()
        return ChosenDetail(window_ns=(self.edges_ns[0], self.edges_ns[kept]))


def order_pieces(
    ranks: Sequence[RankFacts], tracks: Sequence[Track], runs: Iterable[StepRun]
) -> Trimming:
    """Order the pieces of the selection that all ranks share: its steps, else its time.

    runs: of steps, those that tell most first; other steps follow in order of time.
    """
    in_time = _steps_in_order(ranks)
    known = set(in_time)
    telling = [run.step for run in runs if run.step in known]
    order = list(dict.fromkeys([*telling, *in_time]))
    if order:
        weights = dict.fromkeys(order, 0.0)
        for facts in ranks:
            _add_weights(weights, facts)
        return Trimming(tuple(order), (), tuple(int(weights[step]) for step in order))
    spans = [facts.span_ns for facts in ranks if facts.span_ns is not None]
    if not spans:
        return Trimming((), (), ())
    first, last = min(span[0] for span in spans), max(span[1] for span in spans)
    edges = np.linspace(first, last + 1, PIECES_WITHOUT_STEPS + 1).astype(np.int64)
    starts = [
        track.content.start_ns
        for track in tracks
        if isinstance(track.content, Slices) and track.content.kind is SliceKind.TASK
    ]
    counts = np.histogram(np.concatenate([edges[:0], *starts]), edges)[0]
    return Trimming((), tuple(edges.tolist()), tuple(counts.tolist()))


def _steps_in_order(ranks: Sequence[RankFacts]) -> list[int]:
    first: dict[int, int] = {}
    for facts in ranks:
        on_device = facts.device_start_ns != NO_TIME
        for step, start in zip(
            facts.steps.iteration[on_device].tolist(),
            facts.steps.start_ns[on_device].tolist(),
            strict=True,
        ):
            first[step] = min(start, first.get(step, start))
    return sorted(first, key=lambda step: (first[step], step))


def _add_weights(weights: dict[int, float], facts: RankFacts) -> None:
    """Records of each step; host events and samples are spread over the steps evenly."""
    for step, count in zip(facts.steps.iteration.tolist(), facts.step_rows.tolist(), strict=True):
        if step in weights:
            weights[step] += count
    for step in weights:
        weights[step] += facts.other_rows / len(weights)


def write_steps(
    writer: Writer, drawing: Drawing, runs: Iterable[StepRun], redraw: Redraw
) -> Written:
    """Write the detail of as many steps as fit, those that tell most, and of all the summary.

    runs: of steps, those that tell most first.

    Raises:
        LimitError: the summary alone does not fit.
    """
    limits = writer.limits
    with writer.maker(drawing.tracks, first_moment_ns(drawing.tracks)) as maker:
        whole, planner = try_exact(writer, drawing, maker)
    if whole is not None:
        return whole
    everything = planner.whole
    trimming = order_pieces(drawing.facts, drawing.tracks, runs)

    def write(kept: int) -> Written:
        chosen = writer.draw(redraw(trimming.first(kept)))
        return writer.exact(replace(chosen, kept_steps=tuple(sorted(trimming.steps[:kept]))))

    records = np.concatenate([[0], np.cumsum(np.maximum(trimming.weights, 1))])
    points = [(0.0, 0.0), (float(records[-1]), limits.share(everything))]
    best: Written | None = None
    low, high = 0, trimming.pieces
    for _ in range(MOST_WRITES - 1):
        count = _pieces_to_try(records, points, low, high)
        if count is None:
            break
        tried = write(count)
        share = limits.share(tried.parts[0].cost)
        points = sorted([*(point for point in points if point[0] > 0), (records[count], share)])
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


def _pieces_to_try(
    records: Int64, points: Sequence[tuple[float, float]], low: int, high: int
) -> int | None:
    """Return the number of pieces that should just fit: `low` does, `high` does not.

    What is used of the limits grows with the number of records in proportion, from what the
    summary takes: two points (records, share) give both.
    """
    if high - low <= 1:
        return None
    (first, first_share), (second, second_share) = points[0], points[1]
    for_one = (second_share - first_share) / max(1.0, second - first)
    wanted = first + (TARGET_FILL - first_share) / max(for_one, 1e-12)
    kept = int(np.searchsorted(records, wanted, side="right")) - 1
    return min(max(kept, low + 1), high - 1)


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
