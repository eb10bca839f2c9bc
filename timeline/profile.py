"""Profiles that are open: their ranks at once, their figures when they are asked for."""

from __future__ import annotations

import functools
import os
import weakref
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal

import numpy as np

from timeline.analysis.questions import EVERY_ROW, Questions
from timeline.declarations import fill, with_keywords
from timeline.errors import UsageError
from timeline.figures.notebook import paragraph_html
from timeline.figures.table import Table
from timeline.keywords import ReadingKeywords
from timeline.measure import Measured, measure, read_known
from timeline.options import ReadingOptions
from timeline.progress import Progress, Silent
from timeline.selection import Selection
from timeline.sources.finding.discovery import FIND_FOR_EXPORT, Discovered, FindingOptions
from timeline.sources.finding.packed import discover_unpacked

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Profile", "open_profile", "profile_at"]

MOST_SELECTIONS = 16
"""So many selections are remembered; their figures are small, their records are not kept."""
MOST_RANKS_SHOWN = 8
_CALLER_OF_ESTIMATE = 3
"""Frames from where files are read up to whoever asked for an estimate."""
_ALWAYS_TOLD = Questions()
_CAUSES = Questions(causes=True)
_MEMORY = Questions(most_allocations=EVERY_ROW)


class Profile:
    """A profile that was found, and is read when something is asked of it.

    Every method takes a Selection, or none for the whole profile. The figures of a selection are
    read once and remembered: all of them, except operators by name, in one reading. What readers
    have to say, and records that cannot be read, are a TimelineWarning then; `omissions` counts
    them. Where the profile is an archive, it is unpacked until `close`, the end of a `with`, or
    the end of the Profile itself.

    path: as given. sources: a capture per rank, ascending. notes: what was assumed of captures,
    and which were passed over. found: all that lies there, older runs too.
    """

    def __init__(
        self,
        path: Path,
        found: Discovered,
        reading: ReadingOptions,
        progress: Progress,
        place: ExitStack,
    ) -> None:
        self.path = path
        self.sources = found.sources
        self.notes = found.notes
        self.found = found
        self.reading = reading
        self.progress = progress
        self._close = weakref.finalize(self, place.close)
        # The cache holds no reference to the Profile, which would keep an archive unpacked.
        self._reader = (path, found.sources, reading, progress)
        read = functools.partial(measure, *self._reader)
        self._read = functools.lru_cache(MOST_SELECTIONS)(read)

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks, ascending."""
        return tuple(source.identity.rank for source in self.sources)

    @property
    def captures(self) -> Table:
        """A row per rank: rank, layout, host (None where not known), source (the directory)."""
        return Table(
            {
                "rank": np.array(self.ranks, np.int64),
                "layout": np.array([source.layout for source in self.sources], object),
                "host": np.array([source.clock.host or None for source in self.sources], object),
                "source": np.array(
                    [str(source.identity.directory) for source in self.sources], object
                ),
            }
        )

    def overlap(self, selection: Selection | None = None) -> Table:
        """A row per rank: how its device time is spent.

        rank, steps (their number), step_ns (the mean span of an ordinary step), span_ns,
        computing_ns, communication_ns, not_overlapped_ns, free_ns; computing, not overlapped and
        free make up the span.

        Raises:
            TimelineError: something selected is not there, or a file cannot be read.
        """
        return self._measure(selection).figures.overlap

    def steps(self, selection: Selection | None = None) -> Table:
        """A row per rank, graph and step.

        rank, graph, step, start_ns and end_ns as marked (on the clock that all ranks share);
        span_ns, computing_ns, communication_ns, not_overlapped_ns and free_ns of its device work;
        fp_bp_ns, tail_ns and interval_ns of the step trace; tasks, how many device tasks it has;
        ordinary, 1 for a step with device tasks that is neither the first recorded one of its graph
        nor cut by the edge of the recording. What is not known is masked.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection).figures.steps

    def operators(
        self,
        selection: Selection | None = None,
        by: Literal["type", "name", "launch", "module"] = "type",
    ) -> Table:
        """A row per rank, source and type of operator; or by name, or by whose work it is.

        By type: rank, communication (1 or 0), type, core (what ran it), count, total_ns,
        shortest_ns, longest_ns, source, mean_ns, dispatch_ns (until an AI CPU began), run_ns and
        share (of all of its source and rank). source is tasks, or the MindSpore file whose sums
        are given: aicore_intermediate (of a mean step), aicpu_intermediate, or aicpu (the log of
        the AI CPUs). By name: name, and shapes of inputs, which are empty by type.

        By launch or module, of tasks alone: rank, communication, launched_by and operator (the
        outermost and the innermost operator of the framework around the launch), or module (the
        modules and annotations around it, or the scope in its name); phase (forward, backward or
        other), count, total_ns, shortest_ns, longest_ns.

        What is not known is masked. Each compute task and communication op is in one row of tasks.

        Raises:
            TimelineError: as `overlap`.
        """
        if by not in ("type", "name", "launch", "module"):
            raise UsageError(
                f"by={by!r}: operators are told apart by type, name, launch or module."
            )
        if by in ("launch", "module"):
            figures = self._measure(selection, _CAUSES).figures
            return figures.launchers if by == "launch" else figures.modules
        from timeline.figures.operator_tables import with_file_sums

        asked = Questions(named_operators=EVERY_ROW if by == "name" else 0)
        figures = self._measure(selection, asked).figures
        if by == "name":
            return with_file_sums(figures.operators, figures.operator_details)
        table = with_file_sums(figures.operators, figures.operator_sums)
        return Table({name: column for name, column in table.columns.items() if name != "name"})

    def collectives(self, selection: Selection | None = None) -> Table:
        """The longest communication ops of each rank, longest first.

        rank, name, group, graph, step, start_ns, duration_ns. Others count in `operators`.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection).figures.longest_ops

    def waiting(self, selection: Selection | None = None) -> Table:
        """A row per rank and rank that it waited for in collectives, the longest waits first.

        rank, waited_for_rank (masked where it is only known that some rank came last), profiled
        (whether that is among the ranks read), times, waited_ns.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, _CAUSES).figures.waited_for

    def idle(
        self, selection: Selection | None = None, by: Literal["cause", "call"] = "cause"
    ) -> Table:
        """Why devices idle: a row per rank, step (masked for the whole selection) and cause.

        rank, graph, step, cause, gaps (between tasks, in which it occurs), total_ns, calls (up to
        five pairs of a host call and the ns in it), least_ns (the device's own least gap); those of
        a rank and step add up to its idle time. By call: rank, graph, step, cause, call, total_ns.

        Raises:
            TimelineError: as `overlap`.
        """
        if by not in ("cause", "call"):
            raise UsageError(f"by={by!r}: idle time is told apart by cause or by call.")
        figures = self._measure(selection, _CAUSES).figures
        return figures.idle if by == "cause" else figures.idle_calls

    def critical_path(self, selection: Selection | None = None) -> Table:
        """What determined how long each step took: a row per segment, in order of time.

        step, graph, rank, profiled (whether the rank is in the profile), kind (computing, transfer,
        copy, host, queued, launch, between_tasks, not_profiled), name (what ran or was waited for;
        on the host the call that took most of it), start_ns, duration_ns, and call_ns, what that
        call took. The segments of a step add up to the time from the last device end of the step
        before to its own. Masked are steps where none are marked, and ranks that are not known.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, _CAUSES).figures.critical_path

    def estimate_gain(self, rank: int, selection: Selection | None = None) -> int | None:
        """How many ns earlier the selection would end if a rank were as fast as the others.

        The run is played again, with each task of the rank, and what its host does between two
        launches, no longer than the median of the other ranks. That is an estimate: within 5% where
        simulated clusters tell the truth, and unproven beyond. None where a rank came last to some
        collective that is not profiled, and without other ranks.

        Raises:
            TimelineError: as `overlap`.
        """
        from timeline.analysis.path.estimates import estimated_gain_ns

        self.check_open()
        chosen = replace(selection or Selection(), layers=None)
        asked = Questions(causes=True, estimate=True)
        known = read_known(*self._reader, chosen, asked, caller=_CALLER_OF_ESTIMATE)
        return estimated_gain_ns(known.facts, known.waiting, rank)

    def flops(self, selection: Selection | None = None) -> Table:
        """The floating-point operations that MindSpore counted, of ranks, steps, scopes, operators.

        rank, level (rank, step, scope or operator: what the row is of), name, parent (of a scope,
        which is told by its name and that together), step, unit (all, cube or vector), flop (of
        one step, or of one run of an operator), flop_per_s (of a rank the mean over its operators,
        not work / time), utilization (of the peak, 0 to 1). What is not known is masked or None;
        nothing is estimated from shapes.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection).figures.flops

    def data_preparation(self, selection: Selection | None = None) -> Table:
        """What limits the preparation of data, by MindInsight's rules: a row per rank.

        rank, bottleneck (processing, sending or none; None without a host queue), empty_share (the
        share of batches that found the host queue empty), operations (a list: the op of each row of
        `data_pipeline` that has a bottleneck), cpu_busy (0 to 1).

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection).figures.data_preparation

    def data_queues(self, selection: Selection | None = None) -> Table:
        """A row per rank and queue through which its batches go.

        rank; queue: host (from the pipeline to the sender), device (as GetNext found it), to device
        (as the sender found it); records (batches), empty and full (at how many of these it was),
        capacity (in batches), and means of a batch: get_ns (until there was one), push_ns (into the
        queue behind), total_ns. What is not known is masked.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection).figures.data_queues

    def data_pipeline(self, selection: Selection | None = None) -> Table:
        """A row per rank and operation of its data pipeline that has a queue, and its root.

        rank, op (its id), type, workers, parent and children (ids; those without a queue are passed
        over), samples (of its queue), capacity and mean_size (in batches), usage (mean_size /
        capacity), empty_share (of the samples), cpu_user and cpu_system (0 to 1), bottleneck
        (fuller input, slow source or slow sink, by MindInsight's rules), advice (what to try then).
        What is not known is masked or None.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection).figures.data_pipeline

    def operator_steps(
        self,
        selection: Selection | None = None,
        by: Literal["type", "name", "kernel"] | None = None,
    ) -> Table:
        """How often and how long operators ran in each step.

        A row per rank, step and level: type, name (an operator and its shapes) or kernel (of GPUs);
        by chooses one level. rank, step, level, side (cpu or gpu, where a file tells it), type,
        name, shapes (of inputs), count, total_ns, mean_ns. Rows are of the rank's
        dynamic_shape_info file, or else of its tasks and communication ops; what lies in no step
        is in no row. What is not known is masked or None.

        Raises:
            TimelineError: as `overlap`.
        """
        if by not in (None, "type", "name", "kernel"):
            raise UsageError(f"by={by!r}: operators of steps are told apart by type, name, kernel.")
        table = self._measure(selection, Questions(every_run=True)).figures.operator_steps
        return table if by is None else table.take(table["level"] == by)

    def step_trace(self, selection: Selection | None = None) -> Table:
        """A row per rank, graph and step of the step trace, then the means of each graph.

        rank, graph, step (masked in means), of (in means: steps for the selected ones but the
        first, file for what MindSpore wrote), start_ns (the end of the step before), total_ns =
        interval_ns + fp_bp_ns + tail_ns (interval_ns, the wait for data, is masked in the first
        step), fp_start and bp_end (the operators that begin forward and end backward). What is not
        known is masked or None.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection).figures.step_trace

    def parallel(self, selection: Selection | None = None) -> Table:
        """How MindSpore split the run over ranks: one row, or none where no file tells it.

        mode (in the file's words, such as auto_parallel or pipeline-parallel), stages and ranks
        (how many), stage_ranks (a list: the ranks of each stage).

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection).figures.parallel

    def parallel_times(self, selection: Selection | None = None) -> Table:
        """A row per rank and step that MindSpore's cluster analysis sums up, then their means.

        rank, stage (from 0), step (masked in means), of (in means: steps for the selected ones but
        the first, file for what MindSpore wrote), computing_ns, communication_alone_ns (while
        nothing computes), stage_ns = computing_ns + collective_alone_ns, receive_alone_ns and
        collective_alone_ns, which make up communication_alone_ns. What is not known is masked.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection).figures.parallel_times

    def links(self, selection: Selection | None = None) -> Table:
        """A row per rank and link: what its HCCL tasks, or else the profiler's sums of them, moved.

        rank, source_rank and target_rank, link (its kind, such as HCCS), count (of tasks; masked in
        the profiler's sums), size_bytes, total_ns, bandwidth_gb_s (size / time), group (in which
        ranks are counted, where its members are not known), numbered_in (run or group: what
        source_rank and target_rank are numbers in).

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection).figures.links

    def framework(self, selection: Selection | None = None) -> Table:
        """A row per operator as MindSpore describes it to the device.

        rank, graph, stream, task (its id on the device), name, type, block_dim (how many blocks it
        is split into), inputs and outputs (lists of {format, type, shape}). What is not known is
        masked or None.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection).figures.framework

    def memory_graphs(self, selection: Selection | None = None) -> Table:
        """A row per rank and graph: the most memory it holds, as MindSpore plans it.

        rank, graph, static_bytes (held throughout), peak_bytes, peak_node and peak_operator (where
        that is first reached; a node is a place in the execution order, from 0), capacity_bytes (of
        the device), nodes and tensors (how many), fp_start and bp_end (the operators that begin
        forward and end backward). Where torch_npu recorded allocations, a row for the rank:
        peak_operator allocated last before the peak, tensors is the number of allocations, and the
        rest is masked.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection, _MEMORY).figures.memory_graphs

    def advice(self, selection: Selection | None = None) -> Table:
        """A row per number beyond its threshold, with what to do about it, the worst first.

        about (its subject), rank, stage, source_rank, target_rank, link and op (what it concerns),
        value and mean (of its kind, where it is compared with that) in unit, share (what is
        compared with the threshold; the value where there is none), threshold, text (a sentence).
        What is not known or not meant is masked or None.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection).figures.advice

    def memory(
        self, selection: Selection | None = None, by: Literal["operator", "tensor"] = "operator"
    ) -> Table:
        """Memory that graphs hold: a row per operator in execution order, or per tensor.

        By operator: rank, graph, node, name, use_bytes (held by the graph then), size_bytes (of the
        operator's outputs and workspaces), change_bytes (of use_bytes since the node before). By
        tensor: rank, graph, tensor, type, size_bytes, first and last (the nodes between which it
        lives, both included), operator (the one that makes it), at_peak (whether it lives then).
        Where torch_npu recorded allocations, either way a row for each, in order of time, without
        graph and nodes. What is not known is masked or None.

        Raises:
            TimelineError: as `overlap`.
        """
        if by not in ("operator", "tensor"):
            raise UsageError(f"by={by!r}: memory is told apart by operator or tensor.")
        figures = self._measure(selection, _MEMORY).figures
        return figures.memory_operators if by == "operator" else figures.memory_tensors

    def omissions(self, selection: Selection | None = None) -> Table:
        """Which records of the selection are in no figure: rank, reason, rows, loss.

        loss is 1 where they could not be read, and 0 where others say the same.

        Raises:
            TimelineError: as `overlap`.
        """
        return self._measure(selection).omissions

    def close(self) -> None:
        """Remove what was unpacked; nothing can be read any more. A second time does nothing."""
        self._close()

    def check_open(self) -> None:
        """Make sure that files can still be read.

        Raises:
            UsageError: the profile is closed.
        """
        if not self._close.alive:
            raise UsageError(f"the profile {self.path} is closed; open it again.")

    def _measure(
        self, selection: Selection | None, questions: Questions = _ALWAYS_TOLD
    ) -> Measured:
        self.check_open()
        chosen = replace(selection or Selection(), layers=None)
        return self._read(chosen, questions)

    def __enter__(self) -> Profile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        rows = [f"  {rank}  {layout}  {source}" for rank, layout, _, source in self.captures]
        shown = rows[:MOST_RANKS_SHOWN]
        if len(rows) > len(shown):
            shown.append(f"  ... and {len(rows) - len(shown)} more")
        return "\n".join([f"<Profile {self.path}", *shown, *self.notes]) + ">"

    def _repr_html_(self) -> str:
        return self.captures._repr_html_() + paragraph_html(*self.notes)


