"""Turns the report of an export into files beside its timeline, not yet published."""

from __future__ import annotations

from pathlib import Path

from timeline.encoders.sink import Draft, write_draft
from timeline.report import ExportReport
from timeline.report_page.page import page
from timeline.report_page.still import still

__all__ = ["drafts"]


def drafts(
    report: ExportReport, page_target: Path | None, still_target: Path | None
) -> list[tuple[Draft, Path]]:
    """The page and the still picture, as far as they have a name.

    Raises:
        OutputError: a directory cannot be written; nothing is left behind.
    """
    wanted = [
        (draw(report), target)
        for draw, target in ((page, page_target), (still, still_target))
        if target is not None
    ]
    written: list[tuple[Draft, Path]] = []
    try:
        for content, target in wanted:
            written.append((write_draft([content], target), target))
    except BaseException:
        for draft, _ in written:
            draft.discard()
        raise
    return written
