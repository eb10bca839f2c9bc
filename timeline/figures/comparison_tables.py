"""Tables of one run that only a comparison asks for: sums of tasks, memory, single lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.rank_facts import RankFacts
from timeline.figures.table import Table
from timeline.records.not_given import NO_ID

__all__ = [
    "class_table",
    "framework_module_table",
    "framework_operator_table",
    "length_table",
    "memory_table",
    "task_sum_table",
]


def task_sum_table(facts: Sequence[RankFacts]) -> Table:
    """See `Figures.task_sums`."""
    parts = [(rank, rank.task_sums.times) for rank in facts]
    return Table(
        {
            "rank": _ranks([(rank, len(times)) for rank, times in parts]),
            "hccl": _joined([times.hccl.astype(np.int64) for _, times in parts]),
            "collective": _texts([(rank.task_sums.strings, its.collective) for rank, its in parts]),
            "task": _texts([(rank.task_sums.strings, times.task) for rank, times in parts]),
            "count": _joined([times.count for _, times in parts]),
            "total_ns": _joined([times.total_ns for _, times in parts]),
            "size_bytes": _joined([times.size_bytes for _, times in parts]),
        }
    )


def class_table(facts: Sequence[RankFacts]) -> Table:
    """See `Figures.work_classes`."""
    parts = [(rank, rank.class_times) for rank in facts if rank.class_times is not None]
    if not parts:
        return Table.of_rows(_CLASSES, [])
    from timeline.analysis.work.launch_classes import WorkClass

    metrics = np.array([one.metric for one in WorkClass], object)
    unknown = ~_joined([times.known for _, times in parts]).astype(np.bool_)
    return Table(
        {
            "rank": _ranks([(rank, len(times)) for rank, times in parts]),
            "by": np.concatenate(
                [
                    np.empty(0, object),
                    *(np.where(its.launch, "launch", "kernel").astype(object) for _, its in parts),
                ]
            ),
            "metric": metrics[_joined([times.work_class for _, times in parts])],
            "count": np.ma.masked_array(_joined([times.count for _, times in parts]), unknown),
            "total_ns": np.ma.masked_array(
                _joined([times.total_ns for _, times in parts]), unknown
            ),
        }
    )


_CLASSES = {"rank": int, "by": object, "metric": object, "count": int, "total_ns": int}


def memory_table(facts: Sequence[RankFacts]) -> Table:
    """See `Figures.memory`."""
    rows = list[tuple[int, str | None, str, str, int]]()
    for rank in facts:
        memory = rank.memory
        if memory.reserved_bytes != NO_ID:
            rows.append((rank.rank, RESERVED, "", RESERVED, memory.reserved_bytes))
        columns = (memory.table.group, memory.table.name, memory.table.peak_bytes)
        for group, name, peak_bytes in zip(*(one.tolist() for one in columns), strict=True):
            rows.append((rank.rank, None, memory.strings[group], memory.strings[name], peak_bytes))
    return Table.of_rows(_MEMORY, rows)


RESERVED = "reserved"
"""What the most memory that was reserved is called among peaks."""
_MEMORY = {"rank": int, "metric": object, "group": object, "name": object, "peak_bytes": int}


def framework_operator_table(facts: Sequence[RankFacts]) -> Table:
    """See `Figures.framework_operators`."""
    ranks = [(rank, rank.framework) for rank in facts if rank.framework is not None]
    parts = [(sums, sums.operators) for _, sums in ranks]
    return Table(
        {
            "rank": _ranks([(rank, len(sums.operators)) for rank, sums in ranks]),
            "name": _texts([(sums.strings, its.name) for sums, its in parts]),
            "shapes": _texts([(sums.strings, its.shapes) for sums, its in parts]),
            "count": _joined([its.count for _, its in parts]),
            "total_ns": _joined([its.total_ns for _, its in parts]),
            "size_bytes": _joined([its.size_bytes for _, its in parts]),
            "held_ns": _joined([its.held_ns for _, its in parts]),
            "allocates": _joined(
                [np.full(len(its), sums.has_allocations, np.int64) for sums, its in parts]
            ),
        }
    )


def framework_module_table(facts: Sequence[RankFacts]) -> Table:
    """See `Figures.framework_modules`."""
    ranks = [(rank, rank.framework) for rank in facts if rank.framework is not None]
    parts = [(sums, sums.modules) for _, sums in ranks]
    return Table(
        {
            "rank": _ranks([(rank, len(sums.modules)) for rank, sums in ranks]),
            "path": _texts([(sums.strings, its.path) for sums, its in parts]),
            "direction": np.where(
                _joined([its.backward.astype(np.int64) for _, its in parts]) > 0,
                np.array("backward", object),
                np.array("forward", object),
            ),
            "self_ns": _joined([its.self_ns for _, its in parts]),
            "total_ns": _joined([its.total_ns for _, its in parts]),
        }
    )


def length_table(facts: Sequence[RankFacts]) -> Table:
    """See `Figures.lengths`; without rows where any rank tells none of its lengths."""
    operator, length_ns, first = list[npt.NDArray[Any]](), list[npt.NDArray[Any]](), 0
    for rank in facts:
        times, lengths = rank.operators.times, rank.operators.lengths
        if len(lengths) < int(times.count.sum()):
            operator, length_ns = [], []
            break
        operator.append(lengths.operator + first)
        length_ns.append(lengths.length_ns)
        first += len(times)
    return Table({"operator": _joined(operator), "length_ns": _joined(length_ns)})


def _ranks(rows: Sequence[tuple[RankFacts, int]]) -> npt.NDArray[Any]:
    return _joined([np.full(count, rank.rank, np.int64) for rank, count in rows])


def _joined(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _texts(parts: Sequence[tuple[Sequence[str], npt.NDArray[Any]]]) -> npt.NDArray[Any]:
    nothing = np.empty(0, object)
    return np.concatenate([nothing, *(np.array(pool, object)[codes] for pool, codes in parts)])
