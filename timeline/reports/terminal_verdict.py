"""The verdict as text, for a terminal of any width, or for a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from timeline.analysis.idle.idle_sums import IdleCause
from timeline.language import said
from timeline.reports.terminal import (
    GAP,
    Display,
    TimesGrid,
    name_text,
    named_grid,
    plain_grid,
    render_blocks,
)
from timeline.tables.idle import least_gap_ns, sum_of_selection
from timeline.tables.table import Table
from timeline.units import (
    ColumnUnit,
    format_count,
    format_duration,
    format_number,
    format_share,
    format_short,
)
from timeline.verdict.figures import Figures
from timeline.verdict.verdict import BARS, Verdict

SIDE_BY_SIDE_WIDTH = 124
"""Minimum width at which operators and collectives are shown side by side."""
MOST_RANKS = 8
"""Maximum number of ranks that are all shown; of more, only FEW_RANKS and the mean are."""
FEW_RANKS = 6
MOST_STEPS = 40
MOST_OPS = 5
MOST_STRAGGLERS = 3


_SLOW = "bold red"
"""Style of the culprit and of the slowest step."""


def verdict_text(
    verdict: Verdict, figures: Figures, display: Display, *, verbose: bool = False
) -> str:
    """Return the answer to "what is slow", in lines that fit the display.

    verbose: whether to add each step, the causes of idle time, and the longest communication ops.
    """
    return render_blocks(_Blocks(verdict, figures, display, verbose).all(), display)


Row = dict[str, Any]


@dataclass(frozen=True)
class _Blocks:
    """The blocks of lines and tables that make up the text of a verdict."""

    verdict: Verdict
    figures: Figures
    display: Display
    verbose: bool

    def all(self) -> Iterator[Sequence[RenderableType]]:
        sentences = [name_text(line, self.display) for line in self.verdict.sentences()]
        if not sentences:
            yield [Text("The selection holds no device records: what is slow is not known.")]
            return
        sentences[0].stylize("bold")
        yield sentences
        if len(self.verdict.mean_steps):
            yield list(self._ranks())
        if self.verbose and len(self.verdict.steps):
            yield list(self._steps())
        late = self._late_ranks()
        if late:
            yield [self._stragglers(late)]
        if self.verbose and (idle := idle_grid(self.figures, self.display)) is not None:
            yield [idle]
        operators, collectives = self.verdict.operators, self.verdict.collectives
        is_wide = self.display.terminal and self.display.width >= SIDE_BY_SIDE_WIDTH
        if len(operators) and len(collectives) and is_wide:
            both = Grid.grid(padding=(0, 3 * GAP, 0, 0))
            room = self.display.width - 3 * GAP
            right = self._totals(room // 2, "communication", collectives)
            rest = room - Console(width=room).measure(right).maximum
            both.add_row(self._totals(rest, "operator type", operators, "core"), right)
            yield [both]
        else:
            if len(operators):
                yield [self._totals(self.display.width, "operator type", operators, "core")]
            if len(collectives):
                yield [self._totals(self.display.width, "communication", collectives)]
        if self.verbose and len(self.figures.longest_ops):
            yield [self._longest_ops()]

    # -- ranks and steps ---------------------------------------------------------------------------

    def _ranks(self) -> Iterator[RenderableType]:
        """Yield a table of the mean steps of ranks, and notes on it."""
        rows, shown = self.verdict.mean_steps.to_dicts(), self._shown_ranks()
        steps = max(row["steps"] for row in rows)
        heads = ["rank", ("mean\nstep" if steps > 1 else "step") if steps else "time"]
        grid = TimesGrid(self.display, heads, self.verdict.mean_steps)
        for row in shown:
            grid.add(
                [str(row["rank"])], row, _SLOW if row["rank"] == self.verdict.slow_rank else ""
            )
        if len(shown) < self.verdict.used_ranks:
            mean = self.verdict.rank_means
            grid.add_gap()
            grid.add(["mean"], {**mean, "period_ns": mean["period_ns"] or 0}, "bold")
        yield grid.grid
        yield from self._rank_notes(shown, steps)

    def _rank_notes(self, shown: Sequence[Row], steps: int) -> Iterator[Text]:
        """Yield notes on what the rows are means of, and on ranks that are not shown."""
        used = self.verdict.used_ranks
        if steps > 1:
            left_out = self.verdict.step_count - steps
            without = (
                f"; {format_count(left_out, 'step')} left out (warm-up, cut off, or no device "
            )
            less = f"{without}tasks)" if left_out > 0 else ""
            yield Text(f"Means of {steps} ordinary steps{less}.", style="dim")
        if len(shown) < used:
            most = "wait longest" if self._waiting_is_known else "take longest"
            slow_rank = self.verdict.slow_rank
            first = "" if slow_rank is None else f"rank {slow_rank}, "
            others = "those" if first else f"the {len(shown)}"
            yield Text(
                f"{format_count(used, 'rank')}: {first}{others} that {most}, and the mean; all: "
                "--csv FILE"
            )
        if unused := self.verdict.unused_ranks:
            yield Text(f"{format_count(unused, 'rank')} without device records.")

    def _shown_ranks(self) -> list[Row]:
        """Return the rows to show, the culprit first, then the others in order of rank.

        If there are too many ranks, only those that wait longest, or take longest, are shown.
        """
        rows = self.verdict.mean_steps.to_dicts()
        if self.verdict.used_ranks > MOST_RANKS:
            name = "waiting_ns" if self._waiting_is_known else "period_ns"
            rows = sorted(rows, key=lambda row: (-(row[name] or 0), row["rank"]))
        rows.sort(key=lambda row: row["rank"] != self.verdict.slow_rank)
        return rows[:FEW_RANKS] if self.verdict.used_ranks > MOST_RANKS else rows

    @property
    def _waiting_is_known(self) -> bool:
        return self.verdict.rank_means["waiting_ns"] is not None

    def _steps(self) -> Iterator[RenderableType]:
        rows = self.verdict.steps.to_dicts()
        slowest = sorted(range(len(rows)), key=lambda at: -rows[at]["period_ns"])
        shown = sorted(slowest[:MOST_STEPS])
        pairs = {(row["rank"], row["graph"]) for row in self.figures.steps.to_dicts()}
        graphs = len(pairs) > len({rank for rank, _ in pairs})
        ranks = self.verdict.used_ranks + self.verdict.unused_ranks > 1
        heads = ["step", *(["graph"] if graphs else []), *(["on\nrank"] if ranks else [])]
        grid = TimesGrid(self.display, [*heads, "time"], self.verdict.steps)
        extreme = self.verdict.step_extreme
        worst = None if extreme is None else (extreme.graph, extreme.slowest)
        for at in shown:
            row = rows[at]
            graph = "-" if row["graph"] is None else str(row["graph"])
            labels = [
                str(row["step"]),
                *([graph] if graphs else []),
                *([str(row["rank"])] if ranks else []),
            ]
            grid.add(labels, row, _SLOW if (row["graph"], row["step"]) == worst else "")
        yield grid.grid
        every, measured = self.verdict.step_count, self.verdict.measured_steps
        if len(shown) < measured:
            count = format_count(measured, "step")
            yield Text(f"{count}: the slowest {MOST_STEPS}; all: --csv FILE")
        if measured < every:
            yield Text(f"{format_count(every - measured, 'step')} without device tasks.")

    # -- late ranks --------------------------------------------------------------------------------

    def _late_ranks(self) -> list[Row]:
        """Return the ranks that others waited for most, profiled or not, the culprit first."""
        late_by_rank = {row["rank"]: row for row in self.verdict.stragglers.to_dicts()}
        for row in self.figures.waited_for.to_dicts():
            rank, caused_ns = row["waited_for_rank"], row["waited_ns"]
            if row["profiled"]:
                continue
            late = late_by_rank.setdefault(rank, {"rank": rank, "caused_ns": 0, "times_last": 0})
            late["caused_ns"] += caused_ns
            late["times_last"] = max(late["times_last"], row["times"])
        culprit = self.verdict.culprit
        rank = None if culprit is None else culprit.rank
        order = sorted(
            late_by_rank.values(), key=lambda row: (row["rank"] != rank, -row["caused_ns"])
        )
        return order[:MOST_STRAGGLERS]

    def _stragglers(self, late: Sequence[Row]) -> Grid:
        """Return a table of how often each rank came last, and of the waiting it caused."""
        most = 2 if self.display.narrow else None
        caused, longest, at_most = (
            ColumnUnit.of_times(row.get(name) for row in late)
            for name in ("caused_ns", "slowest_ns", "late_ns")
        )
        numbers = ["times last", caused.title("wait caused"), longest.title("longest")]
        shown = not most and self.display.can_show(BARS) and any(row.get("history") for row in late)
        grid = plain_grid(self.display, [], ["rank", *numbers[:most]])
        if shown:
            grid.add_column(said(f"late per step (at most, {at_most.name})"))
        for row in late:
            rank = "some rank" if row["rank"] is None else str(row["rank"])
            cells = [str(row["times_last"]), caused.format(row["caused_ns"])]
            if "shared" in row:
                cells[0] += f" of {row['shared']}"
                cells.append(longest.format(row["slowest_ns"]))
            else:
                rank = f"{rank} (not read)"
                cells.append("-")
            is_slow = row["rank"] is not None and row["rank"] == self.verdict.slow_rank
            if shown:
                history = row.get("history")
                cells.append(f"{history} ({at_most.format(row['late_ns'])})" if history else "")
            texts = [said(cell, "cell") for cell in (rank, *cells[:most])]
            grid.add_row(Text(texts[0], style=_SLOW if is_slow else ""), *texts[1:])
        return grid

    # -- operators ---------------------------------------------------------------------------------

    def _totals(self, width: int, title: str, rows: Table, *more: str) -> Grid:
        is_wide = not self.display.narrow
        bound = ["bound by"] if is_wide and any(rows["bound"]) else []
        has_peak = "utilization" in rows.columns and np.ma.count(rows["utilization"]) > 0
        peak = ["of peak"] if is_wide and has_peak else []
        line = ["line of code"] if self.verbose and any(rows["line"]) else []
        total = ColumnUnit.of_times(rows["total_ns"].tolist())
        means_ns = [round(row["total_ns"] / row["count"]) for row in rows.to_dicts()]
        each = ColumnUnit.of_times(means_ns)
        mean = [] if self.display.narrow else [each.title("mean")]
        cells: list[tuple[str | Text, ...]] = [
            (
                *(name_text(row[name], self.display) for name in more),
                format_number(row["count"]),
                total.format(row["total_ns"]),
                *(each.format(mean_ns) for _ in mean),
                format_share(row["share"], 1),
                *(_bound_text(row) for _ in bound),
                *(_peak_text(row) for _ in peak),
                *(name_text(row["line"] or "", self.display) for _ in line),
            )
            for row, mean_ns in zip(rows.to_dicts(), means_ns, strict=True)
        ]
        numbers = ["count", total.title("time"), *mean, "share", *bound, *peak, *line]
        heads = [title, *more], numbers
        return named_grid(self.display, width, *heads, rows["type"].tolist(), cells)

    def _longest_ops(self) -> Grid:
        ops = self.figures.longest_ops
        order = np.argsort(-ops["duration_ns"], kind="stable")[:MOST_OPS]
        shown = ops.take(order)
        unit = ColumnUnit.of_times(shown["duration_ns"].tolist())
        cells = [
            (
                str(row["rank"]),
                "-" if row["step"] is None else str(row["step"]),
                unit.format(row["duration_ns"]),
            )
            for row in shown.to_dicts()
        ]
        heads = ["longest communication op"], ["rank", "step", unit.title("time")]
        return named_grid(self.display, self.display.width, *heads, shown["name"].tolist(), cells)


def _peak_text(row: Row) -> str:
    """Return the share of the peak that an operator reaches, empty if not known."""
    return "" if row["utilization"] is None else format_share(row["utilization"], 1)


def _bound_text(row: Row) -> str:
    """Return what bounds an operator and how busy that is, empty if not measured."""
    return f"{row['bound']} {format_share(row['bound_share'], 1)}" if row["bound"] else ""


# -- idle time -------------------------------------------------------------------------------------


MOST_CALLS = 2
"""Maximum number of host calls named per cause."""
LEAST_CALL = 0.05
"""Minimum share of the time of a cause for a host call to be named."""


def idle_grid(figures: Figures, display: Display) -> Grid | None:
    """Return a table of the causes of idle time, longest first, with host calls; None without any.

    Times are sums over all selected ranks.
    """
    causes = sum_of_selection(figures.idle, "cause")
    if not len(causes):
        return None
    calls = sum_of_selection(figures.idle_calls, "cause", "call").to_dicts()
    unit = ColumnUnit.of_times(causes["total_ns"].tolist())
    cells = []
    for row in causes.to_dicts():
        longest = [
            f"{call['call']} {format_short(call['total_ns'])}"
            for call in calls
            if call["cause"] == row["cause"] and call["total_ns"] > LEAST_CALL * row["total_ns"]
        ]
        if row["cause"] == IdleCause.BETWEEN_TASKS.value:
            least_ns = least_gap_ns(figures.idle)
            longest = [said(f"at least {format_duration(least_ns)} each")] if least_ns else []
        calls_text = name_text(", ".join(longest[:MOST_CALLS]), display)
        cells.append(
            (
                *(() if display.narrow else (calls_text,)),
                unit.format(row["total_ns"]),
                format_share(row["share"], 1),
                format_number(row["gaps"]),
            )
        )
    names = [said(IdleCause(cause).label) for cause in causes["cause"].tolist()]
    titles = ["idle", *([] if display.narrow else ["meanwhile on the host"])]
    numbers = [unit.title("time"), "share", "gaps"]
    return named_grid(display, display.width, titles, numbers, names, cells)
