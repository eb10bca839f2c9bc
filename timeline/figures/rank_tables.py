"""What was measured of all ranks, in tables: overlap, steps, operators, collectives, waiting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.checks import PARTS as CHECKED
from timeline.analysis.checks import RankChecks, known_reasons
from timeline.analysis.ordinary_steps import ordinary_steps
from timeline.analysis.path.critical_path import CriticalPath
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.step_waits import data_aug_bounds
from timeline.analysis.waits.collectives import NO_KIND
from timeline.analysis.waits.culprit import HeldUp, find_culprit
from timeline.analysis.waits.exposed_waiting import split_exposed
from timeline.analysis.waits.waiting import Basis, Stragglers, Waiting, Waits
from timeline.columns.columns import Bool, Int64
from timeline.columns.distinct import distinct_pairs
from timeline.columns.group_by import group_by
from timeline.figures.advice import Advice, advice_table
from timeline.figures.cluster_advice import cluster_advice
from timeline.figures.comparison_tables import (
    class_table,
    framework_module_table,
    framework_operator_table,
    length_table,
    memory_table,
    task_sum_table,
)
from timeline.figures.computing_table import computing_table
from timeline.figures.data_advice import data_advice
from timeline.figures.data_tables import (
    data_curve_table,
    data_pipeline_table,
    data_preparation_table,
    data_queue_table,
)
from timeline.figures.flops_table import flops_table
from timeline.figures.idle_table import idle_by_call, idle_by_cause
from timeline.figures.launch_table import launch_table, module_table
from timeline.figures.memory_graph_tables import memory_tables
from timeline.figures.operator_tables import (
    framework_table,
    operator_detail_table,
    operator_step_table,
    operator_sum_table,
    told_operator_step_table,
)
from timeline.figures.parallel_tables import parallel_table, parallel_times_table
from timeline.figures.path_table import path_table
from timeline.figures.pipeline_table import pipeline_table
from timeline.figures.step_trace_table import step_trace_table
from timeline.figures.table import Table, join_columns
from timeline.figures.waited_for_table import waited_for_table
from timeline.records.collective_kinds import KINDS
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.profiler_tables.cluster import CollectiveSums
from timeline.records.tables import Steps
from timeline.records.vendor import Measure

__all__ = ["PARTS", "Figures", "checks_of", "extent_ns"]

_COUNTED = frozenset(
    {
        "shared",
        "unmatched",
        "alone",
        "shared_ns",
        "unmatched_ns",
        "alone_ns",
        "point_to_point_ns",
        "unknown",
        "unnamed",
        "unknown_ns",
        "unnamed_ns",
    }
)
"""Columns of `waiting` that say what it stands on, and are known even where nothing of it is."""
_DUE = frozenset({"compute_late_ns", "host_late_ns"})
"""Columns of `waiting` that only device tasks tell."""
PARTS = ("computing_ns", "communication_ns", "not_overlapped_ns", "free_ns", "copies_ns", "idle_ns")


@dataclass(frozen=True)
class Figures:
    """What was measured, in tables; times of all ranks are on one clock."""

    overlap: Table
    """A row per rank: rank, steps, step_ns (the mean span of its ordinary steps), span_ns
    (computing, not overlapped and free together), computing_ns, communication_ns,
    not_overlapped_ns, free_ns; of free copies_ns, idle_ns and outside_ns, of which before_ns lies
    before the first computing or communication. step_ns, copies_ns and the last two are masked
    where nothing tells them."""
    steps: Table
    """A row per rank, graph and step: start_ns and end_ns as marked; device_start_ns, span_ns and
    the parts of its device work; receive_ns and preparing_ns (see `StepWaits`); fp_bp_ns, tail_ns
    and interval_ns of the step trace (forward and backward, what comes behind, the wait for data
    before); tasks, how many device tasks it has, and ordinary, 1 for a step that the run can be
    judged by (see `ordinary_steps`)."""
    operators: Table
    """A row per rank and operator: communication or not, type, core, name and shapes (where asked
    for), count, total_ns, shortest_ns and longest_ns."""
    longest_ops: Table
    """The longest communication ops of each rank: rank, name, group, graph, step, start_ns and
    duration_ns."""

    waiting: Table
    """A row per rank: shared, unmatched and alone (collectives of which it is known who came last;
    that other ranks of the group have nothing to compare with; of whose group no other rank is in
    the selection), the time that they and sends and receives took, times_last, waited_ns,
    caused_ns (what others that are read waited for it), of which compute_late_ns and host_late_ns,
    and slowest_ns (the longest that it kept one waiting); unknown and unnamed (collectives of
    which it is not known who came last, as not all members are read, or HCCL tasks have neither
    names nor ranks), and what they took. What tells of waiting is masked where nothing is known of
    any of its collectives."""
    collectives: Table
    """A row per rank, kind and group of collectives: count, size_bytes (what the rank puts in),
    moved_bytes (what it sends over links, as the profiler sums it up), total_ns, waited_ns,
    transfer_ns (from the last arrival on) and bandwidth_gb_s of the bus. Sizes are masked where
    no op tells them, waited_ns where nothing tells when other ranks came, transfer_ns where not
    every member's arrival is known, and the bandwidth where the number of members is not. Of a rank
    without any, what hccl_raw sums up: then group is empty, and times are those of their tasks."""
    links: Table
    """A row per rank and link: source_rank, target_rank, link, count, size_bytes, total_ns,
    bandwidth_gb_s; of HCCL tasks, else of the profiler's own sums, which have no count; group:
    None, or that which ranks are numbers of, where the members of several are not known;
    numbered_in: `run`, or `group` where source_rank and target_rank are numbers inside a group."""

    checks: Table = field(default_factory=lambda: Table({}))
    """A row per number of the profiler that ours was compared with: rank, file, what, numbers (how
    many equal ones the row sums up), ours and theirs (masked where there is none of ours),
    tolerance, equal, and the reason that is known where it is not."""
    unused: Table = field(default_factory=lambda: Table({}))
    """A row per file or table that lies with a rank's capture and is not used: rank, file, what."""
    basis: Basis = field(default_factory=Basis)
    """What is told of waiting stands on."""
    waited_for: Table = field(default_factory=lambda: Table({}))
    """A row per rank and whom it waited for, longest first: rank, waited_for_rank (masked where
    only "some rank" is known), profiled (whether that is among the ranks read), times and
    waited_ns."""
    exposed: Table = field(default_factory=lambda: Table({}))
    """A row per rank, of the communication of its ordinary steps: exposed_ns (while nothing
    computed), and of that waiting_ns and transfer_ns, as far as they are known."""
    held_up: HeldUp = field(default_factory=HeldUp)
    """Who holds up the others in ordinary steps."""
    idle: Table = field(default_factory=lambda: Table({}))
    """Why devices idle, a row per rank, step and cause, see `idle_by_cause`."""
    idle_calls: Table = field(default_factory=lambda: Table({}))
    """The host calls meanwhile, a row per rank, step, cause and call, see `idle_by_call`."""
    critical_path: Table = field(default_factory=lambda: Table({}))
    """A row per segment of what determined each step, in order of time: step and graph (masked
    where there is none), rank (masked where it is not known), profiled (whether it is among the
    ranks read), kind, name (what ran or was waited for; on the host the call that took most of it),
    start_ns, duration_ns and call_ns (how much that call took). Without rows where causes were not
    asked for."""
    computing_causes: Table = field(default_factory=lambda: Table({}))
    """A row per rank: why it computes longer than its peers, see `computing_table`; where causes
    are asked for."""
    launchers: Table = field(default_factory=lambda: Table({}))
    """A row per rank and launching operator, see `launch_table`; where causes are asked for."""
    modules: Table = field(default_factory=lambda: Table({}))
    """A row per rank and module, see `module_table`; where causes are asked for."""
    task_sums: Table = field(default_factory=lambda: Table({}))
    """For a comparison, a row per rank and kind of task: hccl (1 of HCCL, 0 of copies), collective
    (the kind that an HCCL task belongs to), task, count, total_ns and size_bytes."""
    memory: Table = field(default_factory=lambda: Table({}))
    """For a comparison, the peaks of memory: rank, metric (reserved, None for a counter), group,
    name and peak_bytes; of counters where those are read."""
    lengths: Table = field(default_factory=lambda: Table({}))
    """For a comparison, how long each operator ran each time: operator (its row in `operators`) and
    length_ns; without rows where there are too many."""
    pipeline: Table = field(default_factory=lambda: Table({}))
    """A row per rank and step in which it receives from another stage of a pipeline: rank, step
    (masked outside of any), stage (from 0) and stages, micro_batches, receives and matched (those
    whose sends are known), bubble_ns (how long it waited in them) and exposed_ns (while nothing
    computed), share and exposed_share of the step, and ideal_share of the bubble,
    (stages - 1) / (micro_batches + stages - 1); masked where nothing tells them.
    ordinary: whether the step is."""
    flops: Table = field(default_factory=lambda: Table({}))
    """See `flops_table`."""
    data_preparation: Table = field(default_factory=lambda: Table({}))
    """See `data_preparation_table`."""
    data_queues: Table = field(default_factory=lambda: Table({}))
    """See `data_queue_table`."""
    data_pipeline: Table = field(default_factory=lambda: Table({}))
    """See `data_pipeline_table`."""
    operator_sums: Table = field(default_factory=lambda: Table({}))
    """See `operator_sum_table`."""
    operator_steps: Table = field(default_factory=lambda: Table({}))
    """See `operator_step_table`."""
    framework: Table = field(default_factory=lambda: Table({}))
    """See `framework_table`."""
    step_trace: Table = field(default_factory=lambda: Table({}))
    """See `step_trace_table`."""
    parallel: Table = field(default_factory=lambda: Table({}))
    """See `parallel_table`."""
    parallel_times: Table = field(default_factory=lambda: Table({}))
    """See `parallel_times_table`."""
    memory_graphs: Table = field(default_factory=lambda: Table({}))
    """See `MemoryTables`."""
    memory_operators: Table = field(default_factory=lambda: Table({}))
    """See `MemoryTables`."""
    memory_tensors: Table = field(default_factory=lambda: Table({}))
    """See `MemoryTables`."""
    advice: Table = field(default_factory=lambda: Table({}))
    """See `advice_table`."""
    framework_operators: Table = field(default_factory=lambda: Table({}))
    """For a comparison, a row per rank, name of operators that are shown, and shapes (empty where
    they are not told apart): count, total_ns, size_bytes and held_ns as in `OperatorTimes`, and
    allocates, 1 where allocations were recorded."""
    framework_modules: Table = field(default_factory=lambda: Table({}))
    """For a comparison, a row per rank, path of modules and direction, `forward` or `backward`:
    self_ns and total_ns as in `ModuleTimes`."""
    operator_details: Table = field(default_factory=lambda: Table({}))
    """See `operator_detail_table`."""
    told_operator_steps: Table = field(default_factory=lambda: Table({}))
    """See `told_operator_step_table`."""

    work_classes: Table = field(default_factory=lambda: Table({}))
    """For a comparison, a row per rank and class of device work: rank, by (kernel or launch),
    metric, count and total_ns, masked where the rank does not tell."""
    data_curves: Table = field(default_factory=lambda: Table({}))
    """See `data_curve_table`."""

    @classmethod
    def of(
        cls, facts: Sequence[RankFacts], waiting: Waiting, path: CriticalPath | None = None
    ) -> Figures:
        """The figures of some ranks, which are on one clock."""
        ordinary = ordinary_steps(facts)
        bounds = np.searchsorted(waiting.waits.rank, np.arange(len(facts) + 1)).tolist()
        waits = [waiting.waits.take(np.arange(*pair)) for pair in pairwise(bounds)]
        memory = memory_tables(facts)
        operator_steps = operator_step_table(facts)
        return cls(
            _joined([_overlap(rank, its) for rank, its in zip(facts, ordinary, strict=True)]),
            _joined([_steps(rank, its) for rank, its in zip(facts, ordinary, strict=True)]),
            _joined([_operators(rank) for rank in facts]),
            _joined([_longest_ops(rank) for rank in facts]),
            _waiting(facts, waiting.stragglers),
            _joined([_collectives(rank, its) for rank, its in zip(facts, waits, strict=True)]),
            _joined([_links(rank) for rank in facts]),
            checks_of(facts),
            _joined([_unused(rank) for rank in facts]),
            waiting.basis,
            waited_for=waited_for_table(facts, waiting.waited_for),
            exposed=_exposed(facts, waiting, ordinary),
            held_up=find_culprit(facts, waiting, ordinary),
            idle=idle_by_cause(facts),
            idle_calls=idle_by_call(facts),
            critical_path=path_table(CriticalPath() if path is None else path),
            computing_causes=computing_table(facts),
            launchers=launch_table(facts),
            modules=module_table(facts),
            task_sums=task_sum_table(facts),
            memory=memory_table(facts),
            lengths=length_table(facts),
            pipeline=pipeline_table(facts, waiting.pairs, ordinary),
            flops=flops_table(facts),
            data_preparation=data_preparation_table(facts),
            data_queues=data_queue_table(facts),
            data_pipeline=data_pipeline_table(facts),
            data_curves=data_curve_table(facts),
            operator_sums=operator_sum_table(facts),
            operator_details=operator_detail_table(facts),
            operator_steps=operator_steps,
            told_operator_steps=told_operator_step_table(facts, operator_steps),
            framework=framework_table(facts),
            step_trace=step_trace_table(facts),
            parallel=parallel_table(facts),
            parallel_times=parallel_times_table(facts),
            memory_graphs=memory.graphs,
            memory_operators=memory.operators,
            memory_tensors=memory.tensors,
            framework_operators=framework_operator_table(facts),
            framework_modules=framework_module_table(facts),
            work_classes=class_table(facts),
        ).with_advice()

    def with_advice(self) -> Figures:
        """The figures with what they advise."""
        return replace(self, advice=advice_table(self.all_advice()))

    def all_advice(self) -> tuple[Advice, ...]:
        """What the figures advise, in no order."""
        return (
            *data_advice(
                self.data_preparation, self.data_queues, self.data_pipeline, self.step_trace
            ),
            *cluster_advice(
                self.step_trace, self.flops, self.links, self.parallel, self.parallel_times
            ),
        )


