"""Why devices idle, as a table for a terminal or a pipe."""

from __future__ import annotations

from rich.table import Table as Grid

from timeline.analysis.idle.idle_sums import IdleCause
from timeline.figures.idle_table import least_gap_ns, sum_of_selection
from timeline.figures.rank_tables import Figures
from timeline.reports.terminal import Display, name_text, named_grid
from timeline.units import spell_duration, spell_number, spell_share, spell_short

MOST_CALLS = 2
"""Host calls that are told of each cause."""
LEAST_CALL = 0.05
"""Those that take less of the time of a cause are not."""


def idle_grid(figures: Figures, display: Display) -> Grid | None:
    """The causes of idle time, longest first, with the host calls meanwhile; None without any.

    Times are sums over all ranks of the selection.
    """
    causes = sum_of_selection(figures.idle, "cause")
    if not len(causes):
        return None
    calls = sum_of_selection(figures.idle_calls, "cause", "call").to_dicts()
    cells = []
    for row in causes.to_dicts():
        longest = [
            f"{call['call']} {spell_short(call['total_ns'])}"
            for call in calls
            if call["cause"] == row["cause"] and call["total_ns"] > LEAST_CALL * row["total_ns"]
        ]
        if row["cause"] == IdleCause.BETWEEN_TASKS.value:
            least_ns = least_gap_ns(figures.idle)
            longest = [f"at least {spell_duration(least_ns)} each"] if least_ns else []
        told = name_text(", ".join(longest[:MOST_CALLS]), display)
        cells.append(
            (
                *(() if display.narrow else (told,)),
                spell_short(row["total_ns"]),
                spell_share(row["share"], 1),
                spell_number(row["gaps"]),
            )
        )
    names = [IdleCause(cause).label for cause in causes["cause"].tolist()]
    titles = ["idle", *([] if display.narrow else ["meanwhile on the host"])]
    return named_grid(display, display.width, titles, ["time", "share", "gaps"], names, cells)
