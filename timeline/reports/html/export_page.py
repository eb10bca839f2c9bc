"""The HTML page of an export: parts of time, steps, operators, collectives, and sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from timeline.columns.columns import Int64, Rows
from timeline.reports.export_report import ExportReport
from timeline.reports.html.charts import (
    FEW_BARS,
    MOST_BARS,
    PARTS,
    Part,
    StepGrid,
    draw_heat_maps,
    draw_operator_curves,
    draw_rank_bars,
    draw_rank_map,
    draw_steps,
    shown_parts,
    with_parts,
)
from timeline.reports.html.communication_sections import (
    bandwidth_section,
    cluster_section,
    idle_section,
    path_section,
    wait_section,
)
from timeline.reports.html.host_sections import gap_table, host_call_section
from timeline.reports.html.page import (
    Block,
    Tile,
    columns_of,
    folded,
    folded_tables,
    heading,
    left_out,
    note,
    notice_text,
    number_column,
    omissions_section,
    open_column,
    page_table,
    render_page,
    section,
    share_column,
    text_column,
    time_column,
    view_of,
)
from timeline.reports.html.work_sections import data_section, flop_section, memory_section
from timeline.tables.operators import OPERATORS, operator_curves, total_by_type
from timeline.tables.table import Table, sum_rows
from timeline.tables.times import STEPS
from timeline.tables.work import LAUNCHERS, MODULES, total_over_ranks
from timeline.units import format_count, format_short
from timeline.verdict import figures as registry
from timeline.verdict.figures import Figures
from timeline.verdict.verdict import BOUND, MEASURED, Verdict
from timeline.verdict.words import step_shares
from timeline.version import __version__

MOST_ROWS = 64
"""Maximum number of rows of a table, those that take longest."""
MOST_OPS = 50
_SUM_CAPTIONS = {
    "aicore_intermediate": "AI Core, as the profiler sums it up",
    "aicpu_intermediate": "AI CPU, as the profiler sums it up",
    "aicpu": "AI CPU, by its log",
}


def render_export_page(report: ExportReport) -> bytes:
    """Return the report as HTML, a few hundred kB however many ranks and steps there are."""
    figures, verdict = report.figures, report.verdict
    data = data_section(figures, verdict.culprit)
    data_first = verdict.findings.knows_input
    culprit = verdict.culprit
    grid = StepGrid.of(figures)
    sections = (
        _time_section(report, grid),
        data if data_first else None,
        wait_section(figures),
        bandwidth_section(figures),
        idle_section(figures, gap_table(figures, report.outputs)),
        host_call_section(figures),
        path_section(figures),
        _step_section(report, grid),
        _heat_section(grid),
        cluster_section(figures),
        None if data_first else data,
        _operator_section(report),
        _collective_section(report),
        flop_section(figures.flops, several=len(report.ranks) > 1),
        memory_section(figures),
        _other_section(figures),
        omissions_section(
            report.warnings,
            report.omissions,
            report.outputs,
            report.resolutions,
            exact=report.suggestion,
            last=folded(_source_table(report), opened=False),
        ),
    )
    return render_page(
        "Run summary",
        _title(report),
        list(verdict.sentences()) or ["The profile holds no device work of the selection."],
        "" if culprit is None else f"Rank {culprit.rank}",
        notice_text(report.warnings, report.omissions),
        f"tlexport {__version__}. Figures are those of the selection, from records, whatever the "
        "timeline merges; exact values are in the report that <code>--json</code> prints.",
        _tiles(report),
        sections,
        verdict.commands_text(report.see_why),
    )


def _title(report: ExportReport) -> str:
    """Return the last two parts of the path that all captures of the report share."""
    sources = [rank.source.resolve() for rank in report.ranks]
    parents = [{source, *source.parents} for source in sources]
    shared = set.intersection(*parents) if parents else {Path()}
    common = max(shared, key=lambda path: len(path.parts))
    return "/".join(common.parts[-2:])


def _tiles(report: ExportReport) -> Iterator[Tile]:
    """Yield the number of ranks and steps, and the parts of a mean step as in the verdict."""
    yield Tile(str(len(report.ranks)), "rank" if len(report.ranks) == 1 else "ranks")
    mean, steps = report.verdict.mean, len(report.steps)
    ordinary = 0 if mean is None else mean.steps
    if ordinary and ordinary < steps:
        yield Tile(str(ordinary), f"ordinary steps of {steps}")
    elif steps:
        yield Tile(str(steps), "step" if steps == 1 else "steps")
    if mean is None:
        return
    label = "mean step" if mean.steps > 1 else "step" if mean.steps else "device time"
    yield Tile(format_short(mean.period_ns), label)
    for name, share, detail in step_shares(mean):
        yield Tile(f"{share}%", name, detail)


# -- where the time goes ---------------------------------------------------------------------------


def _time_section(report: ExportReport, grid: StepGrid) -> Block | None:
    """Return the section on all ranks: their map, the parts of their time, and a table."""
    means = report.verdict.mean_steps
    used = with_parts(means) if len(means) else means
    parts = shown_parts(used, PARTS) if len(used) else ()
    if not parts:
        return None
    found = _ranks_of_findings(report.verdict)
    few = f"{FEW_BARS} of {len(used)} ranks: those of findings, the one that waits "
    few += "longest, and those that take longest."
    places = {rank.rank: rank.indices for rank in report.ranks}
    waits = "waiting_ns" if np.ma.count(used["waiting_ns"]) else "not_overlapped_ns"
    waiter = used["rank"][np.argmax(np.ma.filled(used[waits], 0))]
    return section(
        "Where the time goes",
        draw_rank_map(used, grid, places, found),
        note(" ".join([*_bars_notes(report, parts), *([few] if len(used) > MOST_BARS else [])])),
        draw_rank_bars(used, parts, first={*found, int(waiter)}),
        folded(_rank_table(report)),
    )


def _ranks_of_findings(verdict: Verdict) -> dict[int, str]:
    """Return the ranks that findings name, each with the numbers of the findings in words.

    A finding of more than half of the ranks names none.
    """
    named: dict[int, list[str]] = {}
    for number, finding in enumerate(verdict.findings.found, 1):
        ranks = finding.ranks or ()
        for rank in ranks if 2 * len(ranks) <= verdict.used_ranks else ():
            named.setdefault(rank, []).append(str(number))
    words = {rank: f"finding {' and '.join(numbers)}" for rank, numbers in named.items()}
    slow = verdict.slow_rank
    return words if words or slow is None else {slow: "the slowest"}


def _bars_notes(report: ExportReport, parts: Sequence[Part]) -> Iterator[str]:
    mean = report.verdict.mean
    if mean is None:
        return
    of_rank = "each rank" if mean.ranks > 1 else "the rank"
    if mean.steps > 1:
        yield f"The mean of the ordinary steps of {of_rank}."
    else:
        yield f"{'The step' if mean.steps else 'All device time'} of {of_rank}."
    roles = {part.role for part in parts}
    if roles & {"waiting", "transfer"}:
        yield "Waiting and transfer are exposed communication: nothing computes meanwhile."
    elif "exposed" in roles:
        yield "Exposed communication runs while nothing computes."


def _rank_table(report: ExportReport) -> Block | None:
    """Return the parts of a mean ordinary step of each rank, in order of ranks."""
    mean, table = report.verdict.mean, report.verdict.mean_steps
    if mean is None:
        return None
    shown = table.take(_longest(table, "period_ns"))
    has_steps = mean.steps > 0
    differ = has_steps and len(np.unique(table["steps"])) > 1
    return page_table(
        "ranks",
        "Each rank: its mean step" if has_steps else "Each rank",
        [
            *columns_of(
                shown, "rank", *(["steps"] if differ else []), titles={"steps": "Ordinary steps"}
            ),
            open_column(report.outputs, shown["rank"]),
            *_parts(shown, "Mean step" if has_steps else "Device time"),
        ],
        _cut_note(table, shown, "rank"),
    )


def _parts(table: Table, title: str) -> list[Block | None]:
    """Return columns of a time and its parts; title: heading of the whole time."""
    parts = with_parts(table)
    span_ns = int(parts["period_ns"].max())

    def part(name: str, column: str, *, rare: bool = True) -> Block | None:
        values_ns = parts[column]
        if rare and not np.ma.filled(values_ns, 0).any():
            return None
        return time_column(name, values_ns, like_ns=span_ns)

    return [
        time_column(title, parts["period_ns"], bars=True),
        part("Compute", "computing_ns", rare=False),
        part("Overlapped", "overlapped_ns", rare=False),
        part("Exposed", "not_overlapped_ns", rare=False),
        part("Waiting", "waiting_ns"),
        part("Transfer", "transfer_ns"),
        part("Copies", "copies_ns"),
        part("Idle", "idle_ns", rare=False),
        part("Before and between", "edges_ns"),
        share_column(
            "Share exposed", np.ma.filled(parts["not_overlapped_ns"], 0), parts["period_ns"]
        ),
    ]


def _longest(table: Table, column: str) -> Rows:
    """Return the rows with the largest values of a column, in the order of the table."""
    return np.sort(np.argsort(-np.asarray(table[column]), kind="stable")[:MOST_ROWS])


def _cut_note(table: Table, shown: Table, noun: str) -> str:
    more = left_out(len(table) - len(shown), noun)
    return f"The {len(shown)} that take longest; {more}" if more else ""


# -- steps -----------------------------------------------------------------------------------------


def _step_section(report: ExportReport, grid: StepGrid) -> Block | None:
    first = next(iter(report.verdict.ranks_to_see), None)
    steps = draw_steps(grid, first)
    if steps is None:
        return None
    steps["why"] = _why_first(report, steps["rank"])
    return section("Step by step", steps, folded(_step_table(report, graphs=grid.several_graphs)))


def _why_first(report: ExportReport, rank: int) -> str:
    """Return the reason why the steps of a rank are drawn first, empty if none is known."""
    culprit, extreme = report.verdict.culprit, report.verdict.rank_extreme
    if culprit is not None and culprit.rank == rank:
        return "which is to be mended first"
    if culprit is not None and rank in [waiter.rank for waiter in culprit.waiters[:1]]:
        return "which waits longest"
    return "the slowest" if extreme is not None and extreme.slowest == rank else ""


def _step_table(report: ExportReport, *, graphs: bool) -> Block | None:
    """Return a table of steps in order of time, with the parts on the rank where each took longest.

    graphs: whether a rank has several graphs.
    """
    table = report.verdict.steps
    if not len(table):
        return None
    shown = table.take(_longest(table, "period_ns"))
    several, like_ns = len(report.ranks) > 1, int(shown["period_ns"].max())
    names = [*(["graph"] if graphs else []), "step", *(["rank"] if several else [])]
    return page_table(
        "steps",
        "Each step, on the rank where it took longest" if several else "Each step",
        [
            *columns_of(shown, *names),
            open_column(report.outputs, shown["rank"], shown["start_ns"], _ends_ns(shown)),
            *_parts(shown, "Time"),
            *columns_of(shown, "fp_bp_ns", "tail_ns", "interval_ns", of=STEPS, like_ns=like_ns),
        ],
        _cut_note(table, shown, "step"),
    )


def _ends_ns(steps: Table) -> Int64:
    """Return when steps end, with their device work."""
    device_ns = np.ma.filled(steps["device_start_ns"] + steps["span_ns"], 0)
    ends_ns: Int64 = np.maximum(np.asarray(steps["end_ns"]), device_ns)
    return ends_ns


def _heat_section(grid: StepGrid) -> Block | None:
    maps, run = draw_heat_maps(grid)
    if not maps:
        return None
    remark = (
        f"Of each {run} neighbouring ranks the slowest is drawn, step by step."
        if run > 1
        else "Light is late, or slow: a light row is such a rank, a light column such a step."
    )
    return section("Ranks by steps", note(remark), {"is": "switch", "charts": maps})


# -- operators and collectives ---------------------------------------------------------------------


def _operator_section(report: ExportReport) -> Block | None:
    figures = report.figures
    curves = operator_curves(figures.operator_steps, figures.operators)
    drawn: list[Block | None] = []
    if curves is not None:
        means = ", the mean of all ranks" if len(report.verdict.ranks) > 1 else ""
        shown_ns = int(curves.totals_ns.sum())
        share = curves.others_ns / max(1, shown_ns + curves.others_ns)
        rest = f" All other types together: {share:.1%}." if curves.others_ns else ""
        scale = f"Each curve is drawn from 0 to its largest value{means}.{rest}"
        parts = (heading("Types by step"), draw_operator_curves(curves), note(scale))
        drawn = [{**part, "class": "on-screen"} for part in parts if part]
    tables = [*_operator_tables(figures, communication=False), _bound_table(figures)]
    tables += _launch_tables(figures)
    remark = (
        "All ranks together. Shares are of all computing, counted once for each operator that "
        "runs. The wait before a run is the gap to the end of the previous kernel, which may be "
        "communication."
    )
    every = folded_tables([*tables, *_file_sum_tables(figures)])
    return section("Operators", *drawn, note(remark if tables else ""), *every)


def _collective_section(report: ExportReport) -> Block | None:
    tables = list(_operator_tables(report.figures, communication=True))
    remark = (
        "All ranks together. A collective cannot end before the last rank has joined: much of its "
        "time may be waiting."
    )
    longest = _longest_op_table(report.figures.longest_ops) if tables else None
    return section("Collectives", note(remark), *folded_tables([*tables, longest]))


def _operator_tables(figures: Figures, *, communication: bool) -> Iterator[Block | None]:
    """Yield tables of operators, or collectives, over all ranks: by type, and by name if known."""
    noun = "collective" if communication else "operator"
    for by_name in (False, True):
        table = total_by_type(figures.operators, by_name=by_name, facts=figures.facts)
        rows = table.take(table["communication"] == communication)
        named = rows["name"] != "" if by_name else np.ones(len(rows), np.bool_)
        if not named.any():
            continue
        all_ns = int(rows["total_ns"].sum())
        first = np.flatnonzero(named)[:MOST_ROWS]
        shown, rest = rows.take(first), rows.take(np.setdiff1d(np.arange(len(rows)), first))
        average_ns = np.rint(shown["total_ns"] / shown["count"]).astype(np.int64)
        least_ns, like = int(shown["shortest_ns"].max()), OPERATORS
        kind = "Kind" if communication else "Type"
        yield page_table(
            f"{noun}s-by-{'name' if by_name else 'type'}",
            f"{noun.capitalize()}s by {'name' if by_name else kind.lower()}",
            [
                *columns_of(shown, *(["name"] if by_name else []), "type", titles={"type": kind}),
                *columns_of(shown, *(["line"] if any(shown["line"]) else []), of=like),
                *columns_of(shown, "core", "count", "total_ns", of=like),
                share_column("Share", shown["total_ns"], all_ns),
                time_column("Average", average_ns, like_ns=least_ns),
                *columns_of(shown, "shortest_ns", of=like),
                *columns_of(shown, "longest_ns", of=like, like_ns=least_ns),
                *columns_of(shown, "waited_ns", titles={"waited_ns": "Wait before"}),
            ],
            _rest_note(rest, all_ns),
        )


def _bound_table(figures: Figures) -> Block | None:
    """Return what bounds the types of operators that take longest, None if nothing was measured."""
    totals = total_by_type(figures.operators, facts=figures.facts)
    is_bound = np.array([one is not None for one in totals["bound"].tolist()], np.bool_)
    is_known = is_bound | ~np.ma.getmaskarray(totals["flop_per_s"])
    shown = totals.take(np.flatnonzero(is_known)[:MOST_ROWS])
    if not len(shown):
        return None
    return page_table(
        "operators-by-bound",
        "Bounds of operators",
        [
            *columns_of(shown, "type", "core", "total_ns", of=OPERATORS),
            *columns_of(shown, *BOUND, *MEASURED, of=OPERATORS),
        ],
        "Of all runs on all ranks, weighted by their time.",
    )


def _launch_tables(figures: Figures) -> Iterator[Block | None]:
    """Yield tables of computing over all ranks: by launching operator and by module, if known."""
    launches = ("launched_by", "operator")
    for spec, anchor, title, names in (
        (LAUNCHERS, "operators-by-launch", "Operators by what launched them", launches),
        (MODULES, "operators-by-module", "Operators by module", ("module",)),
    ):
        table = figures[spec.name]
        if not len(table):
            continue
        totals = total_over_ranks(table)
        rows = totals.take(totals["communication"] == 0)
        if not any(rows[names[0]]):
            continue
        all_ns = int(rows["total_ns"].sum())
        shown, rest = rows.take(slice(MOST_ROWS)), rows.take(slice(MOST_ROWS, None))
        least_ns = int(shown["shortest_ns"].max())
        phase = tuple(one for one in ("line", "phase") if one in rows.columns and any(rows[one]))
        yield page_table(
            anchor,
            title,
            [
                *columns_of(shown, *names, *phase, "count", "total_ns", "shortest_ns", of=spec),
                *columns_of(shown, "longest_ns", of=spec, like_ns=least_ns),
                share_column("Share", shown["total_ns"], all_ns),
            ],
            _rest_note(rest, all_ns),
        )


def _file_sum_tables(figures: Figures) -> Iterator[Block | None]:
    """Yield a table per file with the profiler's own sums of operators, over all ranks."""
    sums = figures.operator_sums
    for source, caption in _SUM_CAPTIONS.items():
        rows = sums.take(sums["source"] == source) if len(sums) else sums
        if not len(rows):
            continue
        totals = _total_of_sums(rows)
        all_ns = int(totals["total_ns"].sum())
        shown, rest = totals.take(slice(MOST_ROWS)), totals.take(slice(MOST_ROWS, None))
        yield page_table(
            f"operators-of-{source.replace('_', '-')}",
            caption,
            [
                *columns_of(shown, "type", "count", "total_ns"),
                *columns_of(
                    *(shown, "dispatch_ns", "run_ns"),
                    like_ns=int(shown["total_ns"].max()),
                    titles={"dispatch_ns": "Until dispatched"},
                ),
                share_column("Share", shown["total_ns"], all_ns),
            ],
            " ".join(filter(None, ["Shares are of this table.", _rest_note(rest, all_ns)])),
        )


