"""Detail of nothing but the leading part of a rank, to keep a size limit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from timeline.analysis.cut import cut, cut_window, device_span_ns
from timeline.analysis.selected_rank import Missing, SelectedRank
from timeline.columns.columns import Bool, ColumnTable
from timeline.records.clock import ClockMove
from timeline.records.tables import Omission, OmissionCode, Records
from timeline.selection import Selection

__all__ = ["Leading", "count_detail_rows", "detail_omission", "with_leading_detail"]

LIMIT_REASON = "the size limit left no room for them"
"""Why detail behind the leading part is left out."""


@dataclass(frozen=True)
class Leading:
    """Whose detail is drawn of each rank: that of some steps, else of a part of the time.

    left_out: the steps whose detail is not; window_ns: [start, end) where there are no steps.
    """

    steps: frozenset[int] = frozenset()
    left_out: tuple[int, ...] = ()
    window_ns: tuple[int, int] | None = None

    def moved_back(self, move: ClockMove) -> Leading:
        """The leading part, moved back to the clock that times were moved from."""
        if self.window_ns is None:
            return self
        start_ns, end_ns = self.window_ns
        return replace(self, window_ns=(move.back(start_ns), move.back(end_ns)))


def with_leading_detail(selected: SelectedRank, leading: Leading) -> SelectedRank:
    """What is selected of a rank, with detail in its leading part only."""
    full = selected.records
    if leading.window_ns is not None:
        empty = leading.window_ns[0] >= leading.window_ns[1]
        detail = _nothing(full) if empty else cut_window(selected.cut, *leading.window_ns).records
    else:
        detail = cut(full, Selection(steps=leading.steps)).records
    span = device_span_ns(full)
    if span is None:
        return replace(selected, detail=detail)
    missing = Missing(
        _end_of_detail_ns(detail, span, leading),
        span[1],
        leading.left_out,
        len(full.tasks) - len(detail.tasks),
        len(full.planes) - len(detail.planes),
        len(full.host) - len(detail.host),
    )
    return replace(selected, detail=detail, missing=missing)


def _end_of_detail_ns(detail: Records, span: tuple[int, int], leading: Leading) -> int:
    if leading.window_ns is not None:
        return min(max(leading.window_ns[1], span[0]), span[1])
    reach = [int(table.end_ns.max()) for table in (detail.tasks, detail.ops) if len(table)]
    return max(reach, default=span[0])


def _nothing(records: Records) -> Records:
    def none(table: ColumnTable) -> Bool:
        return np.zeros(len(table), np.bool_)

    return records.filter(
        tasks=none(records.tasks),
        ops=none(records.ops),
        planes=none(records.planes),
        host=none(records.host),
        samples=none(records.samples),
    )


def count_detail_rows(records: Records) -> int:
    """How many rows of records the detail draws."""
    return (
        len(records.tasks)
        + len(records.planes)
        + len(records.ops)
        + len(records.host)
        + len(records.samples)
    )


def detail_omission(selected: SelectedRank) -> Omission | None:
    """What was left out of the detail of a rank; None if nothing was."""
    missing = selected.missing
    if missing is None:
        return None
    rows = count_detail_rows(selected.records) - count_detail_rows(selected.detail)
    return Omission(
        LIMIT_REASON,
        rows,
        selected.records.rank,
        missing.steps,
        loss=True,
        code=OmissionCode.SIZE_LIMIT,
    )
