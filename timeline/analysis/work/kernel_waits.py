"""How long the device took from one kernel to the next, as tables of kernels tell it."""

from __future__ import annotations

import numpy as np

from timeline.analysis.step_membership import Membership
from timeline.columns.columns import Int64
from timeline.frozen import dataclass
from timeline.records.tables import Records

__all__ = ["KernelWaits", "kernel_waits"]


@dataclass(frozen=True)
class KernelWaits:
    """How long nothing of what came before ran until each began, in ns.

    tasks: (tasks,), 0 for those that do not compute. ops: (ops,).
    """

    tasks: Int64
    ops: Int64


def kernel_waits(records: Records, membership: Membership | None = None) -> KernelWaits:
    """From the end of the kernel before to the start of each, 0 where that is later.

    Kernels are tasks that compute and communication ops, in order of start. It is what CANN calls
    Wait Time in kernel_details.csv and op_summary.csv: 0 for the first, and the kernel before is
    the one that began before, even if an earlier one still runs.

    membership: where only some steps are selected. Then the first kernel of a step has no other
    before it, since what ran in between is not known.
    """
    computing = np.flatnonzero(records.tasks.compute)
    start_ns = np.concatenate([records.tasks.start_ns[computing], records.ops.start_ns])
    order = np.argsort(start_ns, kind="stable")
    end_ns = np.concatenate([records.tasks.end_ns[computing], records.ops.end_ns])
    waits_ns = np.zeros(len(order), np.int64)
    gaps_ns = np.maximum(start_ns[order[1:]] - end_ns[order[:-1]], 0)
    if membership is not None:
        step = np.concatenate([membership.tasks[computing], membership.ops])[order]
        gaps_ns = np.where(step[1:] == step[:-1], gaps_ns, 0)
    waits_ns[order[1:]] = gaps_ns
    tasks_ns = np.zeros(len(records.tasks), np.int64)
    tasks_ns[computing] = waits_ns[: len(computing)]
    return KernelWaits(tasks_ns, waits_ns[len(computing) :])
