"""Sections of a page on waiting, bandwidth, idle time, the critical path, and clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from timeline.analysis.idle.idle_sums import IdleCause
from timeline.analysis.path.rank_path import PathKind
from timeline.columns.group_by import group_by
from timeline.errors import format_ids
from timeline.language import said
from timeline.printable import printable
from timeline.records.not_given import NO_ID
from timeline.reports.html.charts import Part, draw_rank_bars, draw_waits
from timeline.reports.html.page import (
    Block,
    columns_of,
    first_rows,
    folded,
    folded_tables,
    format_rank,
    heading,
    left_out,
    note,
    number_column,
    page_table,
    plain_list,
    rate_column,
    section,
    share_column,
    text_column,
    time_column,
)
from timeline.tables.idle import IDLE_CALLS, least_gap_ns, sum_of_selection
from timeline.tables.table import Table, sum_rows
from timeline.tables.waits import (
    LINKS,
    REFERENCE_GB_S,
    WAITED_FOR,
    WAITING,
    WaitMatrix,
    bandwidth_table,
    path_parts,
    reference_gb_s,
)
from timeline.units import format_count, format_duration
from timeline.verdict.advice import mean_rows
from timeline.verdict.figures import Figures

MOST_ROWS = 20
LEAST_ROWS, LEAST_SHARE = 3, 0.01
"""Ranks after the first LEAST_ROWS that cause a smaller share of all waiting are summed up."""
MOST_SIDES = 16
"""Maximum number of ranks whose links are shown as a matrix."""
MOST_IDLE_ROWS, MOST_PATH_ROWS, MOST_LINKS = 50, 24, 50

# -- waiting ---------------------------------------------------------------------------------------


def wait_section(figures: Figures) -> Block | None:
    """Return the section on which ranks wait for which; None if that is unknown."""
    matrix = WaitMatrix.of(figures.waiting, figures.waited_for)
    tables = [_straggler_table(figures.waiting), _waited_for_table(figures.waited_for)]
    remark = (
        "In collectives of all steps, which no rank can finish before the last one arrives. "
        "Starts are compared on one clock."
    )
    if matrix is None:
        return section(
            "Who waits for whom", note(remark), *(folded(table, opened=True) for table in tables)
        )
    drawn = draw_waits(matrix)
    is_map = drawn["is"] == "heat"
    if is_map:
        title = "Each rank by the rank it waited for"
        unknown = "; the last column is of unknown ranks"
        legend = f"Light is long{unknown if '?' in drawn['labels'] else ''}."
    else:
        title, run = "How long others waited for each rank", drawn["run"]
        longest = f"Of each {run} neighbouring ranks the one that others waited for longest."
        legend = longest if run > 1 else ""
    return section(
        "Who waits for whom",
        note(remark),
        heading(title),
        note(legend),
        {**drawn, "class": "waits"},
        *(folded(table, opened=not is_map or table["rows"] <= 8) for table in tables if table),
    )


def _straggler_table(waiting: Table) -> Block | None:
    """Return a table of the ranks that others waited for, by the waiting they caused."""
    caused_ns, waited_ns = (np.ma.filled(waiting[name], 0) for name in ("caused_ns", "waited_ns"))
    order = np.lexsort((-waited_ns, -caused_ns))
    order = order[caused_ns[order] > 0]
    if not len(order):
        return None
    notable = caused_ns[order] >= LEAST_SHARE * caused_ns.sum()
    kept = order[notable | (np.arange(len(order)) < LEAST_ROWS)][:MOST_ROWS]
    shown = waiting.take(kept)
    longest_ns = int(max(shown["caused_ns"].max(), shown["waited_ns"].max()))
    left, punctual = len(order) - len(shown), len(waiting) - len(order)
    left_ns = int(caused_ns[order].sum() - caused_ns[kept].sum())
    notes = [
        f"{format_count(left, 'more rank')} together caused {format_duration(left_ns)}: --json."
        if left
        else "",
        f"Nobody waited for {format_count(punctual, 'other rank')}." if punctual else "",
    ]
    return page_table(
        "stragglers",
        "Who arrives last",
        columns_of(
            *(shown, "rank", "times_last", "caused_ns", "slowest_ns", "waited_ns"),
            of=WAITING,
            bars=("caused_ns", "waited_ns"),
            like_ns=longest_ns,
        ),
        " ".join(filter(None, notes)),
    )


def _waited_for_table(waited_for: Table) -> Block | None:
    """Return a table of pairs of ranks of which one waited for the other, longest first."""
    if not len(waited_for):
        return None
    order = np.argsort(-waited_for["waited_ns"], kind="stable")
    order = order[waited_for["waited_ns"][order] > 0]
    shown = waited_for.take(order[:MOST_ROWS])
    whom = [*map(format_rank, shown["waited_for_rank"].tolist(), shown["profiled"].tolist())]
    return page_table(
        "waits",
        "Longest waits, rank for rank",
        [
            *columns_of(shown, "rank"),
            text_column("Waited for", whom),
            *columns_of(shown, "times", "waited_ns", of=WAITED_FOR, bars=("waited_ns",)),
        ],
        left_out(len(order) - len(shown), "pair", ", all shorter,"),
    )


# -- bandwidth -------------------------------------------------------------------------------------


def bandwidth_section(figures: Figures) -> Block | None:
    """Return the section on bandwidth of links and collectives; None if it is unknown."""
    kinds = bandwidth_table(figures.links)
    shown: list[Block | None] = []
    if len(kinds):
        shown += [heading("Bandwidth of links"), _kind_table(kinds)]
    ends = links_of_known_ends(figures.links)
    if len(ends):
        links = sum_rows(ends, ("group", "source_rank", "target_rank", "link"), ("count", *_MOVED))
        one_group = all(group is None for group in links["group"].tolist())
        sides = len(np.union1d(links["source_rank"], links["target_rank"]))
        if one_group and sides <= MOST_SIDES:
            shown += [heading("Links (GB/s)"), _link_matrix(links)]
        shown.append(folded(_slowest_links(links, kinds), opened=False))
    if len(figures.collectives):
        shown.append(folded(_collective_table(figures.collectives), opened=False))
    return section("Bandwidth", *shown)


_MOVED = ("size_bytes", "total_ns")


def links_of_known_ends(links: Table, *, known: bool = True) -> Table:
    """Return the links whose ends are identified, or with `known` False all others.

    Ends that are numbered within a group are identified only if the group is.
    """
    if not len(links):
        return links
    without_group = [group is None for group in links["group"].tolist()]
    unknown = (links["numbered_in"] == "group") & np.array(without_group, np.bool_)
    return links.take(~unknown if known else unknown)


def _kind_table(kinds: Table) -> Block | None:
    specified = [kind for kind in kinds["link"].tolist() if kind.upper() in REFERENCE_GB_S]
    listed = ", ".join(f"{REFERENCE_GB_S[kind.upper()]:g} GB/s for {kind}" for kind in specified)
    others = "the best link of the run" + (" for others" if specified else "")
    reference = " and ".join(filter(None, [listed, others if len(specified) < len(kinds) else ""]))
    return page_table(
        "bandwidth",
        "Bandwidth of links",
        [
            *columns_of(kinds, "link", "bandwidth_gb_s", "reference_gb_s"),
            share_column("Of reference", kinds["bandwidth_gb_s"] / kinds["reference_gb_s"]),
            *columns_of(kinds, "slowest_gb_s", "fastest_gb_s", "links", "size_bytes"),
        ],
        f"Bandwidth is all data by all time. The reference is {reference}. Small transfers "
        "stay far below it.",
    )


def _collective_table(collectives: Table) -> Block | None:
    """Return a table of collectives by kind and group over all ranks, longest first."""
    moved = np.ma.filled(collectives["bandwidth_gb_s"] * collectives["transfer_ns"], 0)
    added = {"ranks": np.ones(len(collectives), np.int64), "moved": moved}
    sums = sum_rows(
        Table({**collectives.columns, **added}),
        ("kind", "group"),
        ("count", *_MOVED, "moved_bytes", "waited_ns", "transfer_ns", "ranks", "moved"),
    )
    shown = sums.take(np.argsort(-sums["total_ns"], kind="stable")[:MOST_ROWS])
    speed = np.ma.masked_array(
        shown["moved"] / np.maximum(shown["transfer_ns"], 1), shown["moved"] == 0
    )
    return page_table(
        "groups",
        "Collectives by kind and group",
        [
            *columns_of(shown, "kind", "group", "ranks", "count", "size_bytes", "moved_bytes"),
            *columns_of(
                *(shown, "total_ns", "waited_ns", "transfer_ns"),
                bars=("total_ns",),
                like_ns=int(shown["total_ns"].max()),
                titles={"waited_ns": "Waiting"},
            ),
            rate_column("Bus", speed),
        ],
        "Transfer begins when the last rank has arrived.",
    )


def _link_matrix(links: Table) -> Block | None:
    """Return a table of the bandwidth from each rank (row) to each other (column)."""
    pairs = sum_rows(links, ("source_rank", "target_rank"), _MOVED)
    speed = pairs["size_bytes"] / np.maximum(pairs["total_ns"], 1)
    ends = zip(pairs["source_rank"].tolist(), pairs["target_rank"].tolist(), strict=True)
    speed_of = dict(zip(ends, np.round(speed, 4).tolist(), strict=True))
    sources, targets = (np.unique(pairs[name]) for name in ("source_rank", "target_rank"))
    columns = (
        number_column(
            f"To {target}",
            [speed_of.get((source, target)) for source in sources.tolist()],
            digits=2,
            most=float(speed.max()) or 1.0,
        )
        for target in targets.tolist()
    )
    legend = "Short bars are slow links; each is a share of the fastest."
    return page_table("links", "Links (GB/s)", [number_column("From", sources), *columns], legend)


def _slowest_links(links: Table, kinds: Table) -> Block | None:
    fastest = dict(zip(kinds["link"].tolist(), kinds["fastest_gb_s"].tolist(), strict=True))
    speed = links["size_bytes"] / np.maximum(links["total_ns"], 1)
    order = np.argsort(speed, kind="stable")[:MOST_ROWS]
    shown, speed = links.take(order), speed[order]
    reference = [reference_gb_s(link, fastest.get(link, 0.0)) for link in shown["link"].tolist()]
    return page_table(
        "slow-links",
        "Slowest links",
        [
            *columns_of(shown, "group", "source_rank", "target_rank", "link", of=LINKS),
            number_column("Count", np.ma.masked_equal(shown["count"], 0)),
            *columns_of(shown, "size_bytes", "total_ns", of=LINKS),
            rate_column("Bandwidth", speed),
            share_column("Of reference", speed / np.maximum(np.array(reference), 1e-9)),
        ],
        left_out(len(links) - len(shown), "link", ", all faster,"),
    )


# -- idle time and the critical path ---------------------------------------------------------------


def idle_section(figures: Figures, gaps: Block | None) -> Block | None:
    """Return the section on idle time by cause, host call and rank; None if it is unknown.

    gaps: the table of the longest gaps, None if there are none.
    """
    causes = sum_of_selection(figures.idle, "cause")
    if not len(causes):
        return None
    least_ns = least_gap_ns(figures.idle)
    shortest = (
        f"The device leaves at least {format_duration(least_ns)} between tasks." if least_ns else ""
    )
    tables = [page_table("idle", "Why devices idle", _idle_columns(causes), shortest)]
    calls = sum_of_selection(figures.idle_calls, "cause", "call")
    shown, left = first_rows(calls, MOST_IDLE_ROWS, "call")
    if len(calls):
        title = "What the host did meanwhile"
        tables.append(page_table("idle-calls", title, _idle_columns(shown), left))
    tables.append(gaps)
    ranks = sum_of_selection(figures.idle, "rank", "cause")
    if len(ranks) > len(causes):
        shown, left = first_rows(ranks, MOST_IDLE_ROWS)
        tables.append(page_table("idle-ranks", "By rank", _idle_columns(shown), left))
    remark = (
        "The cause of each gap between tasks follows from the task that ended it, and from what "
        "the host did until it had launched that task. Time before the first task of a rank, or "
        "after its last, is no gap; only the idle time of steps includes it."
    )
    return section("Idle time", note(remark), *folded_tables(tables))


def _idle_columns(rows: Table) -> list[Block | None]:
    causes = np.array([said(IdleCause(cause).label) for cause in rows["cause"].tolist()], object)
    named = Table({**rows.columns, "cause": causes})
    names = [one for one in ("rank", "cause", "call", "gaps", "total_ns") if one in rows.columns]
    if "line" in rows.columns and any(rows["line"]):
        names.insert(names.index("call") + 1, "line")
    return [
        *columns_of(named, *names, of=IDLE_CALLS, bars=("total_ns",)),
        share_column("Share of idle", np.ma.filled(rows["share"], 0.0)),
    ]


def path_section(figures: Figures) -> Block | None:
    """Return the section on the critical path of all steps; None if it is unknown."""
    if not len(figures.critical_path):
        return None
    parts = path_parts(figures.critical_path)
    kinds, kind = np.unique(parts["kind"].astype(str), return_inverse=True)
    names = [said(PathKind[name.upper()].words.capitalize(), "label") for name in kinds.tolist()]
    rank, profiled = np.ma.filled(parts["rank"], NO_ID), parts["profiled"].astype(np.int64)
    tables = []
    for name, title, keys in (
        ("path-kinds", "What is on the path", [kind]),
        ("path", "On which rank", [rank, profiled, kind]),
    ):
        groups = group_by(len(parts), [key.astype(np.int64) for key in keys])
        total_ns = groups.sum(parts["total_ns"])
        order = np.argsort(-total_ns, kind="stable")
        first = order[:MOST_PATH_ROWS]
        shown = parts.take(groups.first[first])
        ranks = map(format_rank, shown["rank"].tolist(), shown["profiled"].tolist())
        by_rank = name == "path"
        tables.append(
            page_table(
                name,
                title,
                [
                    text_column("Rank", list(ranks)) if by_rank else None,
                    text_column("Segments", [names[at] for at in kind[groups.first[first]]]),
                    time_column("Time", total_ns[first], bars=not by_rank),
                    share_column("Share of path", total_ns[first], int(total_ns.sum())),
                ],
                left_out(len(order) - len(shown), "row", ", all shorter,"),
            )
        )
    remark = (
        "The chain of work, transfers and host calls across ranks that determined how long steps "
        "took."
    )
    side_by_side: Block = {"is": "beside", "blocks": folded_tables(tables)}
    return section("Critical path", note(remark), side_by_side)


# -- clusters --------------------------------------------------------------------------------------

_ALONE = (
    Part("computing_ns", "computing", "Computing"),
    Part("collective_alone_ns", "exposed", "Communication alone"),
    Part("receive_alone_ns", "overlapped", "Receives alone"),
)
"""Parts of a step in MindSpore's summary of a cluster."""
_TIMES = {
    "interval_ns": "Interval",
    "computing_ns": "Computing",
    "communication_alone_ns": "Communication alone",
    "stage_ns": "Stage time",
    "receive_alone_ns": "Receives alone",
    "collective_alone_ns": "Collectives alone",
}
_ABOUT = frozenset(
    {
        "step interval of ranks",
        "flop/s of ranks",
        "link",
        "communication",
        "communication between stages",
        "communication within a stage",
        "work of stages",
    }
)


