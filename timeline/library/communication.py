"""Collectives, who waits for whom, links, and how a run is split over ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from timeline.declarations import with_keywords
from timeline.figures.table import Table
from timeline.keywords import SelectionKeywords
from timeline.library.open_profile import OpenProfile
from timeline.selection import Selection

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["CommunicationTables"]


class CommunicationTables(OpenProfile):
    """Collectives, who waits for whom, links, and how a run is split over ranks."""

    @with_keywords(SelectionKeywords, Selection)
    def collectives(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """The longest communication ops of each rank, longest first.

        rank, name, group, graph, step, start_ns, duration_ns. Others count in `operators`.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, keywords).figures.longest_ops

    @with_keywords(SelectionKeywords, Selection)
    def waiting(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """A row per rank and rank that it waited for in collectives, the longest waits first.

        rank, waited_for_rank (masked where it is only known that some rank came last), profiled
        (whether that is among the ranks read), times, waited_ns.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, keywords).figures.waited_for

    @with_keywords(SelectionKeywords, Selection)
    def links(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """A row per rank and link: what its HCCL tasks, or else the profiler's sums of them, moved.

        rank, source_rank and target_rank, link (its kind, such as HCCS), count (of tasks; masked in
        the profiler's sums), size_bytes, total_ns, bandwidth_gb_s (size / time), group (in which
        ranks are counted, where its members are not known), numbered_in (run or group: what
        source_rank and target_rank are numbers in).

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, keywords).figures.links

    @with_keywords(SelectionKeywords, Selection)
    def parallel(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """How MindSpore split the run over ranks: one row, or none where no file tells it.

        mode (in the file's words, such as auto_parallel or pipeline-parallel), stages and ranks
        (how many), stage_ranks (a list: the ranks of each stage).

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, keywords).figures.parallel

    @with_keywords(SelectionKeywords, Selection)
    def parallel_times(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """A row per rank and step that MindSpore's cluster analysis sums up, then their means.

        rank, stage (from 0), step (masked in means), of (in means: steps for the selected ones but
        the first, file for what MindSpore wrote), computing_ns, communication_alone_ns (while
        nothing computes), stage_ns = computing_ns + collective_alone_ns, receive_alone_ns and
        collective_alone_ns, which make up communication_alone_ns. What is not known is masked.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, keywords).figures.parallel_times
