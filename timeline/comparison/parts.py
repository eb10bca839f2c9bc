"""The parts of the time of two runs: the whole, its parts, theirs, and classes of work."""

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
"""The metrics that together are the whole."""
AT_ONCE = "overlap of operators"
"""What classes of computing are more than computing is, because operators run at once; negative."""
_PARTS = (
    (COMPUTING, "computing_ns"),
    (EXPOSED, "not_overlapped_ns"),
    (COPIES, "copies_ns"),
    (IDLE, "idle_ns"),
)
"""What together is the whole, under the names of metrics and of columns."""
_COPIES_AND_IDLE = "copies and idle"
"""One part if a run does not record copies apart from idle time."""
WAITING = "waiting for other ranks"
EXPOSED_WAITING = "waiting"
_OF_EXPOSED = (EXPOSED_WAITING, "transfer", "waiting or transfer")
"""The parts of exposed communication; the last is unclassified."""
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
"""Metrics, and of what they are part, in order of the report."""
_Metric = tuple[str, str]


def overall_parts(
    sides: tuple[Figures, Figures],
    shares: tuple[float, float],
    *,
    vector_known: bool,
    causes_alike: bool = True,
) -> Table:
    """Return the whole and its parts, as msprof-analyze compare has them in its overall table.

    Computing and exposed communication are unions there too, and classes of
    computing are sums over operators, which may run at once. What ranks wait for is found from
    their arrivals here, and from tasks named Notify_Wait there.
    """
    copies_apart = all(_knows_copies(side) for side in sides)
    exposed = [_exposed(side) for side in sides]
    with_causes = copies_apart and causes_alike
    idle = [
        _of_idle(side, told=with_causes) for side in of_all_steps((sides[0].idle, sides[1].idle))
    ]
    is_told = all(exposed) and any(any(parts.values()) for parts in exposed)
    told_apart = [
        of_idle | (of_exposed if is_told else {})
        for of_idle, of_exposed in zip(idle, exposed, strict=True)
    ]
    found = [
        _metrics(side, share, parts, vector_known=vector_known, copies_apart=copies_apart)
        for side, share, parts in zip(sides, shares, told_apart, strict=True)
    ]
    names = [
        name
        for name in _ALL
        if name[0] == WAITING or any(metrics.get(name) is not None for metrics in found)
    ]
    unknown = [[metrics.get(name, 0) is None for name in names] for metrics in found]
    columns = [
        np.ma.masked_array([metrics.get(name) or 0 for name in names], mask, np.int64)
        for metrics, mask in zip(found, unknown, strict=True)
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
    told_apart: dict[_Metric, int],
    *,
    vector_known: bool,
    copies_apart: bool,
) -> dict[_Metric, int | None]:
    """Return the metrics of one run, None for unknown ones; told_apart: parts of some."""
    overlap = figures.overlap
    sums = {name: int(np.ma.filled(overlap[column], 0).sum()) for name, column in _PARTS}
    if not copies_apart:
        # Of ranks with tables alone nothing but their sum is known.
        free_ns = np.ma.filled(overlap["free_ns"], 0)[np.ma.getmaskarray(overlap["idle_ns"])]
        sums[_COPIES_AND_IDLE] = sums.pop(COPIES) + sums.pop(IDLE) + int(free_ns.sum())
    found = {(name, WHOLE): total_ns for name, total_ns in sums.items()}
    operators = rows_where(figures.operators, "communication", 0)
    if len(operators):
        classes = classes_of(operators, vector_known=vector_known).tolist()
        for name, total_ns in zip(classes, operators["total_ns"].tolist(), strict=True):
            found[name, COMPUTING] = found.get((name, COMPUTING), 0) + total_ns
        at_once_ns = sums[COMPUTING] - int(operators["total_ns"].sum())
        if at_once_ns:
            found[AT_ONCE, COMPUTING] = at_once_ns
    found |= told_apart
    found[WHOLE, ""] = int(extent_ns(figures.overlap).sum())
    found["communication", ""] = int(figures.overlap["communication_ns"].sum())
    times: dict[_Metric, int | None] = {
        name: round(total_ns * share) for name, total_ns in found.items()
    }
    times[WAITING, "communication"] = _waited_ns(figures, share)
    if np.ma.getmaskarray(overlap["idle_ns"]).any():
        times |= {name: None for name in times if name[0] in (IDLE, _COPIES_AND_IDLE)}
    return times


def _of_idle(idle: Table, *, told: bool) -> dict[_Metric, int]:
    """Return idle time by cause; none if it is not recorded apart from copies."""
    found: dict[_Metric, int] = {}
    for row in idle.to_dicts() if told else ():
        key = IdleCause(row["cause"]).words, IDLE
        found[key] = found.get(key, 0) + row["total_ns"]
    return found


