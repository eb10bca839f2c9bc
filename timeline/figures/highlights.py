"""What names of rows point at: the rank and the step that the verdict names."""

from __future__ import annotations

import numpy as np

from timeline.analysis.gains.findings import Cause
from timeline.figures.comparison import Comparison, most_waited_for
from timeline.figures.verdict import Verdict
from timeline.tracks.root_rows import IDLES_FOR_DATA, SLOWS_OTHERS, Highlights, RunRank, SlowStep
from timeline.tracks.side_by_side import BASE, NEW


def highlights_of(verdict: Verdict, ranks: int) -> Highlights:
    """What a verdict on so many ranks points at; a rank that is alone is not told apart."""
    culprit, slowest = verdict.culprit, verdict.step_extreme
    remarks = dict[RunRank, str]()
    if culprit is not None and culprit.profiled and ranks > 1:
        is_starved = culprit.cause is Cause.INPUT
        remarks["", culprit.rank] = IDLES_FOR_DATA if is_starved else SLOWS_OTHERS
    step = None if slowest is None else SlowStep(slowest.graph, slowest.slowest)
    return Highlights(remarks, step, verdict.telling_ranks)


def remarks_of_comparison(comparison: Comparison) -> dict[RunRank, str]:
    """What is said of a rank, where waiting changed for it alone: in the run that waits longer."""
    rank = most_waited_for(comparison.waiting)
    if rank is None:
        return {}
    is_it = np.ma.filled(comparison.waiting["waited_for_rank"] == rank, False)
    worse = int(comparison.waiting["delta_ns"][is_it].sum()) > 0
    return {(NEW if worse else BASE, rank): SLOWS_OTHERS}