def cluster_section(figures: Figures) -> Block | None:
    """Return the section on a cluster: its split, mean steps and links; None if unknown."""
    times = mean_rows(figures.parallel_times)
    links = links_of_known_ends(figures.links, known=False)
    split = _split_words(figures.parallel)
    if not (split or times or len(links)):
        return None
    alone = [row for row in map(_alone, times) if row["period_ns"]]
    parts = [part for part in _ALONE if any(row[part.column] for row in alone)]
    if any(part.column == "receive_alone_ns" for part in parts):
        parts = [Part(part.column, part.role, _TIMES[part.column]) for part in parts]
    bars: list[Block | None] = []
    if alone:
        legend = (
            "A mean step of each rank, as MindSpore sums it up: computing, and communication "
            "while nothing computes."
        )
        columns = {name: np.array([row[name] for row in alone], np.int64) for name in alone[0]}
        bars = [note(legend), draw_rank_bars(Table(columns), parts, "cluster")]
    advice = [row["text"] for row in figures.advice.to_dicts() if row["about"] in _ABOUT]
    lines = [note(split), *bars, plain_list(map(printable, advice))]
    tables = [_rank_times(figures, times) if times else None, _link_table(links)]
    if not any(lines[1:]) and not any(tables):
        lines = [plain_list([split])]
    return section("Cluster", *lines, *map(folded, tables))


