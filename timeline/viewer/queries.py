"""Questions to a timeline in SQL, of which the file beside this one is made."""

from __future__ import annotations

import importlib.resources

__all__ = ["queries_text"]


def queries_text() -> str:
    """All questions as one script, for the Perfetto UI or a trace processor."""
    file = importlib.resources.files("timeline.viewer") / "queries.sql"
    return file.read_text(encoding="utf-8")
