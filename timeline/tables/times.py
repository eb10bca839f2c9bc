"""Tables of the time of ranks and steps, checks of it, and unused files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from timeline.analysis.checks import PARTS as CHECKED_PARTS
from timeline.analysis.checks import RankChecks, known_reasons
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.steps import data_aug_bounds
from timeline.analysis.waits.exposed_waiting import late_by_step
from timeline.columns.columns import Bool, Int64
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.profiler_tables import Measure
from timeline.records.tables import Steps
from timeline.tables.table import Columns, Json, Method, Spec, Table, given, no_numbers

PARTS = ("computing_ns", "communication_ns", "not_overlapped_ns", "free_ns", "copies_ns", "idle_ns")
OVERLAP = Spec(
    "overlap",
    "rank, how its device time is spent; parts that are not recorded are masked",
    """
    rank
    steps: their number
    step_ns: the mean period of its ordinary steps
    span_ns: computing, not overlapped and free together
    computing_ns, communication_ns
    not_overlapped_ns: communication while nothing computes
    free_ns: the rest of the span
    copies_ns: part of free
    idle_ns: part of free
    outside_ns: part of free before the first and after the last computing or communication
    before_ns: part of outside before the first of them
    """,
    lambda run: map(_overlap, run.facts, run.ordinary),
    Json(
        "overlap",
        lambda run, table: [*_whole_and_steps(table, run["steps"])],
        "`computing_ns`, `communication_ns`, `exposed_communication_ns` (also as "
        "`not_overlapped_ns`, its earlier name), `free_ns`, and its parts `copies_ns`, "
        "`outside_ns`, `idle_ns`, per `rank`, and per `graph` and `step`; for a step also its "
        "[period](definitions.md) `period_ns`, of which `before_ns` (before its first kernel) and "
        "`between_ns` (before it begins, and after its last kernel) are the remaining parts, and "
        "`late_ns`, by how much the rank [came later than its "
        "peers](definitions.md#who-waits-for-whom); these four are `null` for a whole rank; `step` "
        "is `null` for the whole selection; parts that are not recorded are `null`: for a rank "
        "with tables alone, and `free_ns` and `idle_ns` if MindSpore recorded marks of steps but "
        "no task of the device",
    ),
    Method("overlap"),
)
_OF_STEPS = ("period_ns", "before_ns", "between_ns", "late_ns")


def _whole_and_steps(overlap: Table, steps: Table) -> Iterator[dict[str, Any]]:
    """Yield the device time of each rank: of the whole selection, then of each step with work."""
    names = ("rank", "graph", "step", *PARTS, "outside_ns", *_OF_STEPS)
    worked = steps.take(~np.ma.getmaskarray(steps["span_ns"])) if len(steps) else steps
    of_ranks = {rank: [*rows] for rank, rows in groupby(worked.to_dicts(), itemgetter("rank"))}
    for whole in overlap.to_dicts():
        rows = [{**whole, "before_ns": None}]
        rows += [{**row, "outside_ns": 0} for row in of_ranks.get(whole["rank"], ())]
        for row in rows:
            times = {name: row.get(name) for name in names}
            yield {**times, "exposed_communication_ns": row["not_overlapped_ns"]}


def _overlap(facts: RankFacts, ordinary: Bool) -> Columns:
    whole = facts.overlap_ns
    periods_ns = facts.step_totals.period_ns[ordinary & (facts.step_totals.span_ns > 0)]
    row = {
        "rank": facts.rank,
        "steps": len(facts.steps),
        "step_ns": round(int(periods_ns.sum()) / len(periods_ns)) if len(periods_ns) else None,
        "span_ns": whole["computing_ns"] + whole["not_overlapped_ns"] + whole["free_ns"],
        **whole,
        **asdict(facts.free_parts),
        **dict.fromkeys(facts.not_recorded),
    }
    return OVERLAP.of_rows([[row[name] for name in OVERLAP.kinds]]).columns


def extent_ns(overlap: Table) -> Int64:
    """Return the time from the first to the last device work, (n,); shares are of this time.

    overlap: rows with the columns of OVERLAP.
    """
    return np.asarray(overlap["span_ns"] - np.ma.filled(overlap["outside_ns"], 0))


STEPS = Spec(
    "steps",
    "rank, graph and step",
    """
    rank, graph, step
    start_ns: as marked, on the clock that all ranks share
    end_ns: as marked
    device_start_ns: of its device work
    span_ns: from the first to the last computing or communication in its period
    computing_ns, communication_ns
    not_overlapped_ns: communication while nothing computes
    free_ns: the rest of the span
    copies_ns: part of free
    idle_ns: part of free
    period_ns: from the end of the step before to its own
    before_ns: part of the period from when it begins on the host to the span
    between_ns: part of the period before it begins on the host and after the span
    preparing_ns: from its start on the host to its first device work
    receive_ns: in operations that receive from another stage
    late_ns: how much later than its peers the rank came to its collectives
    fp_bp_ns = FP/BP: forward and backward, by the step trace
    tail_ns: after them
    interval_ns: the wait for data before them
    tasks: the number of its device tasks, whether they compute, communicate or copy
    ordinary: 1 if it has device work, is no warm-up and is not cut by the edge of the recording
    """,
    lambda run: map(_steps, run.facts, run.ordinary, late_by_step(run.facts, run.exposed_parts[1])),
    method=Method("steps"),
)


def _steps(facts: RankFacts, ordinary: Bool, late_ns: Int64) -> Columns:
    steps, totals, waits = facts.steps, facts.step_totals, facts.step_waits
    unknown = ~totals.known
    measured = {
        name: np.ma.masked_array(getattr(totals, name), unknown) for name in ("span_ns", *PARTS)
    }
    missing = {*facts.not_recorded, *(("copies_ns",) if facts.free_parts.copies_ns is None else ())}
    return {
        "rank": np.full(len(steps), facts.rank, np.int64),
        "graph": given(steps.graph, NO_GRAPH),
        "step": steps.iteration,
        "start_ns": steps.start_ns,
        "end_ns": steps.end_ns,
        "device_start_ns": given(facts.device_start_ns, NO_TIME),
        **measured,
        **dict.fromkeys(missing, no_numbers(len(steps))),
        "period_ns": totals.period_ns,
        "before_ns": np.ma.masked_array(waits.before_ns, unknown),
        "between_ns": np.ma.masked_array(
            totals.period_ns - waits.before_ns - totals.span_ns, unknown
        ),
        "preparing_ns": given(waits.preparing_ns, NO_TIME),
        "receive_ns": np.ma.masked_array(waits.receive_ns, unknown),
        "late_ns": given(late_ns, NO_TIME),
        **_phases(steps),
        "tasks": facts.recorded.tasks,
        "ordinary": ordinary.astype(np.int64),
    }


def _phases(steps: Steps) -> Columns:
    """Return the phases of steps, as on MindInsight's Step Trace page."""
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


