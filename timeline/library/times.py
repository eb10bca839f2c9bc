"""Tables of the time of ranks and steps: overlap, idle time, critical path, step trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from timeline.declarations import with_keywords
from timeline.errors import UsageError
from timeline.figures.table import Table
from timeline.keywords import SelectionKeywords
from timeline.library.measure import read_known
from timeline.library.open_profile import ALWAYS_ASKED, OpenProfile
from timeline.selection import Selection

if TYPE_CHECKING:
    from typing_extensions import Unpack


class TimeTables(OpenProfile):
    """Tables of the time of ranks and steps: overlap, idle time, critical path, step trace."""

    @with_keywords(SelectionKeywords, Selection)
    def overlap(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """Return a row per rank with how its device time is spent.

        Columns: rank, steps (their number), step_ns (the mean period of an ordinary step), span_ns,
        computing_ns, communication_ns, not_overlapped_ns, free_ns; computing, not overlapped and
        free make up the span.

        Raises:
            TimelineError: something selected is not there, or a file cannot be read.
        """
        return self._measure(selection, keywords).figures.overlap

    @with_keywords(SelectionKeywords, Selection)
    def steps(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """Return a row per rank, graph and step.

        Columns: rank, graph, step, start_ns and end_ns as marked (on the clock that all ranks
        share); period_ns, from the end of the step before to its own, and in it before_ns, before
        the first kernel, and between_ns, between steps; late_ns, how much later than its peers the
        rank came to the collectives of the step (negative: sooner); span_ns, computing_ns,
        communication_ns, not_overlapped_ns and free_ns of its device work; fp_bp_ns, tail_ns and
        interval_ns of the step trace; tasks, the number of device tasks; ordinary, 1 for a step
        with device tasks that does not warm up and is not cut by the edge of the recording. Unknown
        values are masked.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, keywords).figures.steps

    @with_keywords(SelectionKeywords, Selection)
    def idle(
        self,
        selection: Selection | None = None,
        by: Literal["cause", "call"] = "cause",
        **keywords: Unpack[SelectionKeywords],
    ) -> Table:
        """Return idle time of devices: a row per rank, step (masked: whole selection) and cause.

        Columns: rank, graph, step, cause, gaps (number of gaps between tasks with that cause),
        total_ns, calls (up to five pairs of a host call and the ns in it), least_ns (the device's
        own least gap); the rows of a rank and step add up to its idle time. By call: rank, graph,
        step, cause, call, total_ns.

        Raises:
            TimelineError: as `overlap`.
        """
        if by not in ("cause", "call"):
            raise UsageError(f"by={by!r}: idle time is told apart by cause or by call.")
        figures = self._measure(selection, keywords).figures
        return figures.idle if by == "cause" else figures.idle_calls

    @with_keywords(SelectionKeywords, Selection)
    def critical_path(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """Return what determined the length of each step: a row per segment, in order of time.

        Columns: step, graph, rank, profiled (True if the rank is in the profile), kind (computing,
        transfer, copy, host, queued, launch, between_tasks, not_profiled), name (of what ran or was
        waited for; on the host the call that took most of it), start_ns, duration_ns, and call_ns,
        the time that call took. The segments of a step add up to the time from the last device end
        of the step before to its own. Steps are masked if none are marked, ranks if they are not
        known.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, keywords).figures.critical_path

    @with_keywords(SelectionKeywords, Selection)
    def estimate_gain(
        self,
        rank: int,
        selection: Selection | None = None,
        **keywords: Unpack[SelectionKeywords],
    ) -> int | None:
        """Estimate the ns that the selection would end earlier with a rank as fast as the others.

        The run is replayed, with each task of the rank, and what its host does between two
        launches, no longer than the median of the other ranks. This is an estimate: within 3% of
        the run on simulated clusters, where the truth is known, and unproven beyond. None if the
        rank is not selected, and without other ranks.

        Raises:
            TimelineError: as `overlap`.
        """
        from timeline.analysis.gains.findings import estimate_gain_ns
        from timeline.analysis.gains.run import gather_run

        ranks = read_known(*self._reader, self._chosen(selection, keywords), ALWAYS_ASKED)
        numbers = [facts.rank for facts in ranks.facts]
        run = gather_run(ranks.facts, ranks.waiting)
        if run is None or rank not in numbers or len(numbers) < 2:
            return None
        return estimate_gain_ns(run, numbers.index(rank))

    @with_keywords(SelectionKeywords, Selection)
    def step_trace(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """Return a row per rank, graph and step of the step trace, then the means of each graph.

        Columns: rank, graph, step (masked in means), of (in means: steps for the selected ones but
        the first, file for what MindSpore wrote), start_ns (the end of the step before), total_ns =
        interval_ns + fp_bp_ns + tail_ns (interval_ns, the wait for data, is masked in the first
        step), fp_start and bp_end (the operators that begin forward and end backward). Unknown
        values are masked or None.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, keywords).figures.step_trace
