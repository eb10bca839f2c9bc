"""Selection of one rank: its cut records, their overlap, and the records that are drawn."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from timeline.analysis.cut import Cut, cut, cut_window, device_span_ns
from timeline.analysis.idle.idle_causes import RankIdle
from timeline.analysis.overlap import Overlap, OverlapTotals
from timeline.analysis.sound_records import drop_early_arrows
from timeline.columns.columns import Int64
from timeline.columns.distinct import distinct
from timeline.layers import HOST_LAYERS, Layer
from timeline.records.clock import ClockMove
from timeline.records.tables import (
    CounterSamples,
    Flows,
    HostEvents,
    Omission,
    OmissionCode,
    Records,
)
from timeline.selection import Selection


@dataclass(frozen=True)
class DrawOptions:
    """Options for drawing one rank."""

    layers: frozenset[Layer]
    merge_graphs: bool = True


@dataclass(frozen=True)
class Missing:
    """Interval of one rank without drawn detail: its time, steps, and numbers of records."""

    start_ns: int
    end_ns: int
    steps: tuple[int, ...]
    tasks: int
    hccl_tasks: int
    host_calls: int


@dataclass(frozen=True)
class SelectedRank:
    """Selection of one rank: the records, and the sums over them.

    cut is the whole selection, whose steps and overlap are always drawn; detail holds the records
    drawn one by one, all except those in `missing`. overlap is that of the whole selection;
    step_totals has a row per step.
    """

    cut: Cut
    overlap: Overlap
    step_totals: OverlapTotals
    detail: Records
    missing: tuple[Missing, ...] = ()
    idle: RankIdle | None = None
    """Idle time by cause, None if not requested."""

    @property
    def records(self) -> Records:
        """Return the records of the whole selection."""
        return self.cut.records


def drawn_records(records: Records, drawn: frozenset[Layer]) -> Records:
    """Return records without host calls, arrows and samples, unless a drawn layer needs them.

    Early arrows are dropped in any case, and so are omissions of layers that are not drawn.
    """
    records = drop_early_arrows(records)
    needed = drawn & (HOST_LAYERS | {Layer.ARROWS})
    return replace(
        records,
        host=records.host if needed else HostEvents.empty(),
        samples=records.samples if Layer.COUNTERS in drawn else CounterSamples.empty(),
        flows=records.flows if Layer.ARROWS in drawn else Flows.empty(),
        omissions=omissions_of_drawn(records, drawn),
    )


def omissions_of_drawn(records: Records, drawn: frozenset[Layer]) -> tuple[Omission, ...]:
    """Return the omissions of drawn layers, and those that count whatever is drawn."""
    if records.communication_rule.of_tasks:
        drawn |= {Layer.COMMUNICATION}
    return tuple(
        omission for omission in records.omissions if not omission.layers or omission.layers & drawn
    )


LIMIT_REASON = "the size limit left no room for them"
"""Reason for other detail being left out."""


@dataclass(frozen=True)
class ChosenDetail:
    """Detail to draw of each rank: that of some steps, or of a time window.

    left_out: steps without detail; window_ns: [start, end) if there are no steps.
    """

    steps: frozenset[int] = frozenset()
    left_out: tuple[int, ...] = ()
    window_ns: tuple[int, int] | None = None

    def moved_back(self, move: ClockMove) -> ChosenDetail:
        """Return the choice on the clock before a move."""
        if self.window_ns is None:
            return self
        start_ns, end_ns = self.window_ns
        return replace(self, window_ns=(move.back(start_ns), move.back(end_ns)))


def with_chosen_detail(selected: SelectedRank, chosen: ChosenDetail) -> SelectedRank:
    """Return the selection of a rank with only the chosen detail."""
    full = selected.records
    if chosen.window_ns is not None:
        if chosen.window_ns[0] < chosen.window_ns[1]:
            detail = cut_window(selected.cut, *chosen.window_ns).records
        else:
            detail = full.filter(
                **{table: np.zeros(len(getattr(full, table)), np.bool_) for table in _DETAIL}
            )
    else:
        detail = cut(full, Selection(steps=chosen.steps)).records
    span = device_span_ns(full)
    if span is None:
        return replace(selected, detail=detail)
    return replace(selected, detail=detail, missing=_missing(selected, detail, span, chosen))


def _missing(
    selected: SelectedRank, detail: Records, span: tuple[int, int], chosen: ChosenDetail
) -> tuple[Missing, ...]:
    """Return the intervals without drawn detail, in order."""
    full = selected.records
    if chosen.window_ns is not None:
        starts_ns = np.array([min(max(chosen.window_ns[1], span[0]), span[1])])
        ends_ns, steps = np.array([span[1]]), [chosen.left_out]
    else:
        starts_ns, ends_ns, steps = _stretches(selected, span, chosen)
    tasks, planes, host = (
        _count_left_out(starts_ns, whole.start_ns, part.start_ns)
        for whole, part in (
            (full.tasks, detail.tasks),
            (full.planes, detail.planes),
            (full.host, detail.host),
        )
    )
    return tuple(
        Missing(
            int(start_ns),
            int(end_ns),
            missing_steps,
            int(tasks[row]),
            int(planes[row]),
            int(host[row]),
        )
        for row, (start_ns, end_ns, missing_steps) in enumerate(
            zip(starts_ns, ends_ns, steps, strict=True)
        )
    )


def _stretches(
    selected: SelectedRank, span: tuple[int, int], chosen: ChosenDetail
) -> tuple[Int64, Int64, list[tuple[int, ...]]]:
    """Return the intervals of tasks and ops outside the chosen steps, and their steps."""
    records, membership = selected.records, selected.cut.membership
    steps = records.steps.iteration
    row = np.concatenate([membership.tasks, membership.ops])
    start_ns = np.concatenate([records.tasks.start_ns, records.ops.start_ns])
    end_ns = np.concatenate([records.tasks.end_ns, records.ops.end_ns])
    order = np.argsort(start_ns, kind="stable")
    row, start_ns, end_ns = row[order], start_ns[order], end_ns[order]
    # Records outside steps are left out too, including all records of a rank without steps.
    iteration = np.append(steps, -1)[row]
    left_out = ~np.isin(iteration, list(chosen.steps))
    if not left_out.any():
        none = np.empty(0, np.int64)
        return none, none, []
    first = np.flatnonzero(left_out & ~np.append(False, left_out[:-1]))
    last = np.flatnonzero(left_out & ~np.append(left_out[1:], False))
    ends = np.array(
        [end_ns[begin : stop + 1].max() for begin, stop in zip(first, last, strict=True)]
    )
    missing_steps = [
        tuple(
            step
            for step in distinct(iteration[begin : stop + 1]).tolist()
            if step in set(chosen.left_out)
        )
        for begin, stop in zip(first, last, strict=True)
    ]
    starts = start_ns[first]
    # Work of a chosen step may overlap; the intervals are drawn in one row.
    ends[:-1] = np.minimum(ends[:-1], starts[1:])
    return starts, np.minimum(ends, span[1]), missing_steps


def _count_left_out(starts_ns: Int64, whole_ns: Int64, drawn_ns: Int64) -> Int64:
    """Return the number of records that are not drawn, by the last interval that begins before.

    whole_ns, drawn_ns: starts of all records, and of those that are drawn.
    """
    counts = []
    for times_ns in (whole_ns, drawn_ns):
        place = np.maximum(np.searchsorted(starts_ns, times_ns, side="right") - 1, 0)
        counts.append(np.bincount(place, minlength=len(starts_ns)))
    left_out: Int64 = np.maximum(counts[0] - counts[1], 0)
    return left_out


_DETAIL = ("tasks", "ops", "planes", "host", "samples")
"""Tables whose rows the detail draws."""


def count_detail_rows(records: Records) -> int:
    """Return the number of rows of records that the detail draws, without arrows."""
    return sum(len(getattr(records, table)) for table in _DETAIL)


def detail_omission(selected: SelectedRank) -> Omission | None:
    """Return the omission of a rank's detail; None if nothing was left out."""
    if not selected.missing:
        return None
    rows = count_detail_rows(selected.records) - count_detail_rows(selected.detail)
    return Omission(
        LIMIT_REASON,
        rows,
        selected.records.rank,
        tuple(sorted({step for missing in selected.missing for step in missing.steps})),
        loss=True,
        code=OmissionCode.SIZE_LIMIT,
    )
