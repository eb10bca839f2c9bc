"""What counts as communication, by what the writer of a capture says of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from timeline.analysis.overlap import (
    OverlapTotals,
    communication_spans,
    measure_overlap,
    totals_by_step,
)
from timeline.analysis.step_membership import assign_steps
from timeline.records.counting_rules import CommunicationRule
from timeline.records.tables import Records

__all__ = ["with_communication_rule"]


def with_communication_rule(records: Records) -> Records:
    """The records with the rule that comes nearest to what their writer says of each step.

    Ops where both rules do.
    """
    rule = records.communication_rule
    if not rule.vendor_ns:
        return records
    candidates = [CommunicationRule(of_tasks, rule.evidence) for of_tasks in (False, True)]
    made = [replace(records, communication_rule=candidate) for candidate in candidates]
    return min(made, key=lambda counted: _distance_ns(counted, rule.vendor_ns))


def _distance_ns(records: Records, wanted_ns: Mapping[int, int]) -> int:
    """How far communication is from what is wanted of each step; of all, where no step is known."""
    member = assign_steps(records)
    spans, its_step = communication_spans(records, member)
    steps = records.steps
    totals = totals_by_step(records.tasks, spans, member.tasks, its_step, len(steps))
    found_ns = _by_number(steps.iteration.tolist(), totals)
    known = wanted_ns.keys() & found_ns.keys()
    if not known:
        whole_ns = measure_overlap(records.tasks, spans).communication.total_ns
        return abs(whole_ns - sum(wanted_ns.values()))
    return sum(abs(found_ns[step] - wanted_ns[step]) for step in known)


def _by_number(numbers: list[int], totals: OverlapTotals) -> dict[int, int]:
    found: dict[int, int] = {}
    for number, time_ns in zip(numbers, totals.communication_ns.tolist(), strict=True):
        found[number] = found.get(number, 0) + time_ns
    return found
