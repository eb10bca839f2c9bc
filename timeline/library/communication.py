"""Tables of collectives, waits between ranks, links, and how a run is split over ranks."""

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


class CommunicationTables(OpenProfile):
    """Tables of collectives, waits between ranks, links, and how a run is split over ranks."""

    @with_keywords(SelectionKeywords, Selection)
    def collectives(
        self,
        selection: Selection | None = None,
        by: Literal["longest", "op", "kind", "group"] = "longest",
        **keywords: Unpack[SelectionKeywords],
    ) -> Table:
        """Return communication: the longest ops of each rank, every op, or sums by kind or group.

        Longest (at most 20 of each rank, longest first): rank, name, group, graph, step, start_ns,
        duration_ns. By op, in order of start: rank, kind (such as AllReduce), name, group, graph,
        step, start_ns, duration_ns, size_bytes (input of the rank), waited_ns (until the last rank
        arrived), last_rank (the rank that arrived last), transfer_ns (from its arrival on).

        By kind: a row per rank, kind and group: rank, kind, group, count, size_bytes, moved_bytes
        (sent by the rank over links, as the profiler sums it up), total_ns, waited_ns, transfer_ns,
        bandwidth_gb_s (of the bus). By group: the same summed over kinds, without the bandwidth.
        Unknown values are masked; sums are over known values.

        Raises:
            TimelineError: as `overlap`.
        """
        if by not in ("longest", "op", "kind", "group"):
            raise UsageError(f"by={by!r}: collectives are told by longest, op, kind or group.")
        if by == "op":
            from timeline.figures.single_tables import op_table

            ranks = read_known(*self._reader, self._chosen(selection, keywords), ALWAYS_ASKED)
            return op_table(ranks.facts, ranks.waiting.waits)
        figures = self._measure(selection, keywords).figures
        if by == "longest":
            return figures.longest_ops
        from timeline.figures.collective_tables import group_table

        return figures.collectives if by == "kind" else group_table(figures.collectives)

    @with_keywords(SelectionKeywords, Selection)
    def waiting(
        self,
        selection: Selection | None = None,
        by: Literal["pair", "rank"] = "pair",
        **keywords: Unpack[SelectionKeywords],
    ) -> Table:
        """Return the waits in collectives: a row per pair of ranks, longest first, or per rank.

        By pair: rank, waited_for_rank (masked if it is only known that some rank came last),
        profiled (True if that rank is among the ranks read), times, waited_ns. By rank: rank;
        times_last (how often it came last), waited_ns (how long it waited), caused_ns (how long
        others waited for it), slowest_ns (the longest that it kept one waiting); and the basis of
        these numbers: how many collectives are shared (the last rank is known), and unmatched,
        alone, unknown or unnamed (it is not), with the time that each of these took.

        Raises:
            TimelineError: as `overlap`.
        """
        if by not in ("pair", "rank"):
            raise UsageError(f"by={by!r}: waiting is told by pair or by rank.")
        figures = self._measure(selection, keywords).figures
        return figures.waited_for if by == "pair" else figures.waiting

    @with_keywords(SelectionKeywords, Selection)
    def links(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """Return a row per rank and link with the traffic of its HCCL tasks.

        Without such tasks, rows hold the profiler's own sums. Columns: rank, source_rank and
        target_rank, link (its kind, such as HCCS), count (of tasks; masked in the profiler's sums),
        size_bytes, total_ns, bandwidth_gb_s (size / time), group (the one in which ranks are
        counted, if its members are not known), numbered_in (run or group: the numbering of
        source_rank and target_rank).

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, keywords).figures.links

    @with_keywords(SelectionKeywords, Selection)
    def parallel(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """Return one row on how MindSpore split the run over ranks; none if no file records it.

        Columns: mode (in the file's words, such as auto_parallel or pipeline-parallel), stages and
        ranks (counts), stage_ranks (a list: the ranks of each stage).

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, keywords).figures.parallel

    @with_keywords(SelectionKeywords, Selection)
    def parallel_times(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """Return the sums of MindSpore's cluster analysis by rank and step, then their means.

        Columns: rank, stage (from 0), step (masked in means), of (in means: steps for the selected
        ones but the first, file for what MindSpore wrote), computing_ns, communication_alone_ns
        (while nothing computes), stage_ns = computing_ns + collective_alone_ns, receive_alone_ns
        and collective_alone_ns, which make up communication_alone_ns. Unknown values are masked.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, keywords).figures.parallel_times
