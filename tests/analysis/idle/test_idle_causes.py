"""Proves why a device idles against looking at every nanosecond, on random records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.made_launches import Arrow, Call, Op, Step, Task, made_records
from tests.support.made_tables import table_of
from timeline.analysis.cut import Cut, cut
from timeline.analysis.idle import idle_causes
from timeline.analysis.idle.idle_causes import RankIdle, measure_idle
from timeline.analysis.idle.idle_sums import CAUSES, IdleCause
from timeline.analysis.overlap import Overlap, measure_overlap, totals_by_period
from timeline.analysis.steps import NO_STEP
from timeline.columns.intervals import covered_until, union, union_of_sets
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import FlowEnd, Records, StepPart, StepParts
from timeline.selection import Selection

HOST = FlowEnd.HOST
NAMES = ("aten::add", "aclrtSynchronizeStream", "enumerate(DataLoader)#next", "aten::item", "copy_")
FOR_DEVICE, FOR_DATA = {NAMES[1], NAMES[3]}, {NAMES[2]}
LONG_NS, LEAST = 3, 2
"""What the limits are set to, which are far longer than random records."""

moments = st.integers(0, 24)
lengths = st.integers(0, 5)


class Reason(NamedTuple):
    """The cause of a nanosecond, and the host call then."""

    cause: IdleCause
    call: str = ""


@st.composite
def records(draw: st.DrawFn) -> Records:
    """Tasks and ops of steps that may run at once, and calls of three threads that led to them."""
    starts = draw(st.lists(st.tuples(moments, lengths), max_size=10))
    calls = [
        Call(
            start_ns,
            start_ns + length_ns,
            draw(st.sampled_from(NAMES)),
            draw(st.sampled_from(("CANN", "Python"))),
            draw(st.integers(1, 3)),
            connection,
        )
        for connection, (start_ns, length_ns) in enumerate(starts)
    ]
    connections = st.integers(-1, max(len(calls) - 1, 0))
    iterations = st.sampled_from((NO_ID, 1, 2))
    launches = st.one_of(st.just(int(NO_TIME)), moments)
    tasks = [
        Task(
            start_ns,
            start_ns + length_ns,
            draw(connections),
            draw(launches),
            draw(st.sampled_from(("computes", "computes", "copies", "waits"))),
            draw(iterations),
        )
        for start_ns, length_ns in draw(st.lists(st.tuples(moments, lengths), max_size=8))
    ]
    ops = [
        Op(start_ns, start_ns + length_ns, draw(connections), draw(launches), draw(iterations))
        for start_ns, length_ns in draw(st.lists(st.tuples(moments, lengths), max_size=3))
    ]
    arrows = []
    if calls:
        rows = st.integers(0, len(calls) - 1)
        pairs = draw(st.lists(st.tuples(rows, rows), max_size=4, unique_by=lambda pair: pair[1]))
        arrows = [Arrow("async_task_queue", (HOST, put), (HOST, taken)) for put, taken in pairs]
        if tasks:
            arrows += [
                Arrow("async_npu", (HOST, draw(rows)), (FlowEnd.TASK, at))
                for at in range(len(tasks))
                if draw(st.booleans())
            ]
    steps = [
        Step(0, draw(moments), 1, fp_start_ns=draw(launches)),
        Step(1, draw(moments), 2, fp_start_ns=draw(launches)),
    ]
    made = made_records(calls=calls, tasks=tasks, ops=ops, arrows=arrows, steps=steps)
    fetches = draw(st.lists(st.tuples(moments, lengths), max_size=2))
    return replace(
        made,
        tasks=replace(made.tasks, graph=np.full(len(tasks), 1)),
        ops=replace(made.ops, graph=np.full(len(ops), 1)),
        parts=table_of(
            StepParts,
            [
                {"start_ns": start, "end_ns": start + length, "number": at}
                for at, (start, length) in enumerate(fetches)
            ],
            graph=1,
            iteration=1,
            kind=StepPart.GET_NEXT,
        ),
    )


@dataclass(frozen=True)
class _Item:
    """What the device ran, as the reference sees it."""

    start_ns: int
    end_ns: int
    launch: int
    asked: int
    asked_ns: int | None


@dataclass(frozen=True)
class Measured:
    """What is known of the whole of a rank."""

    part: Cut
    overlap: Overlap
    idle: RankIdle


class _Gap(NamedTuple):
    """A gap: when the device idles in it, all of it, what ends it, and whether it is no edge."""

    idle: set[int]
    whole: range
    item: _Item | None
    inner: bool


class Reference:
    """The rules, one nanosecond at a time."""

    def __init__(self, made: Records) -> None:
        self.records, self.host = made, made.host
        self.calls = [
            (int(row), int(start), int(end), int(thread), made.strings[name])
            for row, (start, end, thread, name) in enumerate(
                zip(
                    made.host.start_ns.tolist(),
                    made.host.end_ns.tolist(),
                    made.host.thread.tolist(),
                    made.host.name.tolist(),
                    strict=True,
                )
            )
        ]

    def innermost(self, thread: int, at_ns: int, among: set[str] | None = None) -> str:
        """The call of a thread that began last, the shorter one of two, then the later row."""
        found = [
            (start, -end, row, name)
            for row, start, end, of, name in self.calls
            if of == thread and start <= at_ns < end and (among is None or name in among)
        ]
        return max(found)[3] if found else ""

    def item(self, table: str, row: int) -> _Item:
        """A row of the tasks or ops, and which calls led to it."""
        rows = getattr(self.records, table)
        host, strings = self.host, self.records.strings
        kind = FlowEnd.TASK if table == "tasks" else FlowEnd.OP
        connection, told_ns = int(rows.connection[row]), int(rows.launch_ns[row])
        callers = [
            call
            for call in range(len(host))
            if connection != NO_ID
            and host.connection[call] == connection
            and strings[host.layer[call]] == "CANN"
        ]
        arrows = list(zip(*(getattr(self.records.flows, name).tolist() for name in (
            "category", "source_kind", "source_row", "target_kind", "target_row"
        )), strict=True))  # fmt: skip
        leading = [
            source for _, _, source, target_kind, target in arrows
            if target_kind == kind and target == row
        ]  # fmt: skip
        launching = [call for call in leading if strings[host.layer[call]] == "CANN"]
        others = [call for call in leading if strings[host.layer[call]] != "CANN"]

        def latest(some: Sequence[int]) -> int:
            return max(some, key=lambda call: host.start_ns[call]) if some else NO_ID

        launch = latest(launching) if launching else latest(callers)
        asked, asked_ns = latest(others), None if told_ns == NO_TIME else told_ns
        if launch == NO_ID:
            if asked_ns is None and asked != NO_ID:
                asked_ns = int(host.start_ns[asked])
        else:
            asked = launch
            taken = [
                (int(host.start_ns[target]), at, source, target)
                for at, (category, _, source, target_kind, target) in enumerate(arrows)
                if strings[category] == "async_task_queue"
                and target_kind == HOST
                and host.thread[target] == host.thread[launch]
                and host.start_ns[target] <= host.start_ns[launch]
            ]
            if taken:
                _, _, source, target = max(taken)
                if host.end_ns[target] >= host.start_ns[launch]:
                    asked = source
            asked_ns = int(host.start_ns[asked])
        return _Item(int(rows.start_ns[row]), int(rows.end_ns[row]), launch, asked, asked_ns)

    def gaps(self, selected: Measured) -> Iterator[_Gap]:
        """The gaps between tasks, and between tasks and the edges of the steps."""
        made, steps = self.records, selected.part.recorded
        items = [
            (self.item("tasks", row), row)
            for row in range(len(made.tasks))
            if made.tasks.compute[row]
        ]
        items += [(self.item("ops", row), 100 + row) for row in range(len(made.ops))]
        items = [(item, at) for item, at in items if item.end_ns > item.start_ns]
        busy = {ns for item, _ in items for ns in range(item.start_ns, item.end_ns)}
        copied = {
            ns
            for row in range(len(made.tasks))
            if made.tasks.copy[row]
            for ns in range(made.tasks.start_ns[row], made.tasks.end_ns[row])
        }
        inner = set(range(min(busy), max(busy) + 1)) if busy else set[int]()
        periods = zip(steps.begin_ns.tolist(), steps.end_ns.tolist(), strict=True)
        free = (inner | {ns for period in periods for ns in range(*period)}) - busy
        for start_ns in sorted(ns for ns in free if ns - 1 not in free):
            end_ns = min(ns for ns in range(start_ns, start_ns + 1000) if ns not in free)
            gap = range(start_ns, end_ns)
            ending = [
                (item.launch == NO_ID, at, item) for item, at in items if item.start_ns == end_ns
            ]
            item = min(ending, key=lambda one: one[:2])[2] if ending else None
            yield _Gap(set(gap) - copied, gap, item, gap.start in inner)

    def least_ns(self, selected: Measured) -> int:
        """The least gap of what was launched long before, as a quantile of a few is the least."""
        telling = [
            len(gap)
            for idle, gap, item, inner in self.gaps(selected)
            if idle == set(gap)
            and inner
            and item is not None
            and item.launch != NO_ID
            and self.host.end_ns[item.launch] <= gap.start - LONG_NS
        ]
        return min(telling) if len(telling) >= LEAST else 0

    def reason(self, at_ns: int, gap: range, item: _Item | None, least_ns: int) -> Reason:
        """Why one nanosecond of a gap is idle."""
        if at_ns >= gap.stop - least_ns:
            return Reason(IdleCause.BETWEEN_TASKS)
        parts = self.records.parts
        if ((parts.start_ns <= at_ns) & (at_ns < parts.end_ns)).any():
            return Reason(IdleCause.WAITING_FOR_DATA)
        found = self._host_reason(at_ns, gap, item)
        vague = (IdleCause.LAUNCHED_BEFORE, IdleCause.OUTSIDE_CALLS, IdleCause.NOT_RECORDED)
        if found.cause in vague and self._prepares(at_ns):
            return Reason(IdleCause.WAITING_FOR_DATA)
        return found

    def _prepares(self, at_ns: int) -> bool:
        """Whether it is between the latest end of a step before an FP start, and that."""
        steps = self.records.steps
        for forward in steps.fp_start_ns.tolist():
            ends = [end for end in steps.end_ns.tolist() if end < forward]
            if forward != NO_TIME and ends and max(ends) <= at_ns < forward:
                return True
        return False

    def _host_reason(self, at_ns: int, gap: range, item: _Item | None) -> Reason:
        host = self.host
        if item is None:
            some = [self.item("ops", row) for row in range(len(self.records.ops))]
            computing = np.flatnonzero(self.records.tasks.compute).tolist()
            some += [self.item("tasks", row) for row in computing]
            asked = any(one.asked_ns is not None for one in some)
            return Reason(IdleCause.HOST_NOT_ASKED if asked else IdleCause.NOT_RECORDED)
        if item.asked_ns is not None and at_ns < item.asked_ns:
            if item.asked == NO_ID:
                return Reason(IdleCause.HOST_NOT_ASKED)
            thread = int(host.thread[item.asked])
            if name := self.innermost(thread, at_ns, FOR_DATA):
                return Reason(IdleCause.WAITING_FOR_DATA, name)
            if name := self.innermost(thread, at_ns, FOR_DEVICE):
                return Reason(IdleCause.HOST_WAITED_FOR_DEVICE, name)
            if name := self.innermost(thread, at_ns):
                return Reason(IdleCause.HOST_NOT_ASKED, name)
            threads = set(host.thread.tolist())
            loads = any(self.innermost(thread, at_ns, FOR_DATA) for thread in threads)
            return Reason(IdleCause.WAITING_FOR_DATA if loads else IdleCause.OUTSIDE_CALLS)
        if item.launch == NO_ID:
            return Reason(IdleCause.NOT_RECORDED)
        if at_ns < host.start_ns[item.launch]:
            thread = int(host.thread[item.launch])
            return Reason(IdleCause.QUEUED, self.innermost(thread, at_ns))
        if at_ns < host.end_ns[item.launch]:
            name = self.records.strings[host.name[item.launch]]
            return Reason(IdleCause.LAUNCH_CALL, name)
        if host.end_ns[item.launch] <= gap.start:
            return Reason(IdleCause.LAUNCHED_BEFORE)
        return Reason(IdleCause.LAUNCH_LATENCY)


def measured(made: Records) -> Measured:
    """The whole of a rank, with the causes of its idle time."""
    part, overlap = cut(made, Selection()), measure_overlap(made.tasks, made.ops)
    return Measured(part, overlap, measure_idle(part, overlap))


@given(made=records())
def test_each_idle_nanosecond_has_its_cause_and_call(made: Records) -> None:
    """Of the selection and of each step: sums, gaps and calls are those of every nanosecond."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(idle_causes, "LONG_BEFORE_NS", LONG_NS)
        patch.setattr(idle_causes, "LEAST_GAPS", LEAST)
        selected = measured(made)
    idle, reference = selected.idle, Reference(made)
    least_ns = reference.least_ns(selected)
    assert idle.times.least_ns == least_ns
    wanted: dict[tuple[int, IdleCause], int] = defaultdict(int)
    calls: dict[tuple[int, IdleCause, str], int] = defaultdict(int)
    in_gaps: dict[tuple[int, IdleCause], set[range]] = defaultdict(set)
    by_ns: dict[int, IdleCause] = {}
    steps = selected.part.recorded
    periods = {
        step: range(*period)
        for step, period in enumerate(
            zip(steps.begin_ns.tolist(), steps.end_ns.tolist(), strict=True)
        )
    }
    for idle_ns, gap, item, inner in reference.gaps(selected):
        for at_ns in idle_ns:
            reason = reference.reason(at_ns, gap, item, least_ns)
            owners = [step for step, period in periods.items() if at_ns in period]
            for step in owners + [NO_STEP] * inner:
                wanted[step, reason.cause] += 1
                in_gaps[step, reason.cause].add(gap)
                if reason.call:
                    calls[step, reason.cause, reason.call] += 1
            if inner:
                by_ns[at_ns] = reason.cause
    causes = idle.times.causes
    found = {
        (step, CAUSES[cause]): (gaps, total_ns)
        for step, cause, gaps, total_ns in zip(
            causes.step.tolist(),
            causes.cause.tolist(),
            causes.gaps.tolist(),
            causes.total_ns.tolist(),
            strict=True,
        )
    }
    assert found == {key: (len(in_gaps[key]), wanted[key]) for key in wanted}
    longest = idle.times.calls
    assert calls == {
        (step, CAUSES[cause], idle.times.names[call]): total_ns
        for step, cause, call, total_ns in zip(
            longest.step.tolist(),
            longest.cause.tolist(),
            longest.call.tolist(),
            longest.total_ns.tolist(),
            strict=True,
        )
    }
    drawn = {}
    for start_ns, end_ns, cause in zip(
        idle.parts.start_ns.tolist(),
        idle.parts.end_ns.tolist(),
        idle.parts.cause.tolist(),
        strict=True,
    ):
        for at_ns in range(start_ns, end_ns):
            assert at_ns not in drawn
            drawn[at_ns] = CAUSES[cause]
    assert drawn == by_ns


@given(made=records())
def test_causes_add_up_to_idle_time(made: Records) -> None:
    """Of the selection and of each step they are what the overlap calls idle, to the nanosecond."""
    selected = measured(made)
    causes, steps = selected.idle.times.causes, selected.part.recorded
    sums = np.zeros(len(steps) + 1, np.int64)
    np.add.at(sums, causes.step, causes.total_ns)
    assert sums[-1] == selected.overlap.idle.total_ns
    overlap, periods = selected.overlap, (steps.begin_ns, steps.end_ns)
    copies = union(made.tasks.start_ns[made.tasks.copy], made.tasks.end_ns[made.tasks.copy])
    busy = union_of_sets(overlap.computing, overlap.communication, copies)
    busy_ns = covered_until(busy, periods[1]) - covered_until(busy, periods[0])
    assert (sums[:-1] + busy_ns == periods[1] - periods[0]).all()
    totals = totals_by_period(overlap, *periods)
    assert (totals.idle_ns <= sums[:-1]).all()
