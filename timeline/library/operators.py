"""Tables of operators: their times, also by step, FLOPs, and their place in the framework."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from timeline.analysis.questions import EVERY_ROW
from timeline.declarations import with_keywords
from timeline.errors import UsageError
from timeline.figures.table import Table
from timeline.keywords import SelectionKeywords
from timeline.library.open_profile import ALWAYS_ASKED, OpenProfile
from timeline.selection import Selection

if TYPE_CHECKING:
    from typing_extensions import Unpack


class OperatorTables(OpenProfile):
    """Tables of operators: their times, also by step, FLOPs, and their place in the framework."""

    @with_keywords(SelectionKeywords, Selection)
    def operators(
        self,
        selection: Selection | None = None,
        by: Literal["type", "name", "launch", "module"] = "type",
        **keywords: Unpack[SelectionKeywords],
    ) -> Table:
        """Return a row per rank, source and type of operator; or by name, or by launching code.

        By type: rank, communication (1 or 0), type, core (what ran it), count, total_ns,
        shortest_ns, longest_ns, waited_ns (from the end of the kernel before to each run, as Wait
        Time in kernel_details.csv), source, mean_ns, dispatch_ns (until an AI CPU began), run_ns
        and share (of all of its source and rank). source is tasks, or the MindSpore file that holds
        the sums: aicore_intermediate (of a mean step), aicpu_intermediate, or aicpu (the log of the
        AI CPUs). By name: name, and shapes of inputs, which are empty by type.

        By launch or module, of tasks alone: rank, communication, launched_by and operator (the
        outermost and the innermost operator of the framework around the launch), or module (the
        modules and annotations around it, or the scope in its name); phase (forward, backward or
        other), count, total_ns, shortest_ns, longest_ns.

        Unknown values are masked. Each compute task and communication op is in one row of tasks.

        Raises:
            TimelineError: as `overlap`.
        """
        if by not in ("type", "name", "launch", "module"):
            raise UsageError(
                f"by={by!r}: operators are told apart by type, name, launch or module."
            )
        if by in ("launch", "module"):
            figures = self._measure(selection, keywords).figures
            return figures.launchers if by == "launch" else figures.modules
        from timeline.figures.operator_tables import with_file_sums

        asked = replace(ALWAYS_ASKED, named_operators=EVERY_ROW if by == "name" else 0)
        figures = self._measure(selection, keywords, asked).figures
        if by == "name":
            return with_file_sums(figures.operators, figures.operator_details)
        table = with_file_sums(figures.operators, figures.operator_sums)
        return Table({name: column for name, column in table.columns.items() if name != "name"})

    @with_keywords(SelectionKeywords, Selection)
    def operator_steps(
        self,
        selection: Selection | None = None,
        by: Literal["type", "name", "kernel"] | None = None,
        **keywords: Unpack[SelectionKeywords],
    ) -> Table:
        """Return how often and how long operators ran in each step.

        A row per rank, step and level: type, name (an operator and its shapes) or kernel (of GPUs);
        `by` chooses one level. Columns: rank, step, level, side (cpu or gpu, if a file names it),
        type, name, shapes (of inputs), count, total_ns, mean_ns. Rows come from the rank's
        dynamic_shape_info file, or else from its tasks and communication ops; those outside of all
        steps are in no row. Unknown values are masked or None.

        Raises:
            TimelineError: as `overlap`.
        """
        if by not in (None, "type", "name", "kernel"):
            raise UsageError(f"by={by!r}: operators of steps are told apart by type, name, kernel.")
        asked = replace(ALWAYS_ASKED, every_run=True)
        table = self._measure(selection, keywords, asked).figures.operator_steps
        return table if by is None else table.take(table["level"] == by)

    @with_keywords(SelectionKeywords, Selection)
    def flops(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """Return the FLOPs that MindSpore counted: rows of ranks, steps, scopes and operators.

        Columns: rank, level (rank, step, scope or operator: the
        subject of the row), name, parent (of a scope, which is identified by its name and parent
        together), step, unit (all, cube or vector), flop (of one step, or of one run of an
        operator), flop_per_s (of a rank the mean over its operators, not work / time), utilization
        (of the peak, 0 to 1). Unknown values are masked or None; nothing is estimated from shapes.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, keywords).figures.flops

    @with_keywords(SelectionKeywords, Selection)
    def framework(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """Return a row per operator as MindSpore describes it to the device.

        Columns: rank, graph, stream, task (its id on the device), name, type, block_dim (how many
        blocks it is split into), inputs and outputs (lists of {format, type, shape}). Unknown
        values are masked or None.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, keywords).figures.framework
