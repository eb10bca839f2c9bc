"""Files that keep the size limit, in one of the four ways of `--fit`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from timeline.encoders.encoding_workers import EncodingWorkers
from timeline.encoders.formats import Format
from timeline.errors import LimitError
from timeline.fitting.fit_by_coarsening import write_coarsened
from timeline.fitting.fit_by_leading_steps import Redraw, write_leading_steps
from timeline.fitting.fit_by_splitting import write_parts
from timeline.fitting.writer import (
    Arrange,
    Describe,
    Drawing,
    Writer,
    Written,
)
from timeline.options import ExportOptions, Fit
from timeline.progress import Progress
from timeline.tracks.assemble import assemble
from timeline.tracks.rank_tracks import DrawnRank
from timeline.units import spell_bytes

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
) -> Written:
    """Write drawn ranks so that no file exceeds the limit; none where nothing has a time.

    arrange: puts the rows of ranks into one timeline; grouped as the options say if not given.
    workers: other processes that have time to encode.

    Raises:
        LimitError: they do not fit and nothing may be left out, or the limit is too small for
            anything; then the message says which would do.
        OutputError: a file cannot be written.
    """
    if not any(rank.facts.profile.timed for rank in ranks):
        return Written((), tuple(rank.facts for rank in ranks), ())
    arrange = arrange or partial(assemble, by_layer=options.groups_by_layer)
    writer = Writer(options, target, form, describe, wall_offset_ns, progress, arrange, workers)
    try:
        return _fit(writer, writer.draw(ranks), redraw)
    except BaseException:
        for draft in writer.drafts:
            draft.discard()
        raise


def _fit(writer: Writer, drawing: Drawing, redraw: Redraw) -> Written:
    if not writer.limit_bytes:
        return writer.exact(drawing, drawing.steps)
    match writer.options.fit:
        case Fit.COARSEN:
            return write_coarsened(writer, drawing)
        case Fit.STEPS:
            return write_leading_steps(writer, drawing, redraw)
        case Fit.SPLIT:
            return write_parts(writer, drawing)
        case Fit.ERROR:
            return write_all_or_fail(writer, drawing)


def write_all_or_fail(writer: Writer, drawing: Drawing) -> Written:
    """Write everything, or nothing.

    Raises:
        LimitError: it does not fit.
    """
    whole = writer.exact(drawing, drawing.steps)
    size = whole.parts[0].draft.size_bytes
    if size <= writer.limit_bytes:
        return whole
    whole.discard()
    raise LimitError(
        f"the selection needs {spell_bytes(size)} and the limit is "
        f"{spell_bytes(writer.limit_bytes)}.",
        do="Take fewer --ranks or --steps, or leave out --fit error.",
    )
