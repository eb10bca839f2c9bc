"""The tables of an open profile, for Python.

In order: time of ranks and steps, collectives and links, operators, memory, preparation of data,
and single tasks and host calls, which are read for each call and not kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from timeline.analysis.questions import EVERY_ROW, Questions
from timeline.declarations import with_keywords
from timeline.errors import UsageError
from timeline.keywords import SelectionKeywords
from timeline.library.open_profile import ALWAYS_ASKED, OpenProfile, read_known
from timeline.selection import Selection
from timeline.tables.table import Table

if TYPE_CHECKING:
    from typing_extensions import Unpack

_MEMORY = Questions(most_allocations=EVERY_ROW)


class ProfileTables(OpenProfile):
    """The tables of an open profile: a method for each."""

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
            from timeline.tables.work import op_table

            ranks = read_known(*self._reader, self._chosen(selection, keywords), ALWAYS_ASKED)
            return op_table(ranks.facts, ranks.waiting.waits)
        figures = self._measure(selection, keywords).figures
        if by == "longest":
            return figures.longest_ops
        from timeline.tables.waits import group_table

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
        from timeline.tables.operators import with_file_sums

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

    @with_keywords(SelectionKeywords, Selection)
    def tasks(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """Return a row per device task, by rank and start.

        Columns: rank, graph, step, device, stream, task (its id on the device), role (computing,
        communication: a task of HCCL within a communication op, copy or other), type (as in
        `operators`), name, core (what ran it), start_ns (on the clock that all ranks share),
        duration_ns, launch_ns (when the host launched it), call (the number of that call in
        `host_calls` of the same selection), launched_by and operator (the outermost and the
        innermost operator of the framework around the launch), module, phase, shapes (of inputs),
        size_bytes (of copies). Unknown values are masked or None. Tasks that overlap in time count
        twice in a sum of durations; `overlap` counts them once. They are read again each time:
        select some steps of a large profile.

        Raises:
            TimelineError: as `overlap`.
        """
        from timeline.tables.work import task_table

        asked = replace(ALWAYS_ASKED, every_task=True)
        return task_table(read_known(*self._reader, self._chosen(selection, keywords), asked).facts)

    @with_keywords(SelectionKeywords, Selection)
    def host_calls(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """Return a row per host call that touches the time of the selection, by rank and start.

        Columns: rank, call (its number, as in `tasks`), graph, step (as recorded, or the step of
        the host in which it began), layer (the caller: CANN, Python, PyTorch, Runtime, ...),
        process, thread, name, level, start_ns (on the clock that all ranks share), duration_ns.
        Calls lie inside others, so durations do not add up. Unknown values are masked or None. They
        are read again each time, as `tasks`.

        Raises:
            TimelineError: as `overlap`.
        """
        from timeline.tables.work import call_table

        asked = replace(ALWAYS_ASKED, every_call=True)
        return call_table(read_known(*self._reader, self._chosen(selection, keywords), asked).facts)
