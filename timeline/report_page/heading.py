"""Turns the report of an export into what stands above its pictures."""

from __future__ import annotations

import os
from pathlib import Path

from timeline.printable import printable
from timeline.report import ExportReport

__all__ = ["title_of"]


def title_of(report: ExportReport) -> str:
    """The end of the path below which all captures of the report lie."""
    places = [rank.source.absolute() for rank in report.ranks]
    common = Path(os.path.commonpath(places)) if places else Path()
    return printable("/".join(common.parts[-2:]))
