"""Reads what a summary needs of a trace or a database, and does nothing with it.

    python -m tests.bench.reading PATH

What this process takes, with all that `tlexport` imports, is what no export of the file can fall
below while it reads in this way.
"""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path

import timeline.cli.export  # noqa: F401 - what the command imports
from timeline.columns.strings import StringPool
from timeline.sources.ascend_trace.events import format_for
from timeline.sources.decoders.event_batch import EventBatch
from timeline.sources.decoders.json_events import read_events
from timeline.sources.decoders.sqlite import open_database
from timeline.sources.source import ReadRequest

TASK_COLUMNS = (
    "startNs",
    "endNs",
    "connectionId",
    "globalTaskId",
    "contextId",
    "streamId",
    "taskId",
    "modelId",
    "taskType",
)
"""What tells which tasks ran when, and what each was."""


def scan_trace(path: Path) -> None:
    """Scan all events of a trace into columns."""
    events = format_for(ReadRequest(frozenset(), every_arg=False, measures=False))
    batch = EventBatch(events, StringPool(), counters=False)
    deque(read_events(events.decoder, path, scan=batch.scan), maxlen=0)


def read_tasks(path: Path) -> None:
    """Read the columns of all tasks of a database."""
    with open_database(path) as database:
        database.integers("TASK", dict.fromkeys(TASK_COLUMNS, 0))


if __name__ == "__main__":
    file = Path(sys.argv[1])
    (read_tasks if file.suffix == ".db" else scan_trace)(file)
