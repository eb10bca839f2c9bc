"""The parts of the time of two runs: a tree of metrics below the whole, and classes of work."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.idle.idle_sums import IdleCause
from timeline.analysis.work.work_classes import CLASSES, computing_class
from timeline.tables.table import Table, join_columns
from timeline.tables.times import extent_ns
from timeline.verdict.figures import Figures

WHOLE = "end to end"
"""The metric of all time from the first to the last device record."""
COMPUTING, EXPOSED, COPIES, IDLE = (
    "computing",
    "communication, not overlapped",
    "copies",
    "idle",
)
"""The metrics that add up to the whole."""
AT_ONCE = "overlap of operators"
"""Metric of computing less the sum of its classes; negative, as operators may run concurrently."""
_PARTS = (
    (COMPUTING, "computing_ns"),
    (EXPOSED, "not_overlapped_ns"),
    (COPIES, "copies_ns"),
    (IDLE, "idle_ns"),
)
"""The metrics that add up to the whole, and their columns in OVERLAP."""
_COPIES_AND_IDLE = "copies and idle"
"""Metric that replaces both if a run does not separate copies from idle time."""
WAITING = "waiting for other ranks"
EXPOSED_WAITING = "waiting"
_OF_EXPOSED = (EXPOSED_WAITING, "transfer", "waiting or transfer")
"""The parts of exposed communication; the last is not classified."""
_ALL = (
    (COMPUTING, WHOLE),
    *((name, COMPUTING) for name in CLASSES),
    (AT_ONCE, COMPUTING),
    (EXPOSED, WHOLE),
    *((name, EXPOSED) for name in _OF_EXPOSED),
    (COPIES, WHOLE),
    (IDLE, WHOLE),
    *((cause.words, IDLE) for cause in IdleCause),
    (_COPIES_AND_IDLE, WHOLE),
    (WHOLE, ""),
    ("communication", ""),
    (WAITING, "communication"),
)
"""All metrics and what they are part of, in order of the report."""
_Metric = tuple[str, str]


def overall_parts(
    sides: tuple[Figures, Figures],
    shares: tuple[float, float],
    *,
    vector_known: bool,
    causes_alike: bool = True,
) -> Table:
    """Return the whole and its parts, like the overall table of msprof-analyze compare.

    In both, computing and exposed communication are unions of intervals, and classes of computing
    are sums over operators, which may run concurrently. Waiting is derived from the arrivals of
    ranks here, and from tasks named Notify_Wait there.

    shares: factors for the times of each run. vector_known: whether the vector core is known in
    both runs. causes_alike: whether causes of idle time can be compared.
    """
    copies_apart = all(_knows_copies(side) for side in sides)
    exposed = [_exposed(side) for side in sides]
    with_causes = copies_apart and causes_alike
    idle = [
        _idle_by_cause(side) if with_causes else {}
        for side in of_all_steps((sides[0].idle, sides[1].idle))
    ]
    with_exposed = all(exposed) and any(any(parts.values()) for parts in exposed)
    inner_parts = [
        of_idle | (of_exposed if with_exposed else {})
        for of_idle, of_exposed in zip(idle, exposed, strict=True)
    ]
    runs = [
        _metrics(side, share, parts, vector_known=vector_known, copies_apart=copies_apart)
        for side, share, parts in zip(sides, shares, inner_parts, strict=True)
    ]
    names = [
        name
        for name in _ALL
        if name[0] == WAITING or any(metrics.get(name) is not None for metrics in runs)
    ]
    unknown = [[metrics.get(name, 0) is None for name in names] for metrics in runs]
    columns = [
        np.ma.masked_array([metrics.get(name) or 0 for name in names], mask, np.int64)
        for metrics, mask in zip(runs, unknown, strict=True)
    ]
    return Table(
        {
            "metric": np.array([name for name, _ in names], object),
            "part_of": np.array([whole for _, whole in names], object),
            "base_ns": columns[0],
            "new_ns": columns[1],
            "delta_ns": columns[1] - columns[0],
        }
    )


def _metrics(
    figures: Figures,
    share: float,
    inner_parts: dict[_Metric, int],
    *,
    vector_known: bool,
    copies_apart: bool,
) -> dict[_Metric, int | None]:
    """Return the metrics of one run, None for unknown ones.

    inner_parts: causes of idle time and parts of exposed communication.
    """
    overlap = figures.overlap
    sums = {name: int(np.ma.filled(overlap[column], 0).sum()) for name, column in _PARTS}
    if not copies_apart:
        # Ranks with tables alone only record the sum of both, as free time.
        free_ns = np.ma.filled(overlap["free_ns"], 0)[np.ma.getmaskarray(overlap["idle_ns"])]
        sums[_COPIES_AND_IDLE] = sums.pop(COPIES) + sums.pop(IDLE) + int(free_ns.sum())
    metrics_ns = {(name, WHOLE): total_ns for name, total_ns in sums.items()}
    operators = rows_where(figures.operators, "communication", 0)
    if len(operators):
        classes = classes_of(operators, vector_known=vector_known).tolist()
        for name, total_ns in zip(classes, operators["total_ns"].tolist(), strict=True):
            metrics_ns[name, COMPUTING] = metrics_ns.get((name, COMPUTING), 0) + total_ns
        at_once_ns = sums[COMPUTING] - int(operators["total_ns"].sum())
        if at_once_ns:
            metrics_ns[AT_ONCE, COMPUTING] = at_once_ns
    metrics_ns |= inner_parts
    metrics_ns[WHOLE, ""] = int(extent_ns(figures.overlap).sum())
    metrics_ns["communication", ""] = int(figures.overlap["communication_ns"].sum())
    times: dict[_Metric, int | None] = {
        name: round(total_ns * share) for name, total_ns in metrics_ns.items()
    }
    times[WAITING, "communication"] = _waited_ns(figures, share)
    if np.ma.getmaskarray(overlap["idle_ns"]).any():
        times |= {name: None for name in times if name[0] in (IDLE, _COPIES_AND_IDLE)}
    return times


def _idle_by_cause(idle: Table) -> dict[_Metric, int]:
    """Return idle time by cause."""
    sums_ns: dict[_Metric, int] = {}
    for row in idle.to_dicts():
        key = IdleCause(row["cause"]).words, IDLE
        sums_ns[key] = sums_ns.get(key, 0) + row["total_ns"]
    return sums_ns


def _exposed(figures: Figures) -> dict[_Metric, int]:
    """Return the parts of exposed communication, empty if unknown; see `split_exposed`."""
    exposed_ns = int(np.ma.filled(figures.overlap["not_overlapped_ns"], 0).sum())
    table = figures.exposed
    sums_ns = [int(table[f"{name}_ns"].sum()) if len(table) else 0 for name in _OF_EXPOSED[:2]]
    if exposed_ns and not any(sums_ns):
        return {}
    waiting, transfer, either = ((name, EXPOSED) for name in _OF_EXPOSED)
    parts_ns = {waiting: sums_ns[0], transfer: sums_ns[1]}
    rest_ns = exposed_ns - sum(sums_ns)
    return {**parts_ns, either: rest_ns} if rest_ns else parts_ns


def _waited_ns(figures: Figures, share: float) -> int | None:
    """Return how long ranks waited for others, None if unknown, 0 without communication."""
    waited_ns = int(np.ma.filled(figures.waiting["waited_ns"], 0).sum())
    is_known = waited_ns or figures.waiting["shared"].any()
    if not is_known and int(figures.overlap["communication_ns"].sum()):
        return None
    return round(waited_ns * share)


def _knows_copies(figures: Figures) -> bool:
    """Return whether copies are separate from idle time on all ranks."""
    return not np.ma.getmaskarray(figures.overlap["copies_ns"]).any()


def causes_of(overall: Table) -> Table:
    """Return the metrics below the whole that have no parts, the largest change first."""
    rows = overall.to_dicts()
    wholes = {row["metric"]: row["part_of"] for row in rows}
    with_parts = {row["part_of"] for row in rows}

    def is_cause(metric: str) -> bool:
        above = metric
        while above in wholes and above != WHOLE:
            above = wholes[above]
        return above == WHOLE and metric not in with_parts

    chosen = np.array([is_cause(row["metric"]) for row in rows], np.bool_)
    leaves = overall.take(chosen)
    names = ("cause", *list(leaves.columns)[1:])
    table = Table(dict(zip(names, leaves.columns.values(), strict=True)))
    return table.take(np.argsort(-np.abs(np.ma.filled(leaves["delta_ns"], 0)), kind="stable"))


def figures_of_rank(figures: Figures, rank: int) -> Figures:
    """Return the figures of one rank, for all tables that `overall_parts` uses."""
    names = ("overlap", "operators", "waiting", "exposed", "idle")
    return figures.with_tables(**{name: rows_where(figures[name], "rank", rank) for name in names})


def rows_where(table: Table, column: str, value: int) -> Table:
    """Return the rows with a value in a column; a table without rows may lack the column."""
    return table.take(table[column] == value) if len(table) else table


def of_all_steps(tables: tuple[Table, Table]) -> tuple[Table, Table]:
    """Return the rows of the whole selection from two tables of idle time, if both have any."""
    base, new = (
        table.take(np.ma.getmaskarray(table["step"])) if len(table) else table for table in tables
    )
    return (base, new) if len(base) and len(new) else (Table({}), Table({}))


def classes_of(operators: Table, *, vector_known: bool) -> npt.NDArray[Any]:
    """Return the class of each operator."""
    rows = zip(*(operators[name].tolist() for name in ("type", "name", "core")), strict=True)
    return np.array([computing_class(*row, vector_known=vector_known) for row in rows], object)


def pair_classes(sides: tuple[Table, Table], shares: tuple[float, float]) -> Table:
    """Return the classes of both runs in order of appearance; none if neither run has any.

    Args:
        sides: rows of WORK_CLASSES. A class is known for a run if it is for all its ranks.
        shares: factors for the times of each run.

    Returns:
        metric, part_of (empty), base_ns, new_ns and delta_ns; by, base_count and new_count; masked
        if unknown for a run.
    """
    runs = [_class_sums(side, share) for side, share in zip(sides, shares, strict=True)]
    rows = []
    for by, metric in {**runs[0], **runs[1]} if any(any(run.values()) for run in runs) else ():
        base, new = (run.get((by, metric)) or (None, None) for run in runs)
        delta_ns = None if base[1] is None or new[1] is None else new[1] - base[1]
        rows.append((metric, "", base[1], new[1], delta_ns, by, base[0], new[0]))
    return Table.of_rows(_COLUMNS, rows)


_COLUMNS = {
    "metric": object,
    "part_of": object,
    "base_ns": int,
    "new_ns": int,
    "delta_ns": int,
    "by": object,
    "base_count": int,
    "new_count": int,
}


def _class_sums(side: Table, share: float) -> dict[tuple[str, str], tuple[int, int] | None]:
    """Return the count and time of each class over all ranks, None if a rank does not know it."""
    parts: dict[tuple[str, str], list[tuple[int | None, int | None]]] = {}
    for row in side.to_dicts():
        parts.setdefault((row["by"], row["metric"]), []).append((row["count"], row["total_ns"]))
    sums = dict[tuple[str, str], tuple[int, int] | None]()
    for key, of_ranks in parts.items():
        counts, times_ns = zip(*of_ranks, strict=True)
        is_known = None not in counts and None not in times_ns
        sums[key] = (sum(counts), round(sum(times_ns) * share)) if is_known else None
    return sums


def with_classes(parts: Table, classes: Table) -> Table:
    """Return both in one table; rows of parts have no `by` and no counts."""
    names = list(_COLUMNS)[:5]
    columns = {name: join_columns([parts[name], classes[name]]) for name in names}
    for name, kind in list(_COLUMNS.items())[5:]:
        empty = np.full(len(parts), "", object) if kind is object else np.zeros(len(parts), int)
        absent = np.ma.masked_array(empty, np.ones(len(parts), np.bool_))
        columns[name] = join_columns([absent, classes[name]])
    return Table(columns)


def select_parts(overall: Table) -> Table:
    """Return the rows of parts in a table from `with_classes`, without the columns of classes."""
    names = list(_COLUMNS)[:5]
    chosen = overall.take(~are_classes(overall))
    return Table({name: chosen[name] for name in names}) if len(overall.columns) else overall


def select_classes(overall: Table, by: str) -> Table:
    """Return the classes by kernel or launch in a table from `with_classes` that ran in any run."""
    chosen = are_classes(overall)
    if not chosen.any():
        return Table({})
    ran = [np.ma.filled(overall[name], 0) > 0 for name in ("base_count", "new_count")]
    return overall.take(np.ma.filled(overall["by"] == by, False) & (ran[0] | ran[1]))


def are_classes(overall: Table) -> npt.NDArray[np.bool_]:
    """Return a mask of rows that are classes; files of older versions have none."""
    if not _COLUMNS.keys() <= overall.columns.keys():
        return np.zeros(len(overall), np.bool_)
    return np.array([by is not None for by in overall["by"].tolist()], np.bool_)
