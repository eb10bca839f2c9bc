"""Files that keep the size limit, in one of the four ways of `--fit`.

To merge a drawing that is too large, a few units of each layer are measured, resolutions are
planned by importance, the layers are written, and their actual size corrects the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from timeline.analysis.ordinary_steps import StepRun
from timeline.encoders.formats import Format
from timeline.encoders.piece_maker import EncodingWorkers, PieceMaker
from timeline.errors import LimitError
from timeline.fitting.coarsen import Resolution, at_resolution
from timeline.fitting.drawn_layers import (
    DrawnLayer,
    WholeArrows,
    count_drawn,
    describe_resolutions,
)
from timeline.fitting.fit_without_merging import (
    Redraw,
    choose_compression,
    try_exact,
    write_parts,
    write_steps,
)
from timeline.fitting.limits import Limits
from timeline.fitting.plan import (
    ASKED_STEPS_SHARE,
    STEPS_SHARE,
    ExactSteps,
    Plan,
    Planner,
    choose_exact_steps,
)
from timeline.fitting.writer import (
    Arrange,
    Describe,
    Drawing,
    Kept,
    Writer,
    Written,
    first_time_ns,
    too_small_error,
)
from timeline.options import ExportOptions, Fit
from timeline.progress import Progress
from timeline.records.tables import Omission, OmissionCode
from timeline.tracks.assemble import assemble
from timeline.tracks.model import MERGED_END_REASON, Slices, Track
from timeline.tracks.rank_tracks import DrawnRank

AIM = 0.95
"""The share of the limits that plans aim at."""
GOOD_SHARE = 0.9
"""A file that uses this share of the binding limit is not planned again."""
MOST_PLANS = 4
"""Maximum number of files written for one drawing, each planned with the sizes of the previous."""
NO_ROOM_REASON = "arrows for which the limit leaves no room"
"""Reason for leaving out arrows when no slice is merged, though merging was expected."""

RedrawExact = Callable[[ExactSteps], Sequence[DrawnRank] | None]
"""Draws merged ranks again with some steps exact; returns None if no rank was merged."""


def fit(
    ranks: Sequence[DrawnRank],
    redraw: Redraw,
    options: ExportOptions,
    target: Path,
    form: Format,
    describe: Describe,
    wall_offset_ns: int | None,
    progress: Progress,
    arrange: Arrange | None = None,
    workers: EncodingWorkers | None = None,
    telling: Iterable[StepRun] = (),
    redraw_exact: RedrawExact = lambda _: None,
) -> Written:
    """Write drawn ranks so that no file exceeds the limits; no file if nothing has a time.

    arrange: puts the rows of ranks into one timeline; by default grouped as the options say.
    workers: idle processes that can encode. telling: runs of steps, the most important first.
    redraw: draws all ranks again with the chosen detail. redraw_exact: draws merged ranks again.

    Raises:
        LimitError: they do not fit and nothing may be left out, or the limit is too small even for
            the summary; the message then gives a sufficient one.
        OutputError: a file cannot be written.
    """
    if not any(rank.facts.profile.timed for rank in ranks):
        return Written((), tuple(rank.facts for rank in ranks), Kept())
    arrange = arrange or partial(assemble, by_layer=options.groups_by_layer, folds_ranks=form.folds)
    limits = Limits.of(options)
    writer = Writer(
        options, target, form, describe, wall_offset_ns, progress, arrange, limits, workers
    )
    try:
        drawing = writer.draw(ranks)
        if options.bounds_memory:
            writer = replace(writer, limits=limits.with_memory(drawing.tracks))
        if not limits:
            return writer.exact(drawing)
        match options.fit:
            case Fit.COARSEN:
                return _write_coarsened(writer, drawing, telling, redraw_exact)
            case Fit.STEPS:
                return write_steps(writer, drawing, telling, redraw)
            case Fit.SPLIT:
                return write_parts(writer, drawing)
            case Fit.ERROR:
                return _write_all_or_fail(writer, drawing)
    except BaseException:
        for draft in writer.drafts:
            draft.discard()
        raise


def _write_all_or_fail(writer: Writer, drawing: Drawing) -> Written:
    """Write everything, or nothing.

    Raises:
        LimitError: it does not fit.
    """
    whole = writer.exact(drawing)
    cost = whole.parts[0].cost
    if writer.limits.hold(cost):
        return whole
    whole.discard()
    limit, needed = writer.limits.format(cost)
    raise LimitError(
        f"the selection needs {needed} and the limit is {limit}.",
        do="Take fewer --ranks or --steps, or leave out --fit error.",
    )


def _write_coarsened(
    writer: Writer, drawing: Drawing, runs: Iterable[StepRun], redraw: RedrawExact
) -> Written:
    """Write everything if it fits, else at the finest resolutions that do.

    Args:
        runs: steps that stay exact as long as a part of the limits holds them, in order.

    Raises:
        LimitError: all that can be merged is, and it does not fit.
    """
    limits = writer.limits
    with writer.maker(drawing.tracks, first_time_ns(drawing.tracks)) as maker:
        whole, planner = try_exact(writer, drawing, maker)
        if whole is not None:
            return whole
        least = planner.whole
        if planner.sizes:
            asked = writer.options.exact_steps is not None
            planner.exact = choose_exact_steps(
                runs,
                [facts.rank for facts in drawing.facts],
                drawing.tracks,
                planner.sizes,
                limits * (ASKED_STEPS_SHARE if asked else STEPS_SHARE),
            )
            if planner.exact.runs:
                drawn = redraw(planner.exact)
                again = drawing if drawn is None else writer.draw(drawn)
                written = _write_planned(writer, again, planner, maker)
                if written is not None:
                    return written
                planner.exact = ExactSteps()
            written = _write_planned(writer, drawing, planner, maker)
            if written is not None:
                return written
            written = _write_merged(writer, drawing, planner, planner.coarsest(), maker)
            least = written.parts[0].cost
            if limits.hold(least):
                return written
            written.discard()
    everything = writer.exact(drawing)
    everything.discard()
    raise too_small_error(limits, min(least, everything.parts[0].cost, key=limits.share))


def _write_planned(
    writer: Writer, drawing: Drawing, planner: Planner, maker: PieceMaker
) -> Written | None:
    """Write files by corrected plans until one uses the limits well; None if no file keeps them."""
    limits = writer.limits
    best: Written | None = None
    before: Plan | None = None
    for _ in range(MOST_PLANS):
        plan = planner.plan(limits * AIM)
        if before is not None and (plan.levels, plan.part) == (before.levels, before.part):
            break
        before = plan
        written = _write_merged(writer, drawing, planner, plan, maker)
        cost = written.parts[0].cost
        if not limits.hold(cost) or (
            best is not None and limits.share(cost) <= limits.share(best.parts[0].cost)
        ):
            written.discard()
            continue
        if best is not None:
            best.discard()
        best = written
        if limits.share(cost) >= GOOD_SHARE:
            break
    return best


def _write_merged(
    writer: Writer, drawing: Drawing, planner: Planner, plan: Plan, maker: PieceMaker
) -> Written:
    """Write one file with its layers merged as planned, whatever its size.

    Its actual cost corrects the sizes on which further plans are based.
    """
    writer.progress.report("Merging what is short", 0, 0)
    limits, exact = writer.limits, planner.exact
    until_ns = _end_of_part(drawing.tracks, plan) if plan.part else None

    def draw(track: Track) -> Track:
        layer = track.size_layer
        if layer is None or layer not in plan.levels:
            return track
        is_refined = layer == plan.refined
        finer = (plan.finer_level, until_ns) if is_refined and until_ns is not None else None
        exact_ns = () if track.rank is None else exact.windows_ns.get(track.rank, ())
        return at_resolution(track, Resolution(plan.levels[layer], exact_ns, finer))

    drawn = list(maker.map(draw, drawing.tracks))
    arrows = WholeArrows(drawn)
    tracks = [arrows.of(track) for track in drawn]
    layers = tuple(_drawn_layers(tracks, plan, planner, until_ns))
    lost = drawing.arrows - arrows.count
    is_merged = any(layer.merged for layer in layers)
    omissions = drawing.omissions
    if lost:
        reason = MERGED_END_REASON if is_merged else NO_ROOM_REASON
        omissions += (Omission(reason, lost, code=OmissionCode.ARROW_CUT),)
    is_limited = is_merged or lost > 0
    kept = Kept(
        drawing.steps,
        omissions,
        layers if is_limited else (),
        exact.runs if is_merged else (),
        limits.binding(sum(plan.costs.values(), planner.base)) if is_limited else None,
    )
    steps: dict[int, list[int]] = {}
    for run in kept.exact:
        steps.setdefault(drawing.facts[run.place].rank, []).append(run.step)
    rows = describe_resolutions(tracks, layers, steps)
    compression = choose_compression(Limits(limits.size_bytes), planner.whole, drawing.tracks)
    part = writer.write(rows, kept, maker.first_ns, compression, apart=True)
    costs = {
        layer: limits.cost(
            part.layer_bytes[layer], [track for track in tracks if track.size_layer == layer]
        )
        for layer in plan.levels
    }
    planner.correct(plan, costs, part.cost)
    return Written((part,), drawing.facts, kept, limits.share(planner.whole))


def _end_of_part(tracks: Sequence[Track], plan: Plan) -> int:
    """Return the time before which the refined layer is finer."""
    starts_ns = np.concatenate(
        [
            track.content.start_ns if isinstance(track.content, Slices) else track.content.time_ns
            for track in tracks
            if track.size_layer == plan.refined and track.content is not None
        ]
    )
    if plan.part >= 1:
        return int(starts_ns.max()) + 1
    return int(np.quantile(starts_ns, plan.part, method="lower"))


def _drawn_layers(
    tracks: Sequence[Track], plan: Plan, planner: Planner, until_ns: int | None
) -> Iterator[DrawnLayer]:
    """Yield each layer as it is drawn, the most important first."""
    for layer, level in plan.levels.items():
        drawn = count_drawn(track for track in tracks if track.size_layer == layer)
        if not drawn.merged:
            yield DrawnLayer(layer, planner.sizes[layer].floor, drawn)
        elif layer == plan.refined and until_ns is not None:
            yield DrawnLayer(layer, level, drawn, plan.finer_level, until_ns)
        else:
            yield DrawnLayer(layer, level, drawn)