def _joined(parts: Sequence[dict[str, npt.NDArray[Any]]]) -> Table:
    names = list(parts[0]) if parts else []
    return Table({name: join_columns([part[name] for part in parts]) for name in names})


def _given(values: Int64, absent: int | np.integer[Any]) -> npt.NDArray[Any]:
    return np.ma.masked_equal(values, absent)


def _overlap(facts: RankFacts, ordinary: Bool) -> dict[str, npt.NDArray[Any]]:
    whole = facts.overlap_ns
    span_ns = whole["computing_ns"] + whole["not_overlapped_ns"] + whole["free_ns"]
    spans_ns = facts.step_totals.span_ns[ordinary & (facts.step_totals.span_ns > 0)]
    mean_ns = round(int(spans_ns.sum()) / len(spans_ns)) if len(spans_ns) else NO_ID
    row = {
        "rank": facts.rank,
        "steps": len(facts.steps),
        "step_ns": mean_ns,
        "span_ns": span_ns,
        **whole,
        **{
            name: NO_ID if time_ns is None else time_ns
            for name, time_ns in asdict(facts.free_parts).items()
        },
    }
    columns = {name: np.array([value], np.int64) for name, value in row.items()}
    maybe = ("step_ns", "copies_ns", "outside_ns", "before_ns")
    return {**columns, **{name: _given(columns[name], NO_ID) for name in maybe}}