@with_keywords(ReadingKeywords, ReadingOptions)
def open_profile(
    path: str | os.PathLike[str] = ".", **keywords: Unpack[ReadingKeywords]
) -> Profile:
    """Find the profile of every rank at, below or around a path; records are not read yet.

    Args:
        path: a profile, a directory above or inside one, one file of it, or an archive.
        assign_rank: the rank of captures that do not tell it, by directory.
        align: what puts ranks on one clock: what was recorded of clocks, the ends of collectives
            that ranks share, the first device record of each, or nothing; collectives where they
            can be trusted and recorded elsewhere, if not given.
        offset: by rank, what its clock is moved by instead: ns, or as in "+120us".
        fp_start, bp_end: operators that begin forward and end backward, where steps are not
            marked; found where not given.
        jobs: processes that read ranks; one per core if not given, or one for a small profile.
        executor: read ranks on a Dask cluster that sees the same files, as in dask://HOST:PORT.
        keep_going: leave out ranks that cannot be read, and say which.
        progress: is told how far reading is.

    Raises:
        TimelineError: there is none, or a rank is not known.
    """
    return profile_at(path, keywords, FIND_FOR_EXPORT)


def profile_at(
    path: str | os.PathLike[str], keywords: ReadingKeywords, finding: FindingOptions
) -> Profile:
    """Find the profile at a path, and as much around it as is asked.

    keywords: those of `open_profile`; others may be among them. finding: what is asked.

    Raises:
        TimelineError: there is none, or ranks are not clear and not only listed.
    """
    reading = fill(ReadingOptions, keywords)
    progress = keywords.get("progress") or Silent()
    path = Path(path)
    progress.report("Looking for profiles", 0, 0)
    with ExitStack() as stack:
        finder = discover_unpacked(
            path,
            reading.assign_rank,
            progress.report,
            finding=replace(finding, keep_going=reading.keep_going),
            executor=reading.executor,
        )
        try:
            found = stack.enter_context(finder)
        finally:
            progress.finish()
        return Profile(path, found, reading, progress, stack.pop_all())
