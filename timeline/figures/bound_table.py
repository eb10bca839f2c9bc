"""The most that can be won in ordinary steps by each cause of lost time, as a table."""

from __future__ import annotations

import numpy as np

from timeline.analysis.path.bounds import most_won_by_waiting, most_won_on_path
from timeline.analysis.path.path_items import PathKind
from timeline.columns.columns import Bool, Int64
from timeline.columns.group_by import group_by
from timeline.figures.rank_tables import Figures
from timeline.figures.table import Table
from timeline.frozen import dataclass
from timeline.records.not_given import NO_ID

__all__ = ["COPIES", "HOST", "WAITING", "bound_table"]

WAITING = "waiting"
COPIES = "copies"
HOST = "host"
_OF_HOST = [kind.label for kind in (PathKind.HOST, PathKind.QUEUED, PathKind.LAUNCH)]
_MAY_IDLE = [*_OF_HOST, PathKind.BETWEEN_TASKS.label]
"""Segments of a path in which nothing runs that the path waits for: there the device may idle."""


def bound_table(figures: Figures) -> Table:
    """A row per cause of lost time, the greatest bound first; none without a critical path.

    cause (`waiting`: for the rank that holds up the others, where it is a single one; `host`: with
    hosts that take no time; `copies`; each cause of idle time, if that time is taken out),
    at_most_ns (no more than that is won over the ordinary steps, see `bounds`), path_ns (how long
    these take). Without steps it is all of the whole selection.
    """
    path = _of_ordinary(figures.critical_path, figures)
    if not len(path):
        return Table({})
    kind = path["kind"].astype(str)
    may_idle = _Lossy.of(figures, path, np.isin(kind, _MAY_IDLE))
    made = {
        cause: _bound(figures, may_idle, figures.idle.take(figures.idle["cause"] == cause))
        for cause in dict.fromkeys(figures.idle["cause"].tolist() if len(figures.idle) else ())
    }
    copies = _copies(figures)
    if len(copies):
        may_copy = _Lossy.of(figures, path, np.isin(kind, [*_MAY_IDLE, PathKind.COPY.label]))
        made[COPIES] = _bound(figures, may_copy, copies)
    if (waiting_ns := _waiting_bound(figures, path)) is not None:
        made[WAITING] = waiting_ns
    on_host = np.isin(kind, _OF_HOST)
    made[HOST] = int(path["duration_ns"][on_host].sum())
    causes = sorted(made, key=lambda cause: (-made[cause], cause))
    path_ns = int(path["duration_ns"].sum())
    return Table(
        {
            "cause": np.array(causes, object),
            "at_most_ns": np.array([made[cause] for cause in causes], np.int64),
            "path_ns": np.full(len(causes), path_ns, np.int64),
        }
    )


def _filled(table: Table, name: str) -> Int64:
    return np.ma.filled(table[name], NO_ID)


def _of_ordinary(table: Table, figures: Figures) -> Table:
    """The rows of ordinary steps; those of the whole selection where there are no steps."""
    if not len(table):
        return table
    steps = figures.steps
    if not len(steps) or not steps["ordinary"].any():
        return table.take(_filled(table, "step") == NO_ID)
    ordinary = steps["step"][steps["ordinary"] == 1]
    return table.take(np.isin(_filled(table, "step"), ordinary))


@dataclass(frozen=True)
class _Lossy:
    """The part of a path in which time may be lost to some causes.

    segments: its rows; step_ranks and before_ns: the rank of each ordinary step of each rank, and
    how much of the part lies before the own work of the rank in that step.
    """

    segments: Table
    step_ranks: Int64
    before_ns: Int64

    @classmethod
    def of(cls, figures: Figures, path: Table, rows: Bool) -> _Lossy:
        segments, steps = path.take(rows), _ordinary_steps(figures)
        if not len(steps):
            return cls(segments, np.empty(0, np.int64), np.empty(0, np.int64))
        before_ns = np.minimum(_on_path(segments, steps), _before_own_start(path, steps))
        return cls(segments, steps["rank"], before_ns)