def extent_ns(overlap: Table) -> Int64:
    """The time from the first to the last computing or communication, of which shares are.

    overlap: rows with the columns of `Figures.overlap`.
    """
    return np.asarray(overlap["span_ns"] - np.ma.filled(overlap["outside_ns"], 0))


def _steps(facts: RankFacts, ordinary: Bool) -> dict[str, npt.NDArray[Any]]:
    steps, totals = facts.steps, facts.step_totals
    measured = {
        name: np.ma.masked_array(getattr(totals, name), ~totals.known)
        for name in ("span_ns", *PARTS)
    }
    if facts.free_parts.copies_ns is None:
        measured["copies_ns"] = np.ma.masked_equal(np.full(len(steps), NO_ID), NO_ID)
    return {
        "rank": np.full(len(steps), facts.rank, np.int64),
        "graph": _given(steps.graph, NO_GRAPH),
        "step": steps.iteration,
        "start_ns": steps.start_ns,
        "end_ns": steps.end_ns,
        "device_start_ns": _given(facts.device_start_ns, NO_TIME),
        **measured,
        "receive_ns": np.ma.masked_array(facts.step_waits.receive_ns, ~totals.known),
        "preparing_ns": _given(facts.step_waits.preparing_ns, NO_TIME),
        **_phases(steps),
        "tasks": facts.recorded.tasks,
        "ordinary": ordinary.astype(np.int64),
    }


