"""Turns pictures into files that keep the size limit, in one of four ways."""

from __future__ import annotations

from pathlib import Path

from timeline.encoders.formats import Format
from timeline.errors import LimitError
from timeline.fitting.coarsened import coarsened
from timeline.fitting.leading_steps import trimmed
from timeline.fitting.parts import split_up
from timeline.fitting.writer import Attributes, Part, Writer, Written, steps_of
from timeline.options import ExportOptions, Fit
from timeline.progress import Progress
from timeline.tracks.rank_picture import PictureOptions, RankPicture
from timeline.units import spell_bytes

__all__ = ["Attributes", "Part", "Written", "fit", "steps_of"]


def fit(
    pictures: tuple[RankPicture, ...],
    options: ExportOptions,
    picture_options: PictureOptions,
    target: Path,
    form: Format,
    attributes: Attributes,
    wall_offset_ns: int | None,
    progress: Progress,
) -> Written:
    """Write pictures so that no file exceeds the limit.

    Raises:
        LimitError: they do not fit and nothing may be left out, or the limit is too small for
            anything; then the message says which would do.
        OutputError: a file cannot be written.
    """
    writer = Writer(options, picture_options, target, form, attributes, wall_offset_ns, progress)
    try:
        return _fit(writer, pictures)
    except BaseException:
        for draft in writer.drafts:
            draft.discard()
        raise


def _fit(writer: Writer, pictures: tuple[RankPicture, ...]) -> Written:
    steps = steps_of(pictures)
    if not writer.limit:
        return writer.exact(pictures, steps)
    match writer.options.fit:
        case Fit.COARSEN:
            return coarsened(writer, pictures, steps)
        case Fit.STEPS:
            return trimmed(writer, pictures, steps)
        case Fit.SPLIT:
            return split_up(writer, pictures, steps)
        case Fit.ERROR:
            return exact_or_error(writer, pictures, steps)


def exact_or_error(
    writer: Writer, pictures: tuple[RankPicture, ...], steps: tuple[int, ...]
) -> Written:
    whole = writer.exact(pictures, steps)
    size = whole.parts[0].draft.size_bytes
    if size <= writer.limit:
        return whole
    whole.discard()
    raise LimitError(
        f"the selection needs {spell_bytes(size)} and the limit is {spell_bytes(writer.limit)}; "
        "take fewer --ranks or --steps, or leave out --fit error."
    )
