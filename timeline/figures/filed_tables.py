"""What the tables of a filed verdict must hold so that text can be made of them.

A file tells them with a checksum, and still may be of another version or made by another program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.idle.idle_sums import IdleCause
from timeline.figures.class_pairs import are_classes
from timeline.figures.comparison import Comparison
from timeline.figures.overall_parts import WHOLE
from timeline.figures.rank_tables import Figures
from timeline.figures.table import Table
from timeline.figures.time_tables import PARTS
from timeline.figures.verdict import Verdict

__all__ = ["comparison_fault", "verdict_fault"]

_TEXTS = frozenset({"call", "cause", "core", "metric", "name", "part_of", "type"}) | frozenset(
    {"class", "collective", "direction", "launched_by", "path", "phase", "shapes", "task"}
)
_REALS = frozenset({"share"})
_FLAGS = frozenset({"profiled"})
_TIMES = "computing_ns? communication_ns? not_overlapped_ns? copies_ns? idle_ns?"
_EDGES = "before_ns? between_ns?"
_OPERATORS = "type core count total_ns share"
_CHANGE = "base_ns? new_ns? delta_ns"
_VERDICT = {
    "steps": f"rank graph? step period_ns {_EDGES} {_TIMES} waiting_ns* transfer_ns*",
    "operators": _OPERATORS,
    "collectives": _OPERATORS,
    "stragglers": "rank caused_ns times_last shared compute_late_ns? host_late_ns? slowest_ns",
    "mean_steps": f"rank steps period_ns {_EDGES} waiting_ns? transfer_ns? {_TIMES}",
}
_FIGURES = {
    "steps": "rank graph?",
    "longest_ops": "rank name step? duration_ns",
    "waited_for": "waited_for_rank? profiled times waited_ns",
    "idle": "step? cause gaps total_ns least_ns?",
    "idle_calls": "step? cause call? total_ns",
}
_COMPARISON = {
    "overall": f"metric part_of {_CHANGE}?",
    "steps": f"base_step? new_step? {_CHANGE}",
    "ranks": f"rank {_CHANGE}",
    "operators": f"type name shapes? {_CHANGE}",
    "collectives": f"type name shapes? {_CHANGE}",
    "waiting": f"waited_for_rank? profiled {_CHANGE}",
    "launchers": f"launched_by? phase? {_CHANGE}",
    "copies": f"task? {_CHANGE}",
    "hccl_tasks": f"collective? task {_CHANGE}",
    "framework_operators": f"name shapes? {_CHANGE}",
    "operator_memory": "name base_bytes new_bytes delta_bytes",
    "modules": "path direction base_total_ns new_total_ns delta_total_ns",
}
"""By table, the columns that text is made of; those with a question mark may lack values, and those
with an asterisk may be missing, as in files of before they were told."""


def verdict_fault(verdict: Verdict, figures: Figures) -> str | None:
    """What text cannot be made of; None where it can be of all."""
    faults = [*_faults(verdict, _VERDICT), *_faults(figures, _FIGURES)]
    if faults:
        return faults[0]
    if not len(verdict.mean_steps):
        return None if verdict.mean is None else "mean_steps has no rows"
    if missing := {"period_ns", "waiting_ns", *PARTS} - {"outside_ns"} - set(verdict.rank_means):
        return f"rank_means lacks {min(missing)}"
    for table in (verdict.operators, verdict.collectives):
        if len(table) and (table["count"] < 1).any():
            return "an operator never ran"
    causes = {cause.value for cause in IdleCause}
    if len(figures.idle) and not set(figures.idle["cause"].tolist()) <= causes:
        return "idle has another cause"
    return None


def comparison_fault(comparison: Comparison) -> str | None:
    """What text cannot be made of; None where it can be of all."""
    faults = [*_faults(comparison, _COMPARISON)]
    if faults:
        return faults[0]
    paired = {"operators": comparison.operators, "collectives": comparison.collectives}
    counts = {name for name, table in paired.items() if len(table)} - set(comparison.in_one_run)
    counts |= {"steps", "ranks"} - set(comparison.row_counts)
    if counts:
        return f"the rows of {min(counts)} are not counted"
    overall, known = comparison.overall, {"", WHOLE}
    if not len(overall):
        return "overall has no rows"
    for metric, part_of in zip(
        overall["metric"].tolist(), overall["part_of"].tolist(), strict=True
    ):
        if part_of not in known:
            return f"overall has no {part_of}"
        known.add(metric)
    whole = (overall["metric"] == WHOLE) & ~are_classes(overall)
    if np.ma.getmaskarray(overall["base_ns"])[whole].any() or not whole.any():
        return "the whole is not known"
    return None


def _faults(holder: object, needed: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with the tables, which may have no columns where there is nothing to tell."""
    for one in fields(holder):  # type: ignore[arg-type]
        table = getattr(holder, one.name)
        if not isinstance(table, Table):
            continue
        if any(len(column) != len(table) for column in table.columns.values()):
            yield f"columns of {one.name} are not equally long"
        elif table.columns:
            for word in needed.get(one.name, "").split():
                name = word.rstrip("?*")
                if name not in table.columns and word.endswith("*"):
                    continue
                if not _fits(table.columns.get(name), name, may_lack=word != name):
                    yield f"{one.name} has no {name} that is right"


def _fits(column: npt.NDArray[Any] | None, name: str, *, may_lack: bool) -> bool:
    """Whether a column is there and of its kind; one without any value is of every kind."""
    if column is None:
        return False
    values = column.tolist()
    there = [value for value in values if value is not None]
    kinds: tuple[type, ...] = (
        (str,)
        if name in _TEXTS
        else (bool,)
        if name in _FLAGS
        else (int, float)
        if name in _REALS
        else (int,)
    )
    return (may_lack or len(there) == len(values)) and all(type(one) in kinds for one in there)