def _phases(steps: Steps) -> dict[str, npt.NDArray[Any]]:
    """The parts of the step trace, as MindInsight's Step Trace page shows them."""
    has_bp = steps.bp_end_ns != NO_TIME
    has_both = has_bp & (steps.fp_start_ns != NO_TIME)
    wait_start_ns, wait_end_ns = data_aug_bounds(steps)
    return {
        "fp_bp_ns": np.ma.masked_array(steps.bp_end_ns - steps.fp_start_ns, ~has_both),
        "tail_ns": np.ma.masked_array(steps.end_ns - steps.bp_end_ns, ~has_bp),
        "interval_ns": np.ma.masked_array(
            wait_end_ns - wait_start_ns, (wait_start_ns == NO_TIME) | steps.host
        ),
    }


def _operators(facts: RankFacts) -> dict[str, npt.NDArray[Any]]:
    times = facts.operators.times
    strings = np.array(facts.operators.strings, object)
    return {
        "rank": np.full(len(times), facts.rank, np.int64),
        "communication": times.communication.astype(np.int64),
        "type": strings[times.type],
        "core": strings[times.core],
        "name": strings[times.name],
        "shapes": strings[times.shapes],
        "count": times.count,
        "total_ns": times.total_ns,
        "shortest_ns": times.shortest_ns,
        "longest_ns": times.longest_ns,
    }