def _total_of_sums(rows: Table) -> Table:
    """Return the sums of each type over all ranks, longest first; masked if a rank has no value."""
    names = ("count", "total_ns", "dispatch_ns", "run_ns")
    gaps = {f"no_{name}": np.ma.getmaskarray(rows[name]).astype(np.int64) for name in names}
    totals = sum_rows(Table({**rows.columns, **gaps}), ("type",), (*names, *gaps), by="total_ns")
    columns = {name: np.ma.masked_array(totals[name], totals[f"no_{name}"] > 0) for name in names}
    kinds = np.where(totals["type"] == "", "not named", totals["type"])
    return Table({"type": kinds, **columns})


def _rest_note(rest: Table, all_ns: int) -> str:
    """Return a note with the sum of the rows that are left out, empty without any."""
    if not len(rest):
        return ""
    share = int(rest["total_ns"].sum()) / max(1, all_ns)
    return f"All others together: {format_count(int(rest['count'].sum()), 'run')}, {share:.1%}."


def _longest_op_table(ops: Table) -> Block | None:
    """Return a table of the longest communication ops on any rank."""
    if not len(ops):
        return None
    shown = ops.take(np.argsort(-ops["duration_ns"], kind="stable")[:MOST_OPS])
    return page_table(
        "longest-collectives",
        "Slowest single collectives",
        columns_of(
            *(shown, "name", "group", "rank", "graph", "step", "duration_ns"),
            bars=("duration_ns",),
        ),
    )


def _other_section(figures: Figures) -> Block | None:
    """Return a section of the tables that no other section shows."""
    views = [(one, view) for one in registry.TABLES for view in one.views if not view.section]
    tables = [view_of(one, view, figures[one.name]) for one, view in views]
    return section("Other tables", *folded_tables(tables))


def _source_table(report: ExportReport) -> Block | None:
    """Return a table of the source and the number of records of each rank."""
    shown = report.ranks[:MOST_ROWS]
    offsets_ns = np.array([rank.offset_ns for rank in shown], np.int64)
    return page_table(
        "sources",
        "Sources of ranks",
        [
            number_column("Rank", [rank.rank for rank in shown]),
            text_column("Capture", [rank.source.name for rank in shown]),
            text_column("Layout", [rank.layout for rank in shown]),
            number_column("Tasks", [rank.tasks for rank in shown]),
            number_column("Communication ops", [rank.communication_ops for rank in shown]),
            number_column("Steps", [rank.steps for rank in shown]),
            time_column("Clock moved by", offsets_ns) if offsets_ns.any() else None,
        ],
        left_out(len(report.ranks) - len(shown), "rank"),
    )
