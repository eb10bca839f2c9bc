"""Device tasks, communication ops and steps from rows of kernel tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from timeline.columns.columns import Bool, Codes
from timeline.columns.distinct import distinct_pairs
from timeline.columns.group_by import group_by
from timeline.columns.intervals import only_open_at
from timeline.columns.strings import NO_NAME, StringPool
from timeline.patterns import compile_late
from timeline.records.not_given import NO_GRAPH, NO_ID
from timeline.records.tables import CommunicationOps, Steps, Tasks
from timeline.records.task_kinds import COPY_TYPES, have_type
from timeline.sources.common.kernel_table import (
    MATCH_TOLERANCE_NS,
    KernelTable,
    find_following_rows,
    match_rows,
)

__all__ = [
    "build_ops",
    "build_steps",
    "build_tasks",
    "find_repeats",
    "with_step_graphs",
]

_OP_NAME = compile_late(r".*hcom_\w+?__(\d+)_\d+_\d+")
"""An op's name holds the last digits of its group's id, its index there, and the iteration."""
_LAUNCHED_NAME = compile_late(r"(?:.*::.*/|.*/(?=hcom_))([^/]+)")
"""MindSpore puts what launched an op before its name, on whichever rank it finds the launch."""


def build_tasks(rows: KernelTable, compute: Bool, strings: StringPool) -> Tasks:
    """The device tasks among rows, ordered by start."""
    order = np.argsort(rows.start_ns, kind="stable")
    order = order[~rows.is_op[order]]
    tasks = rows.take(order)
    return Tasks.of(
        len(tasks),
        {
            "start_ns": tasks.start_ns,
            "end_ns": tasks.end_ns,
            "device": tasks.device,
            "stream": tasks.stream,
            "task": tasks.task,
            "context": tasks.context,
            "graph": tasks.graph,
            "iteration": tasks.iteration,
            "name": np.where(tasks.name == NO_NAME, tasks.core, tasks.name),
            "task_type": tasks.core,
            "op_type": tasks.op_type,
            "input_shapes": tasks.input_shapes,
            "output_shapes": tasks.output_shapes,
            "input_types": tasks.input_types,
            "blocks": tasks.blocks,
            "compute": compute[order],
            "copy": have_type(COPY_TYPES, tasks.core, strings),
        },
    )


def find_repeats(rows: KernelTable, kernels: KernelTable) -> tuple[Bool, Bool]:
    """Whether each row is one of the kernels, and whether it is the whole of one.

    Both name stream and task, but the kernel may go by another name; tables of level 0 name
    neither, and then both edges must agree. The whole of a kernel that runs as a sub-task of
    FFTS+ starts before it: its row covers the kernel.
    """
    kernels = kernels.take(~kernels.is_op)
    placed = kernels.take(kernels.stream != NO_ID)
    bare = kernels.take(kernels.stream == NO_ID)
    _, key = distinct_pairs(
        np.concatenate([rows.stream, placed.stream]), np.concatenate([rows.task, placed.task])
    )
    of_rows, of_kernels = key[: len(rows)], key[len(rows) :]
    found: Bool = match_rows(of_rows, rows.start_ns, of_kernels, placed.start_ns) >= 0
    whole = np.zeros(len(rows), np.bool_)
    if len(placed):
        at = find_following_rows(of_rows, rows.start_ns, of_kernels, placed.start_ns)
        whole = (at >= 0) & (placed.end_ns[at] <= rows.end_ns + MATCH_TOLERANCE_NS) & ~found
    if len(bare):
        at = match_rows(
            np.zeros(len(rows), np.int64),
            rows.start_ns,
            np.zeros(len(bare), np.int64),
            bare.start_ns,
        )
        found |= (at >= 0) & (np.abs(bare.end_ns[at] - rows.end_ns) <= 2 * MATCH_TOLERANCE_NS)
    return found, whole


def build_ops(
    rows: KernelTable, strings: StringPool, groups: Mapping[str, str]
) -> CommunicationOps:
    """The communication ops among rows, ordered by start.

    Groups are numbered in order of their first op, as exports and databases do.

    Args:
        groups: the id of the group of each op, by name, as far as it is known.
    """
    ops = rows.take(rows.is_op)
    ops = ops.take(np.argsort(ops.start_ns, kind="stable"))
    ops = replace(ops, name=strings.translate(ops.name, strings, _name_of_op))
    label, called = _groups(ops.name, strings, groups)
    return CommunicationOps.of(
        len(ops),
        {
            "start_ns": ops.start_ns,
            "end_ns": ops.end_ns,
            "group": label,
            "group_name": called,
            "name": ops.name,
            "graph": ops.graph,
            "iteration": ops.iteration,
        },
    )


def _name_of_op(name: str) -> str:
    launched = _LAUNCHED_NAME.fullmatch(name)
    return launched[1] if launched else name


def _groups(names: Codes, strings: StringPool, groups: Mapping[str, str]) -> tuple[Codes, Codes]:
    """The label and, where it is known, the id of the group of each op."""
    ids = sorted(set(groups.values()))
    numbers: dict[str, int] = {}
    labels: dict[int, tuple[int, int]] = {}
    for code in dict.fromkeys(names.tolist()):
        name = strings[code]
        match = _OP_NAME.match(name)
        digits = match[1] if match else ""
        alike = [one for one in ids if digits and one.endswith(digits)]
        known = groups.get(name) or (alike[0] if len(alike) == 1 else "")
        number = numbers.setdefault(known or digits, len(numbers))
        labels[code] = strings.code(f"Group {number}"), strings.code(known)
    pairs = np.array([labels[code] for code in names.tolist()], np.int32).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def build_steps(rows: KernelTable) -> Steps:
    """Steps of rows that name theirs: from the first start to the last end of each.

    A step that runs several graphs is one step of each, as everywhere.
    """
    held = rows.take(rows.iteration != NO_ID)
    steps = group_by(len(held), [held.graph, held.iteration])
    return Steps.of(
        len(steps.first),
        {
            "start_ns": steps.least(held.start_ns),
            "end_ns": steps.greatest(held.end_ns),
            "graph": held.graph[steps.first],
            "iteration": held.iteration[steps.first],
        },
    )


def with_step_graphs(rows: KernelTable, steps: Steps) -> KernelTable:
    """Rows without a graph get that of the step that they start in, where there is only one."""
    open_step, _ = only_open_at(rows.start_ns, steps.start_ns, steps.end_ns)
    found = (open_step >= 0) & (rows.graph == NO_GRAPH) & (rows.iteration == NO_ID)
    graph = rows.graph.copy()
    graph[found] = steps.graph[open_step[found]]
    return replace(rows, graph=graph)
