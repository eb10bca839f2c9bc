"""How data is prepared, and where that limits a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from timeline.declarations import with_keywords
from timeline.figures.table import Table
from timeline.keywords import SelectionKeywords
from timeline.library.open_profile import OpenProfile
from timeline.selection import Selection

if TYPE_CHECKING:
    from typing_extensions import Unpack


class DataTables(OpenProfile):
    """How data is prepared, and where that limits a run."""

    @with_keywords(SelectionKeywords, Selection)
    def data_preparation(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """What limits the preparation of data, by MindInsight's rules: a row per rank.

        rank, bottleneck (processing, sending or none; None without a host queue), empty_share (the
        share of batches that found the host queue empty), operations (a list: the op of each row of
        `data_pipeline` that has a bottleneck), cpu_busy (0 to 1).

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, keywords).figures.data_preparation

    @with_keywords(SelectionKeywords, Selection)
    def data_queues(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """A row per rank and queue through which its batches go.

        rank; queue: host (from the pipeline to the sender), device (as GetNext found it), to device
        (as the sender found it); records (batches), empty and full (at how many of these it was),
        capacity (in batches), and means of a batch: get_ns (until there was one), push_ns (into the
        queue behind), total_ns. What is not known is masked.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, keywords).figures.data_queues

    @with_keywords(SelectionKeywords, Selection)
    def data_pipeline(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """A row per rank and operation of its data pipeline that has a queue, and its root.

        rank, op (its id), type, workers, parent and children (ids; those without a queue are passed
        over), samples (of its queue), capacity and mean_size (in batches), usage (mean_size /
        capacity), empty_share (of the samples), cpu_user and cpu_system (0 to 1), bottleneck
        (fuller input, slow source or slow sink, by MindInsight's rules), advice (what to try then).
        What is not known is masked or None.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, keywords).figures.data_pipeline
