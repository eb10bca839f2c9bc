"""Steps and their reduces from the training trace of MindSpore 0.x and 1.x."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Int64
from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_GRAPH, NO_TIME
from timeline.records.tables import CommunicationOps, OmissionCode, StepPart, StepParts, Steps
from timeline.sources.common.losses import counted_losses
from timeline.sources.mindspore.step_ticks import GROUP, StepTicks

__all__ = ["TRAINING_EVENT", "read_training_trace"]

TRAINING_EVENT = np.dtype([("tag", "<u8"), ("task", "<u2"), ("stream", "<u2"), ("tick", "<u8")])
FP_START, BP_END, STEP_END = 1, 2, 255
"""Tags; 0 and those above STEP_END mark the job, all others the start or end of a reduce."""
TICK_NS = 10


def read_training_trace(events: npt.NDArray[Any], strings: StringPool, rank: int) -> StepTicks:
    """Steps in order of their ends; each starts where the one before ends, the first at its FP.

    A first step without FP has no start, so it is left out, and so is what follows the last end.
    """
    tag, time_ns = events["tag"], events["tick"].astype(np.int64) * TICK_NS
    ended = tag == STEP_END
    step = np.cumsum(ended) - ended
    end_ns = time_ns[ended]
    count = len(end_ns)
    inside = step < count
    fp_ns, bp_ns = np.full(count, NO_TIME), np.full(count, NO_TIME)
    for mark, found_ns in ((FP_START, fp_ns), (BP_END, bp_ns)):
        here = inside & (tag == mark)
        found_ns[step[here]] = time_ns[here]
    start_ns = np.concatenate([fp_ns[:1], end_ns[:-1]])
    steps = Steps.of(
        count,
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "graph": np.full(count, NO_GRAPH),
            "iteration": np.arange(1, count + 1),
            "fp_start_ns": fp_ns,
            "bp_end_ns": bp_ns,
        },
    )
    good = start_ns != NO_TIME
    reduce = inside & (tag > BP_END) & (tag < STEP_END)
    parts, ops, odd = _reduces(
        step[reduce] + 1, events["stream"][reduce].astype(np.int64), time_ns[reduce], strings
    )
    lost = {
        "steps without a start": int(np.count_nonzero(~good)),
        "marks of a step that had not ended when the capture did": int((~inside).sum()),
        "starts of reduces without an end": odd,
    }
    return StepTicks(
        steps.take(good), parts, ops, counted_losses(lost, rank, OmissionCode.UNPAIRED)
    )


def _reduces(
    step: Int64, stream: Int64, time_ns: Int64, strings: StringPool
) -> tuple[StepParts, CommunicationOps, int]:
    """Marks of a step and stream in pairs of start and end; also how many have no partner."""
    if not len(step):
        return StepParts.empty(), CommunicationOps.empty(), 0
    order = np.lexsort((np.arange(len(step)), stream, step))
    step, stream, time_ns = step[order], stream[order], time_ns[order]
    new = np.concatenate([[True], (step[1:] != step[:-1]) | (stream[1:] != stream[:-1])])
    first = np.flatnonzero(new)
    sizes = np.diff(np.append(first, len(step)))
    number = np.arange(len(step)) - np.repeat(first, sizes)
    starts = np.flatnonzero((number % 2 == 0) & (number + 1 < np.repeat(sizes, sizes)))
    count = len(starts)
    shared = {
        "start_ns": time_ns[starts],
        "end_ns": time_ns[starts + 1],
        "graph": np.full(count, NO_GRAPH),
        "iteration": step[starts],
    }
    named = zip(stream[starts].tolist(), (number[starts] // 2).tolist(), strict=True)
    names = strings.codes(f"stream_{stream_id}_{place}" for stream_id, place in named)
    in_step = np.concatenate([[True], step[starts][1:] != step[starts][:-1]])
    begin = np.flatnonzero(in_step)
    place = np.arange(count) - np.repeat(begin, np.diff(np.append(begin, count)))
    parts = StepParts.of(count, shared | {"number": place, "kind": np.full(count, StepPart.REDUCE)})
    group = np.full(count, strings.code(GROUP))
    ops = CommunicationOps.of(count, shared | {"name": names, "group": group})
    return parts, ops, len(step) - 2 * count
