"""Tables of data preparation, and where it limits a run."""

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
    """Tables of data preparation, and where it limits a run."""

    @with_keywords(SelectionKeywords, Selection)
    def data_preparation(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """Return a row per rank with what limits data preparation, by MindInsight's rules.

        Columns: rank, bottleneck (processing, sending or none; None without a host queue),
        empty_share (share of batches that met an empty host queue), operations (a list: the op of
        each row of `data_pipeline` that has a bottleneck), cpu_busy (0 to 1).

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, keywords).figures.data_preparation

    @with_keywords(SelectionKeywords, Selection)
    def data_queues(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """Return a row per rank and queue that its batches pass.

        Columns: rank; queue: host (from the pipeline to the sender), device (as seen by GetNext),
        to device (as seen by the sender); records (batches), empty and full (batches that met it
        so), capacity (in batches), and means per batch: get_ns (until there was one), push_ns (into
        the next queue), total_ns. Unknown values are masked.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, keywords).figures.data_queues

    @with_keywords(SelectionKeywords, Selection)
    def data_pipeline(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """Return a row per rank and operation of its data pipeline with a queue, and the root.

        Columns: rank, op (its id), type, workers, parent and children (ids; operations without a
        queue are skipped), samples (of its queue), capacity and mean_size (in batches), usage
        (mean_size / capacity), empty_share (of the samples), cpu_user and cpu_system (0 to 1),
        bottleneck (fuller input, slow source or slow sink, by MindInsight's rules), advice (what to
        try in that case). Unknown values are masked or None.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, keywords).figures.data_pipeline
