"""Proves what idle time single host calls are charged with, and which gaps are the longest."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from tests.analysis.idle.test_idle_causes import (
    LEAST,
    LONG_NS,
    Reference,
    measured,
    records,
)
from tests.support.made_launches import Call, Op, Step, Task, made_records
from timeline.analysis.idle import idle_causes
from timeline.analysis.idle.charges import MOST_GAPS
from timeline.analysis.idle.idle_sums import CAUSES, IdleCause
from timeline.analysis.steps import NO_STEP
from timeline.records.tables import Records


@given(made=records())
def test_single_calls_add_up_to_their_names(made: Records) -> None:
    """What is charged to calls of a name, by each cause, is what is charged to the name."""
    idle = measured(made).idle
    single: dict[tuple[int, str], int] = defaultdict(int)
    charged = idle.charged
    for row, cause, idle_ns in zip(
        charged.row.tolist(), charged.cause.tolist(), charged.idle_ns.tolist(), strict=True
    ):
        single[cause, made.strings[made.host.name[row]]] += idle_ns
    by_name = idle.times.calls.take(idle.times.calls.step == NO_STEP)
    names = (idle.times.names[call] for call in by_name.call.tolist())
    rows = zip(by_name.cause.tolist(), names, by_name.total_ns.tolist(), strict=True)
    assert single == {(cause, name): total_ns for cause, name, total_ns in rows}


@given(made=records())
def test_the_longest_gaps_are_those_of_every_nanosecond(made: Records) -> None:
    """Their time, cause and call are the most frequent ones of their idle nanoseconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(idle_causes, "LONG_BEFORE_NS", LONG_NS)
        patch.setattr(idle_causes, "LEAST_GAPS", LEAST)
        selected = measured(made)
    reference = Reference(made)
    least_ns = reference.least_ns(selected)
    wanted = {
        gap.start: (gap, [reference.reason(ns, gap, item, least_ns) for ns in idle_ns])
        for idle_ns, gap, item, inner in reference.gaps(selected)
        if inner and idle_ns
    }
    listed, strings = selected.idle.gaps.gaps, selected.idle.gaps.strings
    assert len(listed) == min(len(wanted), MOST_GAPS)
    assert (
        listed.idle_ns.tolist()
        == sorted((len(reasons) for _, reasons in wanted.values()), reverse=True)[: len(listed)]
    )
    for start_ns, end_ns, idle_ns, cause, cause_ns, call in zip(
        *(getattr(listed, name).tolist() for name in (
            "start_ns", "end_ns", "idle_ns", "cause", "cause_ns", "call"
        )), strict=True
    ):  # fmt: skip
        gap, reasons = wanted[start_ns]
        causes = Counter(reason.cause for reason in reasons)
        calls = Counter(one.call for one in reasons if one.cause is CAUSES[cause] and one.call)
        assert (gap.stop, len(reasons)) == (end_ns, idle_ns)
        assert causes[CAUSES[cause]] == cause_ns == max(causes.values())
        assert calls[strings[call]] == max(calls.values(), default=0)


def test_a_gap_names_what_is_around_it() -> None:
    """The tasks before and after a gap, its step, its idle time, and the call the host was in."""
    made = made_records(
        calls=[Call(20, 70, "prepare", "Python"), Call(80, 90, "AscendCL@launch", connection=7)],
        tasks=[Task(0, 10), Task(40, 45, does="copies"), Task(100, 120, connection=7)],
        ops=[Op(125, 130)],
        steps=[Step(0, 110, 4)],
    )
    made = replace(made, tasks=replace(made.tasks, graph=np.ones(3, np.int64)))
    gaps = measured(replace(made, host=replace(made.host, thread=np.ones(2, np.int64)))).idle.gaps
    names = ("start_ns", "end_ns", "idle_ns", "cause", "call", "previous", "next", "step")
    rows = zip(*(getattr(gaps.gaps, name).tolist() for name in names), strict=True)
    assert [
        (*times_ns, CAUSES[cause], *(gaps.strings[code] for code in codes), step)
        for *times_ns, cause, call, previous, following, step in rows
        for codes in [(call, previous, following)]
    ] == [
        (10, 100, 85, IdleCause.HOST_NOT_ASKED, "prepare", "task 0", "task 2", 0),
        (120, 125, 5, IdleCause.NOT_RECORDED, "", "task 2", "op 0", NO_STEP),
    ]
