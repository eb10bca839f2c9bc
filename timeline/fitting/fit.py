"""Files that keep the size limit, in one of the four ways of `--fit`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from timeline.analysis.telling_steps import StepRun
from timeline.encoders.formats import Format
from timeline.encoders.piece_maker import EncodingWorkers
from timeline.errors import LimitError
from timeline.fitting.fit_by_coarsening import RedrawExact, write_coarsened
from timeline.fitting.fit_by_splitting import write_parts
from timeline.fitting.fit_by_steps import Redraw, write_steps
from timeline.fitting.limits import Limits
from timeline.fitting.writer import Arrange, Describe, Drawing, Kept, Writer, Written
from timeline.options import ExportOptions, Fit
from timeline.progress import Progress
from timeline.tracks.assemble import assemble
from timeline.tracks.rank_tracks import DrawnRank

__all__ = ["fit", "write_all_or_fail"]


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
    """Write drawn ranks so that no file exceeds the limits; none where nothing has a time.

    arrange: puts the rows of ranks into one timeline; grouped as the options say if not given.
    workers: other processes that have time to encode. telling: runs of steps, those that are to be
    kept longest first. redraw_exact: draws ranks again that were merged before.

    Raises:
        LimitError: they do not fit and nothing may be left out, or the limit is too small for
            anything; then the message says which would do.
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
                return write_coarsened(writer, drawing, telling, redraw_exact)
            case Fit.STEPS:
                return write_steps(writer, drawing, telling, redraw)
            case Fit.SPLIT:
                return write_parts(writer, drawing)
            case Fit.ERROR:
                return write_all_or_fail(writer, drawing)
    except BaseException:
        for draft in writer.drafts:
            draft.discard()
        raise


def write_all_or_fail(writer: Writer, drawing: Drawing) -> Written:
    """Write everything, or nothing.

    Raises:
        LimitError: it does not fit.
    """
    whole = writer.exact(drawing)
    cost = whole.parts[0].cost
    if writer.limits.hold(cost):
        return whole
    whole.discard()
    limit, needed = writer.limits.spelled(cost)
    raise LimitError(
        f"the selection needs {needed} and the limit is {limit}.",
        do="Take fewer --ranks or --steps, or leave out --fit error.",
    )
