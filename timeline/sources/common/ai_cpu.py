"""The remark on tasks of AI CPUs that a source leaves open: operators, or tasks of the runtime."""

from __future__ import annotations

import numpy as np

from timeline.columns.strings import StringPool
from timeline.records.tables import Tasks
from timeline.records.task_kinds import run_on_ai_cpu
from timeline.units import spell_count, spell_duration

__all__ = ["ai_cpu_remark"]


def ai_cpu_remark(tasks: Tasks, strings: StringPool, knower: str) -> str | None:
    """A remark on AI CPU tasks that do not count as computing, None where there are none.

    Args:
        knower: what would tell which of them ran an operator, and is not there.
    """
    rows = run_on_ai_cpu(tasks.task_type, strings) & ~tasks.compute
    count = int(np.count_nonzero(rows))
    if not count:
        return None
    length_ns = int((tasks.end_ns[rows] - tasks.start_ns[rows]).sum())
    counts = "does not count" if count == 1 else "do not count"
    return (
        f"{spell_count(count, 'AI CPU task')} ({spell_duration(length_ns)}) {counts} as "
        f"computing: only {knower} would tell which of them ran operators."
    )
