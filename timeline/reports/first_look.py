"""The first look at a timeline in a viewer: a step, some ranks, and the answer to one question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from timeline.analysis.gains.findings import Cause
from timeline.encoders.attributes import DRAWN, FORMAT, MARK, ZERO
from timeline.records.not_given import NO_GRAPH
from timeline.reports.valid_json import json_of

if TYPE_CHECKING:
    from timeline.comparison.comparison import Comparison
    from timeline.reports.comparison_report import ChangedStep
    from timeline.selection import Selection
    from timeline.verdict.figures import Figures
    from timeline.verdict.verdict import Verdict

LOOK = "io.tlexport.view"
"""Name of the file attribute that holds the first look, a JSON object."""
WHY_IDLE, SLOW_STEPS = "why_devices_idle", "which_steps_are_slow"
WHO_HOLDS_UP, TIMES, CHANGES = "who_holds_others_up", "where_time_goes", "which_steps_changed"


@dataclass(frozen=True)
class FirstLook:
    """The first look at a timeline; times are on the clock of the figures.

    description: the part in view, in words. step_ns: start and end of the step in view, None for
    all of the file. ranks: to unfold and pin. question: the view of `queries.sql` to open as a
    table, empty for none. waiting: a rank and the rank for which it waits longest, to mark such a
    wait; None for no mark. by_layer: whether rows are grouped by layer before rank.
    """

    description: str = "all of it"
    step_ns: tuple[int, int] | None = None
    ranks: tuple[int, ...] = ()
    question: str = ""
    waiting: tuple[int, int] | None = None
    by_layer: bool = False

    @classmethod
    def of_export(
        cls, verdict: Verdict, figures: Figures, first_rank: int, *, by_layer: bool
    ) -> FirstLook:
        """Return a step of the first finding, else the slowest one, with the ranks to look at.

        Without two steps to compare, it is the first step.

        Args:
            first_rank: the rank to look at if the verdict names none.
        """
        culprit = verdict.culprit
        ranks = verdict.ranks_to_see or (first_rank,)
        question = _question(verdict, figures)
        waiting = None
        if culprit is not None and question == WHO_HOLDS_UP:
            waiting = culprit.waiters[0].rank, culprit.rank
        if not len(verdict.steps):
            return cls(ranks=ranks, question=question, waiting=waiting, by_layer=by_layer)
        step_ns, description = _step_to_see(verdict)
        return cls(description, step_ns, ranks, question, waiting, by_layer)

    @classmethod
    def of_comparison(
        cls, comparison: Comparison, changed: ChangedStep | None, *, by_layer: bool
    ) -> FirstLook:
        """Return the step that changed most, with the slowest rank of it, else a common rank."""
        ranks = comparison.ranks
        if changed is None:
            common = [rank for row in ranks.take(slice(1)) for rank in (row[0], row[-1])]
            seen = tuple(dict.fromkeys(common))
            return cls("all of both runs", None, seen, TIMES, by_layer=by_layer)
        base = ranks["rank"][ranks["new_rank"] == changed.rank].tolist()
        return cls(
            f"step {changed.step} of rank {changed.rank}, which changed most,",
            (changed.start_ns, changed.end_ns),
            tuple(dict.fromkeys((changed.rank, *base))),
            CHANGES,
            by_layer=by_layer,
        )

    def at(self, chosen: Selection, drawn_ns: tuple[int, int]) -> FirstLook:
        """Return a look at the chosen ranks and window instead, without an answer.

        drawn_ns: first and last time of the file, from which the window counts.

        Raises:
            SelectionError: the window lies outside the file.
        """
        if chosen.ranks is None and chosen.window is None:
            return self
        look = replace(self, question="", waiting=None)
        if chosen.ranks is not None:
            look = replace(look, ranks=tuple(sorted(chosen.ranks)))
        if chosen.window is not None:
            step_ns = chosen.window.bounds_ns(*drawn_ns)
            look = replace(look, step_ns=step_ns, description="the chosen part")
        return look

    def attributes(self) -> tuple[tuple[str, str], ...]:
        """Return the attribute that holds the look in a file."""
        return ((LOOK, json_of(asdict(self)).decode()),)

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, str]) -> FirstLook:
        """Return the look in the attributes of a file; all of it if there is none to be read."""
        import msgspec  # slow to load, and needed only to open a file

        if not {LOOK, MARK, ZERO, DRAWN, FORMAT} <= attributes.keys():
            return cls()
        text = attributes[LOOK].encode("utf-8", "surrogatepass")
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return cls()


def _question(verdict: Verdict, figures: Figures) -> str:
    """Return the view whose table fits the first finding, empty if it would have no rows."""
    first = next(iter(verdict.findings.found), None)
    is_idle = first is not None and first.cause in (Cause.INPUT, Cause.HOST)
    is_of_all = first is not None and first.ranks is None
    if is_idle and is_of_all and len(figures.idle):
        return WHY_IDLE
    if verdict.culprit is not None and verdict.culprit.waiters:
        return WHO_HOLDS_UP
    if (is_idle or verdict.step_extreme is None) and len(figures.idle):
        return WHY_IDLE
    return SLOW_STEPS if len(verdict.steps) else ""


def _step_to_see(verdict: Verdict) -> tuple[tuple[int, int], str]:
    """Return the start and end of the step to look at, and its name in words.

    It lasts from its mark to the end of its device work.
    """
    steps, slowest = verdict.steps, verdict.step_extreme
    found = verdict.findings.found
    numbers = (found[0].steps if found else None) or verdict.steps_to_see
    is_slowest = slowest is not None and numbers[:1] == (slowest.slowest,)
    is_seen = steps["step"] == numbers[0] if numbers else np.ones(len(steps), bool)
    if slowest is not None and is_slowest:
        is_seen &= steps["rank"] == slowest.rank
        if slowest.graph is not None:
            is_seen &= np.ma.filled(steps["graph"], NO_GRAPH) == slowest.graph
    at = int(np.argmax(is_seen))
    start_ns, end_ns = int(steps["start_ns"][at]), int(steps["end_ns"][at])
    device_ns = steps["device_start_ns"][at] + steps["span_ns"][at]
    if device_ns is not np.ma.masked:
        end_ns = max(end_ns, int(device_ns))
    which = "the slowest step," if is_slowest else "step"
    return (start_ns, end_ns), f"{which} {steps['step'][at]},"
