"""Turns the facts of all ranks into tables: overlap, steps, operators, longest collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.steps import data_aug_bounds
from timeline.records.columns import Int64
from timeline.records.tables import NO_GRAPH, NO_ID, NO_TIME, Steps
from timeline.table import Table
from timeline.tracks.facts import RankFacts

__all__ = ["PARTS", "Figures"]

PARTS = ("computing_ns", "communication_ns", "not_overlapped_ns", "free_ns")


@dataclass(frozen=True)
class Figures:
    """What was measured, in tables; times of all ranks are on one clock."""

    overlap: Table
    """A row per rank: rank, steps, step_ns (the mean span of a step), span_ns (computing, not
    overlapped and free together), computing_ns, communication_ns, not_overlapped_ns, free_ns."""
    steps: Table
    """A row per rank, graph and step: start_ns and end_ns as marked; span_ns and the parts of its
    device work; fp_bp_ns, tail_ns and interval_ns of the step trace (forward and backward, what
    comes behind, the wait for data before)."""
    operators: Table
    """A row per rank and operator: communication or not, type, core, name (where asked for),
    count, total_ns, shortest_ns and longest_ns."""
    longest_ops: Table
    """The longest communication ops of each rank: rank, name, group, graph, step, start_ns and
    duration_ns."""

    @classmethod
    def of(cls, facts: Sequence[RankFacts]) -> Figures:
        """The figures of some ranks."""
        return cls(
            _joined([_overlap(own) for own in facts]),
            _joined([_steps(own) for own in facts]),
            _joined([_operators(own) for own in facts]),
            _joined([_longest_ops(own) for own in facts]),
        )


def _joined(parts: Sequence[dict[str, npt.NDArray[Any]]]) -> Table:
    names = list(parts[0]) if parts else []
    return Table({name: _column([part[name] for part in parts]) for name in names})


def _column(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    values = np.concatenate([np.ma.getdata(part) for part in parts])
    masks = [np.ma.getmaskarray(part) for part in parts if np.ma.isMaskedArray(part)]
    return np.ma.masked_array(values, np.concatenate(masks)) if masks else values


def _given(values: Int64, absent: int | np.integer[Any]) -> npt.NDArray[Any]:
    return np.ma.masked_equal(values, absent)


def _overlap(facts: RankFacts) -> dict[str, npt.NDArray[Any]]:
    whole = facts.overlap_ns
    span_ns = whole["computing_ns"] + whole["not_overlapped_ns"] + whole["free_ns"]
    spans_ns = facts.step_totals.span_ns[facts.step_totals.known]
    mean_ns = round(int(spans_ns.sum()) / len(spans_ns)) if len(spans_ns) else NO_ID
    row = {
        "rank": facts.rank,
        "steps": len(facts.steps),
        "step_ns": mean_ns,
        "span_ns": span_ns,
        **{part: whole[part] for part in PARTS},
    }
    columns = {name: np.array([value], np.int64) for name, value in row.items()}
    return {**columns, "step_ns": _given(columns["step_ns"], NO_ID)}


def _steps(facts: RankFacts) -> dict[str, npt.NDArray[Any]]:
    steps, totals = facts.steps, facts.step_totals
    measured = {
        name: np.ma.masked_array(getattr(totals, name), ~totals.known)
        for name in ("span_ns", *PARTS)
    }
    return {
        "rank": np.full(len(steps), facts.rank, np.int64),
        "graph": _given(steps.graph, NO_GRAPH),
        "step": steps.iteration,
        "start_ns": steps.start_ns,
        "end_ns": steps.end_ns,
        **measured,
        **_phases(steps),
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