def _longest_ops(facts: RankFacts) -> dict[str, npt.NDArray[Any]]:
    ops = facts.operators.longest
    strings = np.array(facts.operators.strings, object)
    return {
        "rank": np.full(len(ops), facts.rank, np.int64),
        "name": strings[ops.name],
        "group": strings[ops.group],
        "graph": _given(ops.graph, NO_GRAPH),
        "step": _given(ops.iteration, NO_ID),
        "start_ns": ops.start_ns,
        "duration_ns": ops.end_ns - ops.start_ns,
    }


def _waiting(facts: Sequence[RankFacts], stragglers: Stragglers) -> Table:
    ranks = np.array([rank.rank for rank in facts], np.int64)
    columns = {field.name: getattr(stragglers, field.name) for field in fields(stragglers)}
    rest = sum(columns[name] for name in ("alone", "unmatched", "unknown", "unnamed"))
    unknown = (columns["shared"] == 0) & (rest > 0)
    untold = unknown | np.array([rank.tasks == 0 for rank in facts], np.bool_)
    shown = {
        name: values
        if name in _COUNTED
        else np.ma.masked_array(values, untold if name in _DUE else unknown)
        for name, values in columns.items()
    }
    return Table({"rank": ranks, **shown})


def _exposed(facts: Sequence[RankFacts], waiting: Waiting, ordinary: Sequence[Bool]) -> Table:
    parts = split_exposed(facts, waiting.waits, ordinary)
    columns = {field.name: getattr(parts, field.name) for field in fields(parts)}
    return Table({"rank": np.array([rank.rank for rank in facts], np.int64), **columns})


