"""Choice of the rule for communication time, by the writer's own times of steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from timeline.analysis.overlap import communication_spans, measure_overlap, overlap_by_launch
from timeline.analysis.step_membership import assign_steps
from timeline.records.clock import CommunicationRule
from timeline.records.tables import Records


def with_communication_rule(records: Records) -> Records:
    """Return the records with the rule that is closest to the writer's times of steps.

    Ops are used if both rules are equally close.
    """
    rule = records.communication_rule
    if not rule.vendor_ns:
        return records
    candidates = [CommunicationRule(of_tasks, rule.evidence) for of_tasks in (False, True)]
    choices = [replace(records, communication_rule=candidate) for candidate in candidates]
    return min(choices, key=lambda counted: _distance_ns(counted, rule.vendor_ns))


def _distance_ns(records: Records, wanted_ns: Mapping[int, int]) -> int:
    """Return the distance of communication from the writer's times of steps.

    Without common steps, the sums are compared.
    """
    member = assign_steps(records)
    spans, span_step = communication_spans(records, member)
    steps = records.steps
    totals = overlap_by_launch(records.tasks, member.tasks, spans, span_step, len(steps))
    sums_ns: dict[int, int] = {}
    for number, parts in zip(steps.iteration.tolist(), totals, strict=True):
        sums_ns[number] = sums_ns.get(number, 0) + parts["communication_ns"]
    known = wanted_ns.keys() & sums_ns.keys()
    if not known:
        whole_ns = measure_overlap(records.tasks, spans).communication.total_ns
        return abs(whole_ns - sum(wanted_ns.values()))
    return sum(abs(sums_ns[step] - wanted_ns[step]) for step in known)