def _split_words(parallel: Table) -> str:
    """Return a sentence on how the model is split over ranks, empty for a single rank."""
    split = next(iter(parallel.to_dicts()), None)
    if split is None or (split["ranks"] or 0) < 2:
        return ""
    mode = printable((split["mode"] or "").replace("_", " ").replace("-", " "))
    stages = split["stage_ranks"] or []
    ranks = format_count(split["ranks"], "rank")
    if len(stages) < 2:
        return f"{ranks}, {mode}." if mode else f"{ranks}."
    of = "; ".join(f"stage {at} is ranks {format_ids(held)}" for at, held in enumerate(stages[:8]))
    more = "; and so on" if len(stages) > 8 else ""
    return f"{ranks} in {len(stages)} stages{f', {mode}' if mode else ''}: {of}{more}."


def _alone(row: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a mean step for its bar.

    If receives are not recorded separately, all communication counts as collectives.
    """
    alone_ns, receive_ns = row["communication_alone_ns"] or 0, row["receive_alone_ns"] or 0
    computing_ns = row["computing_ns"] or 0
    return {
        "rank": row["rank"],
        "computing_ns": computing_ns,
        "receive_alone_ns": receive_ns,
        "collective_alone_ns": max(0, alone_ns - receive_ns),
        "period_ns": computing_ns + max(alone_ns, receive_ns),
    }


def _rank_times(figures: Figures, times: Sequence[dict[str, Any]]) -> Block | None:
    """Return a table of the mean step of each rank, and of the interval before it."""
    interval_ns = {row["rank"]: row["interval_ns"] for row in mean_rows(figures.step_trace)}
    rows = [row | {"interval_ns": interval_ns.get(row["rank"])} for row in times]
    columns = {
        name: np.ma.masked_array(
            np.array([row[name] or 0 for row in rows], np.int64),
            [row[name] is None for row in rows],
        )
        for name in ("rank", "stage", *_TIMES)
    }
    shown = {name: title for name, title in _TIMES.items() if columns[name].count()}
    longest_ns = max((int(columns[name].max()) for name in shown), default=0)
    return page_table(
        "cluster-ranks",
        "Ranks",
        columns_of(
            Table(columns),
            *("rank", "stage", *shown),
            bars=shown.keys() - {"interval_ns"},
            like_ns=longest_ns,
            titles=shown,
        ),
        "Interval is the wait for data before a step; stage time is computing and communication of "
        "a pipeline stage without receives."
        if "stage_ns" in shown
        else "",
    )


def _link_table(links: Table) -> Block | None:
    """Return a table of links, the slowest first."""
    if not len(links):
        return None
    shown = links.take(np.argsort(links["bandwidth_gb_s"], kind="stable")[:MOST_LINKS])
    more = left_out(len(links) - len(shown), "link", ", all faster,")
    return page_table(
        "cluster-links",
        "Links of each rank",
        columns_of(
            *(shown, "rank", "source_rank", "target_rank", "link"),
            *("size_bytes", "total_ns", "bandwidth_gb_s"),
            of=LINKS,
        ),
        f"From and to are numbers within groups that the file does not name. {more}".strip(),
    )
