"""Rows of a comparison as names and cells, shared by terminal, Markdown and HTML page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from timeline.comparison.comparison import Comparison
from timeline.comparison.parts import WHOLE, select_classes
from timeline.comparison.sentences import cause_label
from timeline.language import said
from timeline.tables.short_names import operator_label
from timeline.tables.table import Table
from timeline.units import ColumnUnit

LEAST = 0.001
"""Minimum change of an operator, as a share of the whole time, for a row of its own."""


def unit_of_sides(table: Table, kind: Literal["ns", "bytes"] = "ns") -> ColumnUnit:
    """Return the unit of the times, or sizes, of both sides and of their changes."""
    values = [*table[f"base_{kind}"].tolist(), *table[f"new_{kind}"].tolist()]
    return ColumnUnit.of_times(values) if kind == "ns" else ColumnUnit.of_sizes(values)


def time_titles(comparison: Comparison, unit: ColumnUnit) -> tuple[str, str, str, str]:
    """Return the headings of the cells of `time_cells`."""
    base, new, change = map(unit.title, (*comparison.sides.titles, "change"))
    return base, new, change, ""


def time_cells(row: dict[str, Any], unit: ColumnUnit) -> tuple[str, str, str, str]:
    """Format the times of both sides, their change, and the change as a share."""
    base, new = unit.format(row["base_ns"]), unit.format(row["new_ns"])
    return base, new, unit.format(row["delta_ns"], signed=True), share_cell(row)


def share_cell(row: dict[str, Any]) -> str:
    """Format the change of a time as a share of the time before, empty if it did not change."""
    if not row["delta_ns"]:
        return ""
    if not row["base_ns"]:
        return said("new", "cell")
    if not row["new_ns"]:
        return said("gone", "cell")
    return f"{row['delta_ns'] / abs(row['base_ns']):+.1%}"


def count_cell(base: int | None, new: int | None, arrow: str) -> str:
    """Format the counts of both runs, as one number if they are equal; a dash for no count."""
    if base == new:
        return "-" if base is None else str(base)
    return arrow.join("-" if count is None else str(count) for count in (base, new))


def class_tables(overall: Table) -> Iterator[tuple[str, Table]]:
    """Yield the tables of classes of work that ran in either run, by "launch" and by "kernel"."""
    for by in ("launch", "kernel"):
        classes = select_classes(overall, by)
        if len(classes):
            yield by, classes


def metric_rows(overall: Table) -> list[tuple[str, int]]:
    """Return the label and the depth of each metric in the tree of parts.

    The direct parts of the whole have depth 0.
    """
    depth = {"": -1, WHOLE: -1}
    for metric, whole in zip(overall["metric"].tolist(), overall["part_of"].tolist(), strict=True):
        depth[metric] = depth[whole] + 1
    return [(cause_label(metric, ""), depth[metric]) for metric in overall["metric"].tolist()]


def worst_and_best(table: Table, whole_ns: int, most: int) -> Table:
    """Return the largest regressions, then the largest improvements, without negligible changes.

    table: rows in order, largest regression first. most: maximum number of rows of each kind.
    """
    least_ns = LEAST * whole_ns
    lost = np.flatnonzero(table["delta_ns"] > least_ns)[:most]
    won = np.flatnonzero(table["delta_ns"] < -least_ns)[-most:]
    return table.take(np.concatenate([lost, won]))


def operator_names(operators: Table) -> list[str]:
    """Return a label per operator: type and name, with shapes if several share a label."""
    labels = list(map(operator_label, operators["type"].tolist(), operators["name"].tolist()))
    rows = zip(labels, operators["shapes"].tolist(), strict=True)
    return [f"{label} {shapes}" if labels.count(label) > 1 else label for label, shapes in rows]


def waiting_names(waiting: Table) -> list[str]:
    """Return a label for the rank that was waited for in each row."""
    return [
        said("some rank" if rank is None else f"rank {rank}{'' if profiled else ' (not read)'}")
        for rank, profiled in zip(
            waiting["waited_for_rank"].tolist(), waiting["profiled"].tolist(), strict=True
        )
    ]


def launcher_names(launchers: Table) -> list[str]:
    """Return a label per row: the operator that launched the work, its phase, and its line."""
    labels = [
        f"{name or 'not known'}{f' ({phase})' if phase in ('forward', 'backward') else ''}"
        for name, phase in zip(
            launchers["launched_by"].tolist(), launchers["phase"].tolist(), strict=True
        )
    ]
    return _with_lines(labels, launchers)


def _with_lines(labels: Sequence[str], rows: Table) -> list[str]:
    """Return labels with the line of code of their rows, where it is known."""
    lines = rows["line"].tolist() if "line" in rows.columns else [None] * len(rows)
    return [
        f"{label} in {line}" if line else label for label, line in zip(labels, lines, strict=True)
    ]


def framework_names(operators: Table) -> list[str]:
    """Return a label per framework operator, with its shapes if operators are split by them."""
    names = zip(operators["name"].tolist(), operators["shapes"].tolist(), strict=True)
    return [f"{name} {shapes}" if shapes else name for name, shapes in names]


def module_names(modules: Table) -> list[str]:
    """Return a label per module: direction, path and line of code."""
    names = zip(modules["path"].tolist(), modules["direction"].tolist(), strict=True)
    labels = [f"{direction}: {path}" for path, direction in names]
    return _with_lines(labels, modules)


def module_times(modules: Table) -> Table:
    """Return the modules with their self times, in the columns base_ns, new_ns and delta_ns."""
    if not len(modules):
        return modules
    times = {f"{run}_ns": modules[f"{run}_self_ns"] for run in ("base", "new", "delta")}
    return Table({**{name: modules[name] for name in ("path", "direction", "line")}, **times})


def notable_memory(operators: Table, most: int) -> Table:
    """Return the operators whose allocations changed most, without negligible changes."""
    if not len(operators):
        return operators
    changed = np.abs(operators["delta_bytes"])
    order = np.argsort(-changed, kind="stable")[:most]
    all_bytes = max(int(operators["base_bytes"].sum()), int(operators["new_bytes"].sum()))
    return operators.take(order[changed[order] > LEAST * all_bytes])


def host_call_names(calls: Table) -> list[str]:
    """Return host calls behind their layers."""
    names = zip(calls["layer"].tolist(), calls["name"].tolist(), strict=True)
    return [f"{layer or 'host'}: {name or 'all others'}" for layer, name in names]


def hccl_names(tasks: Table) -> list[str]:
    """Return a label per HCCL task: the kind of its collective, and the task."""
    kinds = zip(tasks["collective"].tolist(), tasks["task"].tolist(), strict=True)
    return [f"{collective}: {task}" if collective else task for collective, task in kinds]


def copy_names(copies: Table) -> list[str]:
    """Return a label per copy or fill."""
    return [task or "not named" for task in copies["task"].tolist()]


def memory_names(memory: Table) -> list[str]:
    """Return a label per memory counter, with its group if it has one."""
    names = zip(memory["group"].tolist(), memory["name"].tolist(), strict=True)
    return [f"{group}: {name}" if group not in ("", name) else name for group, name in names]


def notable_rows(table: Table, whole_ns: int, most: int) -> Table:
    """Return the rows that changed most, largest change first, without negligible changes."""
    if not len(table):
        return table
    changes_ns = np.abs(np.ma.filled(table["delta_ns"], 0))
    order = np.argsort(-changes_ns, kind="stable")[:most]
    return table.take(order[changes_ns[order] > LEAST * whole_ns])


class ChangedTable(NamedTuple):
    """The display of a table of a comparison, of which the rows that changed most are shown.

    field: of Comparison. title: heading in text. caption, noun: caption and heading of the names
    in a page. names_of: returns the labels of rows.
    """

    field: str
    title: str
    caption: str
    noun: str
    names_of: Callable[[Table], list[str]]

    def rows(self, comparison: Comparison, most: int) -> Table:
        """Return the rows that changed most, without negligible changes."""
        table = getattr(comparison, self.field)
        if self.field == "modules":
            table = module_times(table)
        return notable_rows(table, comparison.whole["base_ns"], most)


CHANGED = (
    ChangedTable("waiting", "waiting for", "Whom ranks waited for", "Waited for", waiting_names),
    ChangedTable("launchers", "launched by", "Who launched it", "Operator", launcher_names),
    ChangedTable("copies", "copies", "Copies", "Task", copy_names),
    ChangedTable("hccl_tasks", "HCCL tasks", "HCCL tasks", "Task", hccl_names),
    ChangedTable(
        "host_calls",
        "host calls, with those inside",
        "Host calls, with those inside",
        "Call",
        host_call_names,
    ),
)
"""Tables of waiting and device work."""
CHANGED_IN_FRAMEWORK = (
    ChangedTable(
        "framework_operators",
        "operator of the framework",
        "Operators of the framework, with the work of operators inside them",
        "Operator",
        framework_names,
    ),
    ChangedTable(
        *("modules", "module, without inner modules", "Modules, without inner modules", "Module"),
        module_names,
    ),
)
"""Tables of operators and modules of the framework."""
