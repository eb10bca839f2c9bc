"""Tables of the memory that graphs and operators hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from timeline.analysis.questions import EVERY_ROW, Questions
from timeline.declarations import with_keywords
from timeline.errors import UsageError
from timeline.figures.table import Table
from timeline.keywords import SelectionKeywords
from timeline.library.open_profile import OpenProfile
from timeline.selection import Selection

if TYPE_CHECKING:
    from typing_extensions import Unpack

_MEMORY = Questions(most_allocations=EVERY_ROW)


class MemoryTables(OpenProfile):
    """Tables of the memory that graphs and operators hold."""

    @with_keywords(SelectionKeywords, Selection)
    def memory_graphs(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """Return a row per rank and graph with the most memory it holds, as MindSpore plans it.

        Columns: rank, graph, static_bytes (held throughout), peak_bytes, peak_node and
        peak_operator (where the peak is first reached; a node is a place in the execution order,
        from 0), capacity_bytes (of the device), nodes and tensors (counts), fp_start and bp_end
        (the operators that begin forward and end backward). If torch_npu recorded allocations,
        there is a row for the rank: peak_operator allocated last before the peak, tensors is the
        number of allocations, and the rest is masked.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, keywords, _MEMORY).figures.memory_graphs

    @with_keywords(SelectionKeywords, Selection)
    def memory(
        self,
        selection: Selection | None = None,
        by: Literal["operator", "tensor"] = "operator",
        **keywords: Unpack[SelectionKeywords],
    ) -> Table:
        """Return the memory that graphs hold: a row per operator in execution order, or per tensor.

        By operator: rank, graph, node, name, use_bytes (held by the graph then), size_bytes (of the
        operator's outputs and workspaces), change_bytes (of use_bytes since the node before). By
        tensor: rank, graph, tensor, type, size_bytes, first and last (the nodes between which it
        lives, both included), operator (the one that makes it), at_peak (True if it lives at the
        peak). If torch_npu recorded allocations, both ways give a row for each of them, in order of
        time, without graph and nodes. Unknown values are masked or None.

        Raises:
            TimelineError: as `overlap`.
        """
        if by not in ("operator", "tensor"):
            raise UsageError(f"by={by!r}: memory is told apart by operator or tensor.")
        figures = self._measure(selection, keywords, _MEMORY).figures
        return figures.memory_operators if by == "operator" else figures.memory_tensors
