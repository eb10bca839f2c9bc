"""The timelines of two runs under each other, below the row of how their steps differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from timeline.analysis.rank_facts import RankFacts
from timeline.columns.columns import Int64
from timeline.columns.strings import StringPool
from timeline.layers import SliceKind
from timeline.tracks import descriptions
from timeline.tracks.assemble import with_ranks
from timeline.tracks.model import Track
from timeline.tracks.overview import difference, paint_steps_of_run
from timeline.tracks.painter import Painter, SliceTable, integers
from timeline.tracks.rank_tracks import RankTracks
from timeline.tracks.root_rows import STEPS, RunRank

BASE, NEW = "base", "new"
"""Names of the runs in the names of rows; the base sorts first."""


@dataclass(frozen=True)
class StepDifferences:
    """Steps of both runs, ascending by start_ns of the base; all columns are (n,) int64."""

    base_step: Int64
    new_step: Int64
    start_ns: Int64
    base_ns: Int64
    new_ns: Int64


@dataclass(frozen=True)
class RunOfRanks:
    """The facts of the ranks of one run, and their rows."""

    facts: Sequence[RankFacts]
    ranks: Sequence[RankTracks]


def side_by_side(
    base: RunOfRanks,
    new: RunOfRanks,
    differences: StepDifferences,
    remarks: Mapping[RunRank, str],
    *,
    by_layer: bool,
    folds_ranks: bool = False,
) -> tuple[Track, ...]:
    """Return the rows of both runs on one time axis: by rank, the base above the new run.

    remarks: remarks that go into the names of some ranks. folds_ranks: folds many other ranks.
    """
    painter = Painter()
    _paint_steps(painter, base, new, differences)
    return with_ranks(
        painter.tracks,
        {BASE: base.ranks, NEW: new.ranks},
        remarks,
        by_layer=by_layer,
        folds_ranks=folds_ranks,
    )


def _paint_steps(
    painter: Painter, base: RunOfRanks, new: RunOfRanks, steps: StepDifferences
) -> None:
    """Draw how steps differ, with the steps of each run below; nothing without common steps."""
    if not len(steps.start_ns):
        return
    strings = StringPool()
    columns = (steps.base_step, steps.new_step, steps.base_ns, steps.new_ns)
    labels = (_label(*row) for row in zip(*(column.tolist() for column in columns), strict=True))
    end_ns = steps.start_ns + steps.base_ns
    end_ns[:-1] = np.minimum(end_ns[:-1], steps.start_ns[1:])
    drawn = SliceTable(
        steps.start_ns,
        end_ns,
        strings.codes(labels),
        SliceKind.STEP,
        [
            integers("base_step", steps.base_step),
            integers("new_step", steps.new_step),
            integers("base_ns", steps.base_ns),
            integers("new_ns", steps.new_ns),
            integers("delta_ns", steps.new_ns - steps.base_ns),
        ],
    )
    root = painter.add_stacked_row(STEPS, None, 0, drawn, strings, descriptions.BASE_AND_NEW)
    for order, (name, run) in enumerate(((BASE, base), (NEW, new))):
        paint_steps_of_run(painter, root, order, run.facts, name.capitalize())


def _label(base_step: int, new_step: int, base_ns: int, new_ns: int) -> str:
    which = f"Step {base_step}" if base_step == new_step else f"Step {base_step} and {new_step}"
    return difference(which, base_ns, new_ns, "as before")
