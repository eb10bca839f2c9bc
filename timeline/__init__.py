"""Ascend NPU profiles as timelines for ui.perfetto.dev."""

from __future__ import annotations

from timeline.errors import (
    LimitError,
    NoProfileError,
    OutputError,
    RankIdentityError,
    RecordError,
    SelectionError,
    SourceError,
    TimelineError,
    UsageError,
    WorkerError,
)
from timeline.version import __version__

__all__ = [
    "LimitError",
    "NoProfileError",
    "OutputError",
    "RankIdentityError",
    "RecordError",
    "SelectionError",
    "SourceError",
    "TimelineError",
    "UsageError",
    "WorkerError",
    "__version__",
]