_NUMBERED = dict.fromkeys(CHECKED_PARTS, "steps") | {
    Measure.OPERATOR: "types of operators",
    Measure.COLLECTIVE: "communication ops",
}
"""Noun for equal numbers of a measure that share a row."""


CHECKS = Spec(
    "checks",
    "number of the profiler that was compared with the computed one; times are ns",
    """
    rank
    text file
    text what: name of the number
    numbers: how many equal numbers share the row
    ours: the computed number, masked if there is none
    theirs: the profiler's number
    tolerance: maximum difference of equal numbers
    text equal: true or false
    text reason: why they differ, if known
    """,
    lambda run: map(_checks, run.facts),
    Json("checks"),
)


def _checks(facts: RankFacts) -> Columns:
    rows, strings = facts.checks.rows, facts.checks.strings
    return CHECKS.part(
        facts.rank,
        rows,
        strings,
        what=np.array([*_compared(facts.checks)], object),
        ours=given(rows.ours_ns, NO_TIME),
        theirs=rows.theirs_ns,
        tolerance=rows.tolerance_ns,
        equal=rows.equal.astype(object),
        reason=np.array(known_reasons(facts.checks), object),
    )


def _compared(checks: RankChecks) -> Iterator[str]:
    """Return the name of each compared number."""
    rows = checks.rows
    columns = (rows.measure, rows.step, rows.name, rows.numbers)
    for measure, step, name, numbers in zip(*(column.tolist() for column in columns), strict=True):
        part = CHECKED_PARTS.get(Measure(measure), "total_ns")
        if numbers > 1:
            yield f"{part} of {numbers} {_NUMBERED[Measure(measure)]}"
            continue
        ends = [f"of {checks.strings[name]}"] if name else []
        ends += [f"of step {step}"] if step != NO_ID else []
        yield " ".join([part, *ends])


UNUSED: Spec = Spec(
    "unused",
    "file or table in a rank's capture that is not used",
    """
    rank
    text file
    text what: its contents
    """,
    lambda run: (
        UNUSED.of_rows([(rank.rank, one.file, one.what) for one in rank.profile.unused]).columns
        for rank in run.facts
    ),
    Json("unused"),
)
