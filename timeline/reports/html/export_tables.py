"""The tables of the page of an export: ranks, steps, operators, collectives, sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from timeline.columns.columns import Rows
from timeline.figures.operator_tables import OperatorCurves
from timeline.figures.rank_tables import Figures
from timeline.figures.table import Table
from timeline.figures.work_tables import total_over_ranks
from timeline.reports.export_report import ExportReport
from timeline.reports.html.page_table import (
    Column,
    PageTable,
    integer_column,
    page_table,
    share_column,
    text_column,
    time_column,
)
from timeline.reports.html.step_grid import with_parts
from timeline.units import spell_count

MOST_ROWS = 64
"""Longer tables are cut: they keep what takes longest."""
MOST_OPS = 50


def rank_table(report: ExportReport) -> PageTable:
    """Where the time of a mean ordinary step of each rank goes, in order of ranks."""
    mean, table = report.verdict.mean, report.verdict.mean_steps
    shown = table.take(_longest(table, "period_ns"))
    if mean is None or not len(shown):
        return page_table("ranks", "Each rank", [])
    has_steps = mean.steps > 0
    differ = has_steps and len(np.unique(table["steps"])) > 1
    return page_table(
        "ranks",
        "Each rank: its mean step" if has_steps else "Each rank",
        [
            integer_column("Rank", shown["rank"]),
            integer_column("Ordinary steps", shown["steps"]) if differ else None,
            *_parts(shown, "Mean step" if has_steps else "Device time"),
        ],
        _cut_note(table, shown, "rank"),
    )


def step_table(report: ExportReport, *, graphs: bool) -> PageTable:
    """The time of each step and its parts, on the rank where it took longest, in order of time.

    graphs: whether a rank has several.
    """
    table = report.verdict.steps
    shown = table.take(_longest(table, "period_ns"))
    several = len(report.ranks) > 1
    return page_table(
        "steps",
        "Each step, on the rank where it took longest" if several else "Each step",
        [
            integer_column("Graph", shown["graph"]) if graphs else None,
            integer_column("Step", shown["step"]),
            integer_column("Rank", shown["rank"]) if several else None,
            *_parts(shown, "Time"),
            time_column("FP/BP", shown["fp_bp_ns"], like_ns=_largest_ns(shown)),
            time_column("Tail", shown["tail_ns"], like_ns=_largest_ns(shown)),
            time_column("Interval", shown["interval_ns"], like_ns=_largest_ns(shown)),
        ],
        _cut_note(table, shown, "step"),
    )


def operator_tables(totals: Sequence[Table], *, communication: bool) -> Iterator[PageTable]:
    """Operators of all ranks together, or collectives: by type, and by name where known.

    totals: of all, by type and by name.
    """
    noun = "collective" if communication else "operator"
    for by_name, table in zip((False, True), totals, strict=True):
        rows = table.take(table["communication"] == communication)
        named = rows["name"] != "" if by_name else np.ones(len(rows), np.bool_)
        if not named.any():
            continue
        all_ns = int(rows["total_ns"].sum())
        first = np.flatnonzero(named)[:MOST_ROWS]
        shown, rest = rows.take(first), rows.take(np.setdiff1d(np.arange(len(rows)), first))
        average_ns = np.rint(shown["total_ns"] / shown["count"]).astype(np.int64)
        least_ns = int(shown["shortest_ns"].max())
        kind = ("Kind" if communication else "Type", shown["type"])
        yield page_table(
            f"{noun}s-by-{'name' if by_name else 'type'}",
            f"{noun.capitalize()}s by {'name' if by_name else kind[0].lower()}",
            [
                text_column("Name", shown["name"]) if by_name else None,
                text_column(*kind),
                text_column("Core", shown["core"]),
                integer_column("Count", shown["count"]),
                time_column("Total", shown["total_ns"]),
                share_column("Share", shown["total_ns"], all_ns),
                time_column("Average", average_ns, like_ns=least_ns),
                time_column("Min", shown["shortest_ns"]),
                time_column("Max", shown["longest_ns"], like_ns=least_ns),
                time_column("Wait before", shown["waited_ns"]),
            ],
            _rest_note(rest, all_ns),
        )


def launch_tables(figures: Figures) -> Iterator[PageTable]:
    """Computing of all ranks together: by launching operator, and by module, where known."""
    for table, anchor, title, names in (
        (figures.launchers, "operators-by-launch", "Operators by what launched them", _LAUNCHES),
        (figures.modules, "operators-by-module", "Operators by module", {"module": "Module"}),
    ):
        if not len(table):
            continue
        totals = total_over_ranks(table)
        rows = totals.take(totals["communication"] == 0)
        first = next(iter(names))
        if not (rows[first] != "").any():
            continue
        all_ns = int(rows["total_ns"].sum())
        shown, rest = rows.take(slice(MOST_ROWS)), rows.take(slice(MOST_ROWS, None))
        least_ns = int(shown["shortest_ns"].max())
        tells_phase = bool((rows["phase"] != "").any())
        yield page_table(
            anchor,
            title,
            [
                *(text_column(label, shown[name]) for name, label in names.items()),
                text_column("Phase", shown["phase"]) if tells_phase else None,
                integer_column("Count", shown["count"]),
                time_column("Total", shown["total_ns"]),
                time_column("Min", shown["shortest_ns"]),
                time_column("Max", shown["longest_ns"], like_ns=least_ns),
                share_column("Share", shown["total_ns"], all_ns),
            ],
            _rest_note(rest, all_ns),
        )


def file_sum_tables(figures: Figures) -> Iterator[PageTable]:
    """What the profiler itself sums up of operators, of all ranks together: a table per source."""
    for source, caption in _SOURCES.items():
        sums = figures.operator_sums
        rows = sums.take(sums["source"] == source) if len(sums) else sums
        if not len(rows):
            continue
        totals = _total_of_sums(rows)
        all_ns = int(totals["total_ns"].sum())
        shown, rest = totals.take(slice(MOST_ROWS)), totals.take(slice(MOST_ROWS, None))
        like_ns = int(shown["total_ns"].max())
        yield page_table(
            f"operators-of-{source.replace('_', '-')}",
            caption,
            [
                text_column("Type", shown["type"]),
                integer_column("Count", shown["count"]),
                time_column("Total", shown["total_ns"]),
                time_column("Until dispatched", shown["dispatch_ns"], like_ns=like_ns),
                time_column("Run", shown["run_ns"], like_ns=like_ns),
                share_column("Share", shown["total_ns"], all_ns),
            ],
            " ".join(filter(None, ["Shares are of this table.", _rest_note(rest, all_ns)])),
        )


_SOURCES = {
    "aicore_intermediate": "AI Core, as the profiler sums it up",
    "aicpu_intermediate": "AI CPU, as the profiler sums it up",
    "aicpu": "AI CPU, by its log",
}
_SUMMED = ("count", "total_ns", "dispatch_ns", "run_ns")


def _total_of_sums(rows: Table) -> Table:
    """The rows of all ranks together, longest first; masked where a rank does not tell."""
    types, which = np.unique(np.array(rows["type"].tolist(), str), return_inverse=True)
    summed = {}
    for name in _SUMMED:
        sums = np.zeros(len(types), np.int64)
        np.add.at(sums, which, np.ma.filled(rows[name], 0))
        absent = np.zeros(len(types), np.bool_)
        absent[which[np.ma.getmaskarray(rows[name])]] = True
        summed[name] = np.ma.masked_array(sums, absent)
    kinds = np.where(types == "", "not named", types).astype(object)
    order = np.argsort(-np.ma.filled(summed["total_ns"], 0), kind="stable")
    return Table({"type": kinds, **summed}).take(order)


def curves_note(curves: OperatorCurves, ranks: int) -> str:
    """What is drawn of types of operators over steps, and what is not."""
    drawn = "Each curve is drawn from 0 to its largest value"
    means = ", the mean of all ranks" if ranks > 1 else ""
    shown_ns = int(curves.totals_ns.sum())
    share = curves.others_ns / max(1, shown_ns + curves.others_ns)
    rest = f" All other types together: {share:.1%}." if curves.others_ns else ""
    return f"{drawn}{means}.{rest}"


_LAUNCHES = {"launched_by": "Launched by", "operator": "Operator"}


def longest_op_table(report: ExportReport) -> PageTable:
    """The communication ops that took longest on any rank."""
    table = report.figures.longest_ops
    order = np.argsort(-table["duration_ns"], kind="stable") if len(table) else np.zeros(0, int)
    shown = table.take(order[:MOST_OPS])
    return page_table(
        "longest-collectives",
        "Slowest single collectives",
        [
            text_column("Name", shown["name"]),
            text_column("Group", shown["group"]),
            integer_column("Rank", shown["rank"]),
            integer_column("Graph", shown["graph"]),
            integer_column("Step", shown["step"]),
            time_column("Duration", shown["duration_ns"], bars=True),
        ],
    )


def source_table(report: ExportReport) -> PageTable:
    """What was read of each rank."""
    shown = report.ranks[:MOST_ROWS]
    offsets_ns = np.array([rank.offset_ns for rank in shown], np.int64)
    return page_table(
        "sources",
        "What was read",
        [
            integer_column("Rank", np.array([rank.rank for rank in shown])),
            text_column("Capture", np.array([rank.source.name for rank in shown], object)),
            text_column("Layout", np.array([rank.layout for rank in shown], object)),
            integer_column("Tasks", np.array([rank.tasks for rank in shown])),
            integer_column(
                "Communication ops", np.array([rank.communication_ops for rank in shown])
            ),
            integer_column("Steps", np.array([rank.steps for rank in shown])),
            time_column("Clock moved by", offsets_ns) if offsets_ns.any() else None,
        ],
        _left_out(len(report.ranks) - len(shown), "rank"),
    )


def _parts(table: Table, title: str) -> list[Column | None]:
    """The parts of a time with that title."""
    parts = with_parts(table)
    span_ns = _largest_ns(parts)

    def part(name: str, column: str) -> Column | None:
        values_ns = parts[column]
        occurs = bool(np.ma.filled(values_ns, 0).any())
        return time_column(name, values_ns, like_ns=span_ns) if occurs else None

    return [
        time_column(title, parts["period_ns"], bars=True),
        time_column("Compute", parts["computing_ns"], like_ns=span_ns),
        time_column("Overlapped", parts["overlapped_ns"], like_ns=span_ns),
        time_column("Exposed", parts["not_overlapped_ns"], like_ns=span_ns),
        part("Waiting", "waiting_ns"),
        part("Transfer", "transfer_ns"),
        part("Copies", "copies_ns"),
        time_column("Idle", parts["idle_ns"], like_ns=span_ns),
        part("Before and between", "edges_ns"),
        share_column("Share exposed", parts["not_overlapped_ns"], parts["period_ns"]),
    ]


def _largest_ns(table: Table) -> int:
    """The time whose unit all others of the table take."""
    return int(table["period_ns"].max()) if len(table) else 0


def _longest(table: Table, column: str) -> Rows:
    """The rows that take longest, in the order of the table."""
    if not len(table):
        return np.zeros(0, np.int64)
    return np.sort(np.argsort(-np.asarray(table[column]), kind="stable")[:MOST_ROWS])


def _cut_note(table: Table, shown: Table, noun: str) -> str:
    left = len(table) - len(shown)
    return (left and f"The {len(shown)} that take longest; {_left_out(left, noun)}") or ""


def _left_out(count: int, noun: str) -> str:
    return f"{spell_count(count, f'more {noun}')} in the JSON report (--json)." if count else ""


def _rest_note(rest: Table, all_ns: int) -> str:
    """What the rows that are left out come to."""
    if not len(rest):
        return ""
    share = int(rest["total_ns"].sum()) / max(1, all_ns)
    return f"All others together: {spell_count(int(rest['count'].sum()), 'run')}, {share:.1%}."