def _exposed(figures: Figures) -> dict[_Metric, int]:
    """Return the parts of exposed communication, empty if unknown; see `split_exposed`."""
    exposed_ns = int(np.ma.filled(figures.overlap["not_overlapped_ns"], 0).sum())
    table = figures.exposed
    sums_ns = [int(table[f"{name}_ns"].sum()) if len(table) else 0 for name in _OF_EXPOSED[:2]]
    if exposed_ns and not any(sums_ns):
        return {}
    waiting, transfer, either = ((name, EXPOSED) for name in _OF_EXPOSED)
    found = {waiting: sums_ns[0], transfer: sums_ns[1]}
    rest_ns = exposed_ns - sum(sums_ns)
    return {**found, either: rest_ns} if rest_ns else found


def _waited_ns(figures: Figures, share: float) -> int | None:
    """Return how long ranks waited for others, None if not known, 0 without collectives."""
    waited_ns = int(np.ma.filled(figures.waiting["waited_ns"], 0).sum())
    told = waited_ns or figures.waiting["shared"].any()
    if not told and int(figures.overlap["communication_ns"].sum()):
        return None
    return round(waited_ns * share)


def _knows_copies(figures: Figures) -> bool:
    """Return whether copies are recorded apart from idle time on all ranks."""
    return not np.ma.getmaskarray(figures.overlap["copies_ns"]).any()


def causes_of(overall: Table) -> Table:
    """Return the metrics below the whole that have no parts, what changed most first."""
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
    """Return the figures of one rank that parts are made of."""
    names = ("overlap", "operators", "waiting", "exposed", "idle")
    return figures.with_tables(**{name: rows_where(figures[name], "rank", rank) for name in names})


def rows_where(table: Table, column: str, value: int) -> Table:
    """Return the rows that hold a value, none of a table without columns."""
    return table.take(table[column] == value) if len(table) else table


def of_all_steps(tables: tuple[Table, Table]) -> tuple[Table, Table]:
    """Return the rows of all steps together, if both runs have any; tables by idle cause."""
    found = [_of_all_steps(table) for table in tables]
    return (found[0], found[1]) if all(map(len, found)) else (Table({}), Table({}))


def _of_all_steps(idle: Table) -> Table:
    return idle.take(np.ma.getmaskarray(idle["step"])) if len(idle) else idle


def classes_of(operators: Table, *, vector_known: bool) -> npt.NDArray[Any]:
    """Return the class of each operator."""
    columns = (operators[name].tolist() for name in ("type", "name", "core"))
    told = (computing_class(*row, told=vector_known) for row in zip(*columns, strict=True))
    return np.array([*told], object)


def pair_classes(sides: tuple[Table, Table], shares: tuple[float, float]) -> Table:
    """Return the classes of both runs in order of appearance; none if neither run has any.

    Args:
        sides: rows of WORK_CLASSES. A run has a class if all its ranks have it.
        shares: what the times of each run are multiplied by.

    Returns:
        metric, part_of (of nothing), base_ns, new_ns and delta_ns; by, base_count and new_count;
        masked where a run does not tell.
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
    """Return the count and time of each class over all ranks, None if a rank lacks it."""
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
    """Return both in one table; rows that are not of a class have no `by` and no counts."""
    names = list(_COLUMNS)[:5]
    columns = {name: join_columns([parts[name], classes[name]]) for name in names}
    for name, kind in list(_COLUMNS.items())[5:]:
        nothing = np.full(len(parts), "", object) if kind is object else np.zeros(len(parts), int)
        absent = np.ma.masked_array(nothing, np.ones(len(parts), np.bool_))
        columns[name] = join_columns([absent, classes[name]])
    return Table(columns)


def select_parts(overall: Table) -> Table:
    """Return the parts of a whole without its classes, and without the columns of classes."""
    names = list(_COLUMNS)[:5]
    chosen = overall.take(~are_classes(overall))
    return Table({name: chosen[name] for name in names}) if len(overall.columns) else overall


def select_classes(overall: Table, by: str) -> Table:
    """Return the classes of a whole, by kernel or launch, that either run has."""
    chosen = are_classes(overall)
    if not chosen.any():
        return Table({})
    ran = [np.ma.filled(overall[name], 0) > 0 for name in ("base_count", "new_count")]
    return overall.take(np.ma.filled(overall["by"] == by, False) & (ran[0] | ran[1]))


def are_classes(overall: Table) -> npt.NDArray[np.bool_]:
    """Return which rows of a whole are classes; none in files of before there were any."""
    if not _COLUMNS.keys() <= overall.columns.keys():
        return np.zeros(len(overall), np.bool_)
    return np.array([by is not None for by in overall["by"].tolist()], np.bool_)
