"""What is selected of one rank: its cut records, their overlap, and how to draw them."""

from __future__ import annotations

from timeline.analysis.cut import Cut
from timeline.analysis.idle.idle_causes import RankIdle
from timeline.analysis.overlap import Overlap, OverlapTotals
from timeline.frozen import dataclass
from timeline.layers import Layer
from timeline.records.tables import Records

__all__ = ["DrawOptions", "Missing", "SelectedRank"]


@dataclass(frozen=True)
class DrawOptions:
    """How one rank is drawn."""

    layers: frozenset[Layer]
    merge_graphs: bool = True


@dataclass(frozen=True)
class Missing:
    """A stretch of one rank whose detail is not drawn: when, which steps, and how many records."""

    start_ns: int
    end_ns: int
    steps: tuple[int, ...]
    tasks: int
    hccl_tasks: int
    host_calls: int


@dataclass(frozen=True)
class SelectedRank:
    """What is selected of one rank: the records, and the sums over them.

    cut is the whole selection, whose steps and overlap are always drawn; detail holds the records
    that are drawn one by one, all of them but what `missing` says. overlap is that of the
    whole selection; step_totals has a row per step.
    """

    cut: Cut
    overlap: Overlap
    step_totals: OverlapTotals
    detail: Records
    missing: tuple[Missing, ...] = ()
    idle: RankIdle | None = None
    """Why it idles, None where that was not asked."""

    @property
    def records(self) -> Records:
        """The records of the whole selection."""
        return self.cut.records
