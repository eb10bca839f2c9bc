"""Reads what a summary needs of a trace or a database, and does nothing with it.

    python -m tests.bench.reading PATH

What this process takes is what no export of the file can fall below while it reads in this way: it
imports what the command does before it knows what it is to do, and what reads.
"""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path

import timeline.cli.export  # noqa: F401 - what the command imports
from timeline.columns.strings import StringPool
from timeline.sources.ascend_trace.tables import format_for
from timeline.sources.decoders.event_batch import EventBatch
from timeline.sources.decoders.json_events import read_events
from timeline.sources.decoders.sqlite import open_database
from timeline.sources.source import ReadRequest

COLUMNS = {
    "TASK": (
        "startNs",
        "endNs",
        "connectionId",
        "globalTaskId",
        "contextId",
        "streamId",
        "taskId",
        "modelId",
        "taskType",
    ),
    "COMPUTE_TASK_INFO": ("globalTaskId", "taskType", "opType"),
    "COMMUNICATION_OP": ("startNs", "endNs", "connectionId", "opName", "groupName", "opType"),
}
"""What tells which tasks and collectives ran when, and what each was."""


def scan_trace(path: Path) -> None:
    """Scan all events of a trace into columns."""
    events = format_for(ReadRequest(frozenset(), every_arg=False, measures=False))
    batch = EventBatch(events, StringPool(), counters=False)
    deque(read_events(events.decoder, path, scan=batch.scan), maxlen=0)


def read_columns(path: Path) -> None:
    """Read the columns of all rows of a database, and the strings."""
    with open_database(path) as database:
        for table, columns in COLUMNS.items():
            database.integers(table, dict.fromkeys(columns, 0))
        database.texts_by_id("STRING_IDS", "id", "value")


if __name__ == "__main__":
    file = Path(sys.argv[1])
    (read_columns if file.suffix == ".db" else scan_trace)(file)
