"""Ascend NPU profiles as timelines for ui.perfetto.dev, and as tables."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from timeline.version import __version__

if TYPE_CHECKING:
    from timeline.commands.compare import compare, find_changes
    from timeline.commands.export import export
    from timeline.commands.show import read_verdict
    from timeline.commands.verdict import find_verdict
    from timeline.errors import (
        LimitError,
        NoProfileError,
        OutputError,
        RankIdentityError,
        RecordError,
        RegressionError,
        SelectionError,
        SourceError,
        TimelineError,
        TimelineWarning,
        UsageError,
        WorkerError,
    )
    from timeline.layers import Layer
    from timeline.options import Args, Fit
    from timeline.profile import Profile, open_profile
    from timeline.reports.comparison_report import ComparisonReport
    from timeline.reports.export_report import ExportReport
    from timeline.reports.filed_verdict import FiledVerdict
    from timeline.selection import Align, Kind, Selection
    from timeline.tables.table import Table
    from timeline.viewer.opening import show

__all__ = [
    "Align",
    "Args",
    "ComparisonReport",
    "ExportReport",
    "FiledVerdict",
    "Fit",
    "Kind",
    "Layer",
    "LimitError",
    "NoProfileError",
    "OutputError",
    "Profile",
    "RankIdentityError",
    "RecordError",
    "RegressionError",
    "Selection",
    "SelectionError",
    "SourceError",
    "Table",
    "TimelineError",
    "TimelineWarning",
    "UsageError",
    "WorkerError",
    "__version__",
    "compare",
    "export",
    "find_changes",
    "find_verdict",
    "open_profile",
    "read_verdict",
    "show",
]

_HOMES = {
    "Align": "timeline.selection",
    "Args": "timeline.options",
    "ComparisonReport": "timeline.reports.comparison_report",
    "ExportReport": "timeline.reports.export_report",
    "FiledVerdict": "timeline.reports.filed_verdict",
    "Fit": "timeline.options",
    "Kind": "timeline.selection",
    "Layer": "timeline.layers",
    "LimitError": "timeline.errors",
    "NoProfileError": "timeline.errors",
    "OutputError": "timeline.errors",
    "Profile": "timeline.profile",
    "RankIdentityError": "timeline.errors",
    "RecordError": "timeline.errors",
    "RegressionError": "timeline.errors",
    "Selection": "timeline.selection",
    "SelectionError": "timeline.errors",
    "SourceError": "timeline.errors",
    "Table": "timeline.tables.table",
    "TimelineError": "timeline.errors",
    "TimelineWarning": "timeline.errors",
    "UsageError": "timeline.errors",
    "WorkerError": "timeline.errors",
    "compare": "timeline.commands.compare",
    "export": "timeline.commands.export",
    "find_changes": "timeline.commands.compare",
    "find_verdict": "timeline.commands.verdict",
    "open_profile": "timeline.profile",
    "read_verdict": "timeline.commands.show",
    "show": "timeline.viewer",
}
"""Modules of public names, which are imported on first use: most need NumPy, and all take time."""


def _warn_if_uncompiled() -> None:
    """Warn once where sources are imported whose C parts were never compiled, as in a checkout."""
    import warnings  # these imports take too long for the start of the command
    from importlib.machinery import EXTENSION_SUFFIXES
    from pathlib import Path

    parts = Path(__file__).with_name("encoders")
    source = parts / "_wire.c"  # not part of wheels
    if source.exists() and not any((parts / f"_wire{end}").exists() for end in EXTENSION_SUFFIXES):
        found = f"{source.parent.parent} is not compiled, and up to four times slower for that."
        do = "With a C compiler, `pip install -e .` in the directory above compiles it."
        warnings.warn(f"{found} {do}", RuntimeWarning, stacklevel=3)


if not TYPE_CHECKING:  # else type checkers would accept every name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if not globals().keys() & _HOMES.keys():  # the first one
            _warn_if_uncompiled()
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