def _collectives(facts: RankFacts, waits: Waits) -> dict[str, npt.NDArray[Any]]:
    ops, strings = facts.collectives.ops, np.array(facts.collectives.strings, object)
    if not len(ops):
        return _filed_collectives(facts)
    nothing = np.zeros(len(ops), np.int64)
    waited_ns, transfer_ns, moved = nothing.copy(), nothing.copy(), np.zeros(len(ops))
    known, transferred = nothing.copy(), nothing.copy()
    whole = waits.take(waits.transfer_ns != NO_TIME)
    known[waits.row] = 1
    transferred[whole.row] = 1
    waited_ns[waits.row] = waits.waited_ns
    transfer_ns[whole.row] = whole.transfer_ns
    moved[whole.row] = np.nan_to_num(whole.bandwidth * whole.transfer_ns)
    timed_ns = np.where(moved > 0, transfer_ns, 0)
    rows = np.flatnonzero(ops.selected)
    kinds, kind = np.unique(_kind_names(facts, rows), return_inverse=True)
    pairs, which = distinct_pairs(kind.reshape(-1), ops.group[rows].astype(np.int64))
    which = which.reshape(-1)

    def total(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        summed = np.zeros(len(pairs), values.dtype)
        np.add.at(summed, which, values[rows])
        return summed

    def total_known(values: Int64) -> npt.NDArray[Any]:
        none = total((values != NO_ID).astype(np.int64)) == 0
        return np.ma.masked_array(total(np.where(values == NO_ID, 0, values)), none)

    carried, over_ns = total(moved), total(timed_ns)
    unknown = total(known) == 0
    return {
        "rank": np.full(len(pairs), facts.rank, np.int64),
        "kind": kinds[pairs[:, 0]],
        "group": strings[pairs[:, 1]],
        "count": total(nothing + 1),
        "size_bytes": total_known(ops.size_bytes),
        "moved_bytes": total_known(ops.moved_bytes),
        "total_ns": total(ops.end_ns - ops.start_ns),
        "waited_ns": np.ma.masked_array(total(waited_ns), unknown),
        "transfer_ns": np.ma.masked_array(total(transfer_ns), total(transferred) == 0),
        "bandwidth_gb_s": np.ma.masked_array(carried / np.maximum(over_ns, 1), over_ns == 0),
    }


def _filed_collectives(facts: RankFacts) -> dict[str, npt.NDArray[Any]]:
    """The sums of hccl_raw, which tells no moments and no sizes of single ops."""
    sums = facts.profiler_tables.of(CollectiveSums)
    kinds = group_by(len(sums), [sums.kind])
    names = [facts.profiler_tables.strings[code] for code in sums.kind[kinds.first].tolist()]
    waited_ns, transfer_ns = kinds.sum(sums.waited_ns), kinds.sum(sums.transfer_ns)
    absent = _given(np.full(len(names), NO_ID), NO_ID)
    return {
        "rank": np.full(len(names), facts.rank, np.int64),
        "kind": np.array(names, object),
        "group": np.full(len(names), "", object),
        "count": kinds.sum(sums.count),
        "size_bytes": absent,
        "moved_bytes": absent,
        "total_ns": waited_ns + transfer_ns,
        "waited_ns": waited_ns,
        "transfer_ns": transfer_ns,
        "bandwidth_gb_s": absent.astype(np.float64),
    }


def _kind_names(facts: RankFacts, rows: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
    """What each op does; its name where that does not tell."""
    ops = facts.collectives.ops
    kinds = np.array([*KINDS, ""], object)[ops.kind[rows]]
    names = np.array(facts.collectives.strings, object)[ops.name[rows]]
    return np.where(ops.kind[rows] == NO_KIND, names, kinds)


def _links(facts: RankFacts) -> dict[str, npt.NDArray[Any]]:
    times = facts.links.times
    groups = [facts.links.strings[code] or None for code in times.group]
    inside = [facts.links.in_groups or group is not None for group in groups]
    return {
        "rank": np.full(len(times), facts.rank, np.int64),
        "source_rank": times.source_rank,
        "target_rank": times.target_rank,
        "link": np.array(facts.links.strings, object)[times.link],
        "count": _given(times.count, 0),
        "size_bytes": times.size_bytes,
        "total_ns": times.total_ns,
        "bandwidth_gb_s": times.size_bytes / np.maximum(times.total_ns, 1),
        "group": np.array(groups, object),
        "numbered_in": np.array(["group" if one else "run" for one in inside], object),
    }


def checks_of(facts: Sequence[RankFacts]) -> Table:
    """What was compared with the numbers of the profiler, see `Figures.checks`."""
    return _joined([_checks(rank) for rank in facts])


def _checks(facts: RankFacts) -> dict[str, npt.NDArray[Any]]:
    rows, strings = facts.checks.rows, facts.checks.strings
    files = [strings[code] for code in rows.file.tolist()]
    return {
        "rank": np.full(len(rows), facts.rank, np.int64),
        "file": _texts(files),
        "what": _texts([*_compared(facts.checks)]),
        "numbers": rows.numbers,
        "ours": _given(rows.ours_ns, NO_TIME),
        "theirs": rows.theirs_ns,
        "tolerance": rows.tolerance_ns,
        "equal": rows.equal.astype(object),
        "reason": _texts(known_reasons(facts.checks)),
    }


def _compared(checks: RankChecks) -> Iterator[str]:
    """What each number is."""
    rows = checks.rows
    columns = (rows.measure, rows.step, rows.name, rows.numbers)
    for measure, step, name, numbers in zip(*(column.tolist() for column in columns), strict=True):
        part = CHECKED.get(Measure(measure), "total_ns")
        if numbers > 1:
            yield f"{part} of {numbers} {_NUMBERED[Measure(measure)]}"
            continue
        ends = [f"of {checks.strings[name]}"] if name else []
        ends += [f"of step {step}"] if step != NO_ID else []
        yield " ".join([part, *ends])


_NUMBERED = dict.fromkeys(CHECKED, "steps") | {
    Measure.OPERATOR: "types of operators",
    Measure.COLLECTIVE: "communication ops",
}
"""What equal numbers that are summed up are of."""


def _unused(facts: RankFacts) -> dict[str, npt.NDArray[Any]]:
    unused = facts.profile.unused
    return {
        "rank": np.full(len(unused), facts.rank, np.int64),
        "file": _texts([file.file for file in unused]),
        "what": _texts([file.what for file in unused]),
    }


def _texts(values: Sequence[str | None]) -> npt.NDArray[Any]:
    return np.array(values, object)