def _bound(figures: Figures, lossy: _Lossy, lost: Table) -> int:
    """The bound of a cause.

    What is lost between steps is known of the whole selection alone: of that, it is no more than
    paths are there on the rank.

    lost: rank, step (masked for the whole selection) and total_ns of the cause.
    """
    inside = _of_ordinary(lost, figures)
    most_ns = most_won_on_path(_on_path(lossy.segments, inside), inside["total_ns"])
    if not len(lossy.step_ranks):
        return most_ns
    by_rank = group_by(len(lost), [lost["rank"]])
    of_all = np.ma.getmaskarray(lost["step"])
    between_ns = by_rank.sum(np.where(of_all, lost["total_ns"], -lost["total_ns"]))
    ranks = lost["rank"][by_rank.first]
    gaps_ns = np.zeros(len(ranks), np.int64)
    known = np.isin(lossy.step_ranks, ranks)
    at = np.searchsorted(ranks, lossy.step_ranks[known])
    np.add.at(gaps_ns, at, lossy.before_ns[known])
    return most_ns + most_won_on_path(gaps_ns, np.maximum(between_ns, 0))


def _ordinary_steps(figures: Figures) -> Table:
    """The rows of ordinary steps with device work."""
    steps = figures.steps
    return steps.take((steps["ordinary"] == 1) & ~np.ma.getmaskarray(steps["span_ns"]))


def _before_own_start(path: Table, steps: Table) -> Int64:
    """How long after the beginning of the path of each step a rank's own device work begins."""
    step = np.concatenate([_filled(path, "step"), steps["step"]])
    groups = group_by(len(step), [step])
    start_ns = np.asarray(steps["device_start_ns"])
    begins_ns = groups.least(np.concatenate([path["start_ns"], start_ns]))
    before_ns: Int64 = start_ns - begins_ns[groups.group[len(path) :]]
    return before_ns


def _copies(figures: Figures) -> Table:
    """How long copies were exposed, by rank and step, where the profile tells it.

    Masked steps are the whole selection, as in `Figures.idle`.
    """
    steps, overlap = figures.steps, figures.overlap
    rank = np.concatenate([overlap["rank"], steps["rank"]])
    step = np.concatenate([np.full(len(overlap), NO_ID), _filled(steps, "step")])
    copies_ns = [overlap["copies_ns"], steps["copies_ns"]]
    total_ns = np.concatenate([np.ma.filled(column, 0) for column in copies_ns])
    unknown = np.concatenate([np.ma.getmaskarray(column) for column in copies_ns])
    made = Table({"rank": rank, "step": np.ma.masked_equal(step, NO_ID), "total_ns": total_ns})
    return made.take(~unknown)


def _on_path(path: Table, rows: Table) -> Int64:
    """How long the path of the step of each row is on its rank."""
    known = np.flatnonzero(path["profiled"])
    step = np.concatenate([_filled(path, "step")[known], _filled(rows, "step")])
    rank = np.concatenate([_filled(path, "rank")[known], rows["rank"]])
    groups = group_by(len(step), [step, rank])
    spent_ns = np.concatenate([path["duration_ns"][known], np.zeros(len(rows), np.int64)])
    on_path_ns: Int64 = groups.sum(spent_ns)[groups.group[len(known) :]]
    return on_path_ns


def _waiting_bound(figures: Figures, path: Table) -> int | None:
    """The bound of waiting for the culprit, None where there is none."""
    culprit, exposed = figures.held_up.culprit, figures.exposed
    if culprit is None or not len(exposed):
        return None
    on_culprit: Bool = _filled(path, "rank") == culprit.rank
    on_path_ns = int(path["duration_ns"][on_culprit].sum())
    others = np.flatnonzero(exposed["rank"] != culprit.rank)
    waiting_ns = (exposed["exposed_ns"] - exposed["transfer_ns"])[others]
    return most_won_by_waiting(on_path_ns, waiting_ns, _after_own_end(figures, path)[others])


def _after_own_end(figures: Figures, path: Table) -> Int64:
    """How long after the last device end of each rank the ordinary steps ended, summed up."""
    ranks = figures.exposed["rank"]
    rows = _ordinary_steps(figures)
    end_ns = np.asarray(rows["device_start_ns"] + rows["span_ns"])
    every = np.concatenate([_filled(path, "step"), rows["step"]])
    groups = group_by(len(every), [every])
    last_ns = groups.greatest(
        np.concatenate([path["start_ns"] + path["duration_ns"], np.zeros(len(rows), np.int64)])
    )
    after_ns = np.maximum(last_ns[groups.group[len(path) :]] - end_ns, 0)
    summed = np.zeros(len(ranks), np.int64)
    np.add.at(summed, np.searchsorted(ranks, rows["rank"]), after_ns)
    return summed
