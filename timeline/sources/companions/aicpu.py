"""Draws the tasks of AI CPUs that a raw log tells of, beside what the device recorded of itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from timeline.columns.strings import NO_NAME
from timeline.records.not_given import NO_TIME
from timeline.records.tables import AI_CPU, HostEvents, Records
from timeline.records.task_kinds import Unit, unit_of
from timeline.sources.profiler_tables.aicpu_log import read_aicpu_tasks
from timeline.sources.profiler_tables.builder import TablesBuilder
from timeline.sources.profiler_tables.file_kinds import TableFiles

__all__ = ["with_aicpu_tasks"]

UNNAMED = "not named"


def with_aicpu_tasks(records: Records, files: TableFiles) -> Records:
    """The records with tasks of AI CPUs by thread, where device tasks hold none of them.

    They are no device tasks: the log of the device may hold them too, and does not name them. Both
    are on the counter of the device. What is damaged in the log is counted where tables are read.
    """
    kinds = np.unique(records.tasks.task_type).tolist()
    if any(unit_of(records.strings[code]) is Unit.AI_CPU for code in kinds):
        return records
    into = TablesBuilder(records.rank)
    tasks = read_aicpu_tasks(files, into)
    tasks = tasks.take(tasks.start_ns != NO_TIME)
    if not len(tasks):
        return records
    strings = records.strings
    names = {code: strings.code(into.strings[code]) for code in np.unique(tasks.name).tolist()}
    names[NO_NAME] = strings.code(UNNAMED)
    events = HostEvents.of(
        len(tasks),
        {
            "start_ns": tasks.start_ns,
            "end_ns": tasks.end_ns,
            "layer": np.full(len(tasks), strings.code(AI_CPU), np.int32),
            "thread": tasks.thread,
            "name": [names[code] for code in tasks.name.tolist()],
        },
    )
    return replace(records, host=HostEvents.concat([records.host, events]))
