"""Tables on the time of ranks and steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.checks import PARTS as CHECKED_PARTS
from timeline.analysis.checks import RankChecks, known_reasons
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.steps import data_aug_bounds
from timeline.columns.columns import Bool, Int64
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.profiler_tables import Measure
from timeline.records.tables import Steps
from timeline.tables.table import Table, join_tables

PARTS = ("computing_ns", "communication_ns", "not_overlapped_ns", "free_ns", "copies_ns", "idle_ns")


def overlap_table(facts: Sequence[RankFacts], ordinary: Sequence[Bool]) -> Table:
    """See `Figures.overlap`; ordinary: which steps of each rank are."""
    return join_tables(_overlap(rank, its) for rank, its in zip(facts, ordinary, strict=True))


def _overlap(facts: RankFacts, ordinary: Bool) -> dict[str, npt.NDArray[Any]]:
    whole = facts.overlap_ns
    span_ns = whole["computing_ns"] + whole["not_overlapped_ns"] + whole["free_ns"]
    periods_ns = facts.step_totals.period_ns[ordinary & (facts.step_totals.span_ns > 0)]
    mean_ns = round(int(periods_ns.sum()) / len(periods_ns)) if len(periods_ns) else NO_ID
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
    return {
        **columns,
        **{name: np.ma.masked_equal(columns[name], NO_ID) for name in maybe},
        **_masked(facts, 1),
    }


def _masked(facts: RankFacts, count: int) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of the parts of device time that nothing records of a rank."""
    nothing = np.ma.masked_equal(np.full(count, NO_ID), NO_ID)
    return dict.fromkeys(facts.not_recorded, nothing)


def extent_ns(overlap: Table) -> Int64:
    """Return the time from the first to the last device work, which shares refer to.

    overlap: rows with the columns of `Figures.overlap`.
    """
    return np.asarray(overlap["span_ns"] - np.ma.filled(overlap["outside_ns"], 0))


def step_table(
    facts: Sequence[RankFacts], late: Sequence[Int64], ordinary: Sequence[Bool]
) -> Table:
    """See `Figures.steps`; ordinary: which steps of each rank are; late: see `late_by_step`."""
    return join_tables(map(_steps, facts, ordinary, late))


def _steps(facts: RankFacts, ordinary: Bool, late_ns: Int64) -> dict[str, npt.NDArray[Any]]:
    steps, totals = facts.steps, facts.step_totals
    measured = {
        name: np.ma.masked_array(getattr(totals, name), ~totals.known)
        for name in ("span_ns", *PARTS)
    }
    period_ns, before_ns = facts.step_totals.period_ns, facts.step_waits.before_ns
    if facts.free_parts.copies_ns is None:
        measured["copies_ns"] = np.ma.masked_equal(np.full(len(steps), NO_ID), NO_ID)
    return {
        "rank": np.full(len(steps), facts.rank, np.int64),
        "graph": np.ma.masked_equal(steps.graph, NO_GRAPH),
        "step": steps.iteration,
        "start_ns": steps.start_ns,
        "end_ns": steps.end_ns,
        "device_start_ns": np.ma.masked_equal(facts.device_start_ns, NO_TIME),
        **measured,
        **_masked(facts, len(steps)),
        "period_ns": period_ns,
        "before_ns": np.ma.masked_array(before_ns, ~totals.known),
        "between_ns": np.ma.masked_array(period_ns - before_ns - totals.span_ns, ~totals.known),
        "preparing_ns": np.ma.masked_equal(facts.step_waits.preparing_ns, NO_TIME),
        "receive_ns": np.ma.masked_array(facts.step_waits.receive_ns, ~totals.known),
        "late_ns": np.ma.masked_equal(late_ns, NO_TIME),
        **_phases(steps),
        "tasks": facts.recorded.tasks,
        "ordinary": ordinary.astype(np.int64),
    }


def _phases(steps: Steps) -> dict[str, npt.NDArray[Any]]:
    """Return the parts of the step trace, as MindInsight's Step Trace page shows them."""
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
"""What equal numbers that are summed up are of."""


def check_table(facts: Sequence[RankFacts]) -> Table:
    """See `Figures.checks`."""
    return join_tables(map(_checks, facts))


def _checks(facts: RankFacts) -> dict[str, npt.NDArray[Any]]:
    rows, strings = facts.checks.rows, facts.checks.strings
    files = [strings[code] for code in rows.file.tolist()]
    return {
        "rank": np.full(len(rows), facts.rank, np.int64),
        "file": _texts(files),
        "what": _texts([*_compared(facts.checks)]),
        "numbers": rows.numbers,
        "ours": np.ma.masked_equal(rows.ours_ns, NO_TIME),
        "theirs": rows.theirs_ns,
        "tolerance": rows.tolerance_ns,
        "equal": rows.equal.astype(object),
        "reason": _texts(known_reasons(facts.checks)),
    }


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


def unused_table(facts: Sequence[RankFacts]) -> Table:
    """See `Figures.unused`."""
    return join_tables(map(_unused, facts))


def _unused(facts: RankFacts) -> dict[str, npt.NDArray[Any]]:
    unused = facts.profile.unused
    return {
        "rank": np.full(len(unused), facts.rank, np.int64),
        "file": _texts([file.file for file in unused]),
        "what": _texts([file.what for file in unused]),
    }


def _texts(values: Sequence[str | None]) -> npt.NDArray[Any]:
    return np.array(values, object)
