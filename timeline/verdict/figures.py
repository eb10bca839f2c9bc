"""All tables of a run: overlap, steps, operators, collectives, waiting."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from timeline.analysis.gains.findings import Cause
from timeline.analysis.ordinary_steps import ordinary_steps
from timeline.analysis.path.critical_path import CriticalPath
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.culprit import Culprit
from timeline.analysis.waits.exposed_waiting import late_by_step, split_exposed
from timeline.analysis.waits.waiting import Basis, Waiting
from timeline.tables.data import (
    data_curve_table,
    data_pipeline_table,
    data_preparation_table,
    data_queue_table,
)
from timeline.tables.flops import flops_table
from timeline.tables.idle import idle_by_call, idle_by_cause
from timeline.tables.memory import memory_table, memory_tables
from timeline.tables.operators import (
    framework_table,
    operator_detail_table,
    operator_step_table,
    operator_sum_table,
    operator_table,
    told_operator_step_table,
)
from timeline.tables.parallel import (
    parallel_table,
    parallel_times_table,
    pipeline_table,
    step_trace_table,
)
from timeline.tables.table import Table
from timeline.tables.times import check_table, overlap_table, step_table, unused_table
from timeline.tables.waits import (
    collective_table,
    exposed_tables,
    link_table,
    longest_op_table,
    path_table,
    waited_for_table,
    waiting_table,
)
from timeline.tables.work import (
    class_table,
    computing_table,
    framework_module_table,
    framework_operator_table,
    launch_table,
    length_table,
    module_table,
    task_sum_table,
)
from timeline.verdict.advice import Advice, advice_table, cluster_advice, data_advice
from timeline.verdict.findings import ReportedFindings, report_findings


@dataclass(frozen=True)
class Figures:
    """All measurements as tables; times of all ranks are on one clock."""

    overlap: Table
    """A row per rank: rank, steps, step_ns (the mean period of its ordinary steps), span_ns
    (computing, not overlapped and free together), computing_ns, communication_ns,
    not_overlapped_ns, free_ns; of free copies_ns, idle_ns and outside_ns, of which before_ns lies
    before the first computing or communication. step_ns, copies_ns and the last two are masked
    where not known."""
    steps: Table
    """A row per rank, graph and step: start_ns and end_ns as marked; period_ns, from the end of the
    step before to its own (see `step_periods`), which is before_ns (before its first kernel),
    span_ns and between_ns (before it begins on its host, and after its last kernel) together;
    device_start_ns and the parts of the span; preparing_ns and receive_ns (see `StepWaits`);
    late_ns, how much later than its peers the rank came (see `late_by_step`);
    fp_bp_ns, tail_ns and interval_ns of the step trace (forward and backward, what comes behind,
    the wait for data before); tasks, how many device tasks it has, and ordinary, 1 for a step that
    the run can be judged by (see `ordinary_steps`)."""
    operators: Table
    """A row per rank and operator: communication or not, type, core, name and shapes (where asked
    for), count, total_ns, shortest_ns, longest_ns, and waited_ns, from the end of the kernel
    before to each run (see `kernel_waits`), masked where causes were not asked for."""
    longest_ops: Table
    """The longest communication ops of each rank: rank, name, group, graph, step, start_ns and
    duration_ns."""

    waiting: Table
    """A row per rank: shared, unmatched and alone (collectives of which it is known who came last;
    that other ranks of the group have nothing to compare with; of whose group no other rank is in
    the selection), the time that they and sends and receives took, times_last, waited_ns,
    caused_ns (what others that are read waited for it), and slowest_ns (the longest that it kept
    one waiting); unknown and unnamed (collectives of which it is not known who came last, as not
    all members are read, or HCCL tasks have neither names nor ranks), and what they took. What
    is about waiting is masked where none of its collectives is known."""
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
    """The basis of the statements on waiting."""
    waited_for: Table = field(default_factory=lambda: Table({}))
    """A row per rank and whom it waited for, longest first: rank, waited_for_rank (masked where
    only "some rank" is known), profiled (whether that is among the ranks read), times and
    waited_ns."""
    exposed: Table = field(default_factory=lambda: Table({}))
    """A row per rank, of the communication of its ordinary steps: exposed_ns (while nothing
    computed), and of that waiting_ns and transfer_ns, as far as they are known."""
    exposed_steps: Table = field(default_factory=lambda: Table({}))
    """A row for each of `steps`: waiting_ns and transfer_ns, what its exposed communication
    consists of as far as that is known; masked where nothing of it is."""
    culprit: Culprit | None = None
    """The rank that the first finding names."""
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
    """A row per rank, step, scope and operator whose work was counted, see `flops_table`."""
    data_preparation: Table = field(default_factory=lambda: Table({}))
    """A row per rank: what limits the preparation of its data, see `data_preparation_table`."""
    data_queues: Table = field(default_factory=lambda: Table({}))
    """A row per rank and queue of batches, see `data_queue_table`."""
    data_pipeline: Table = field(default_factory=lambda: Table({}))
    """A row per rank and operation of its data pipeline, see `data_pipeline_table`."""
    operator_sums: Table = field(default_factory=lambda: Table({}))
    """A row per rank, source and type of operator, see `operator_sum_table`."""
    operator_steps: Table = field(default_factory=lambda: Table({}))
    """A row per rank, step and type, operator or kernel, see `operator_step_table`."""
    framework: Table = field(default_factory=lambda: Table({}))
    """A row per rank and operator as the framework describes it, see `framework_table`."""
    step_trace: Table = field(default_factory=lambda: Table({}))
    """A row per rank, graph and step, and their means, see `step_trace_table`."""
    parallel: Table = field(default_factory=lambda: Table({}))
    """The split of the run over ranks, in a row at most, see `parallel_table`."""
    parallel_times: Table = field(default_factory=lambda: Table({}))
    """A row per rank and step: computing and communication, see `parallel_times_table`."""
    memory_graphs: Table = field(default_factory=lambda: Table({}))
    """A row per rank and graph: its peak, see `memory_tables`."""
    memory_operators: Table = field(default_factory=lambda: Table({}))
    """A row per rank, graph and node, or allocation, see `memory_tables`."""
    memory_tensors: Table = field(default_factory=lambda: Table({}))
    """A row per rank, graph and tensor, or allocation, see `memory_tables`."""
    advice: Table = field(default_factory=lambda: Table({}))
    """A row per number beyond its threshold, the worst first, see `advice_table`."""
    framework_operators: Table = field(default_factory=lambda: Table({}))
    """For a comparison, a row per rank, name of operators that are shown, and shapes (empty where
    they are not told apart): count, total_ns, size_bytes and held_ns as in `OperatorTimes`, and
    allocates, 1 where allocations were recorded."""
    framework_modules: Table = field(default_factory=lambda: Table({}))
    """For a comparison, a row per rank, path of modules and direction, `forward` or `backward`:
    self_ns and total_ns as in `ModuleTimes`."""
    operator_details: Table = field(default_factory=lambda: Table({}))
    """A row per rank, file of sums and operator, see `operator_detail_table`."""
    told_operator_steps: Table = field(default_factory=lambda: Table({}))
    """Rows of `operator_steps` for a report, see `told_operator_step_table`."""

    work_classes: Table = field(default_factory=lambda: Table({}))
    """For a comparison, a row per rank and class of device work: rank, by (kernel or launch),
    metric, count and total_ns, masked where the rank does not tell."""
    data_curves: Table = field(default_factory=lambda: Table({}))
    """See `data_curve_table`."""

    findings: ReportedFindings = field(default_factory=ReportedFindings)
    """The findings, what to mend first; none if causes were not asked for."""

    @classmethod
    def of(
        cls,
        facts: Sequence[RankFacts],
        waiting: Waiting,
        path: CriticalPath | None = None,
        on_disk: Collection[int] = (),
    ) -> Figures:
        """Return the figures of some ranks, which are on one clock.

        path: what determined the steps; a comparison has none, and looks for no findings.
        on_disk: those of the profile, selected or not.
        """
        ordinary = ordinary_steps(facts)
        of_ranks, of_steps = split_exposed(facts, waiting.waits)
        exposed, exposed_steps = exposed_tables(facts, of_ranks, of_steps, ordinary)
        memory_graphs, memory_operators, memory_tensors = memory_tables(facts)
        operator_steps = operator_step_table(facts)
        critical_path = path_table(CriticalPath() if path is None else path)
        computing_causes = computing_table(facts)
        findings, culprit = ReportedFindings(), None
        if path is not None:
            findings, culprit = report_findings(
                facts, waiting, critical_path, computing_causes, on_disk
            )
        return (
            cls(
                overlap=overlap_table(facts, ordinary),
                steps=step_table(facts, late_by_step(facts, of_steps), ordinary),
                operators=operator_table(facts),
                longest_ops=longest_op_table(facts),
                waiting=waiting_table(facts, waiting.stragglers),
                collectives=collective_table(facts, waiting.waits),
                links=link_table(facts),
                checks=check_table(facts),
                unused=unused_table(facts),
                basis=waiting.basis,
                waited_for=waited_for_table(facts, waiting.waited_for),
                exposed=exposed,
                exposed_steps=exposed_steps,
                culprit=culprit,
                idle=idle_by_cause(facts),
                idle_calls=idle_by_call(facts),
                critical_path=critical_path,
                computing_causes=computing_causes,
                findings=findings,
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
                memory_graphs=memory_graphs,
                memory_operators=memory_operators,
                memory_tensors=memory_tensors,
                framework_operators=framework_operator_table(facts),
                framework_modules=framework_module_table(facts),
                work_classes=class_table(facts),
            )
            .with_starved()
            .with_advice()
        )

    def with_starved(self) -> Figures:
        """Return the figures with the rank that idles for data among the findings.

        What hosts wait for data is found by replaying the run; what else says that data come late,
        as idle time and step traces do, only tells how much is lost.
        """
        from timeline.verdict.unreplayed import find_starved  # which is made of these figures

        starved = None if self.findings.knows_input else find_starved(self)
        if starved is None:
            return self
        findings, culprit = self.findings.with_starved(starved), self.culprit
        if culprit is None or culprit.share < starved.share:
            waiters = culprit.waiters if culprit and culprit.rank == starved.rank else ()
            culprit = Culprit(
                starved.rank,
                True,
                Cause.INPUT,
                sum(waiter.waited_ns for waiter in waiters),
                starved.share,
                starved.lost_ns,
                max(starved.steps, 1),
                waiters,
            )
        return replace(self, findings=findings, culprit=culprit)

    def with_advice(self) -> Figures:
        """Return the figures with their advice."""
        return replace(self, advice=advice_table(self.all_advice()))

    def all_advice(self) -> tuple[Advice, ...]:
        """Return the advice that follows from the figures, in no order."""
        return (
            *data_advice(
                self.data_preparation, self.data_queues, self.data_pipeline, self.step_trace
            ),
            *cluster_advice(
                self.step_trace, self.flops, self.links, self.parallel, self.parallel_times
            ),
        )
