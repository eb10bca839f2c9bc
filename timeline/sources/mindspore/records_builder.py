"""The records of one rank while its tables are read, one after the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from timeline.columns.intervals import open_at
from timeline.records.not_given import NO_GRAPH
from timeline.records.tables import (
    CommunicationOps,
    Omission,
    OmissionCode,
    PlaneTasks,
    Records,
    Steps,
    Tasks,
)
from timeline.sources.common.losses import LossLog, counted_losses
from timeline.sources.mindspore.framework_table import describe_operators, read_framework_table
from timeline.sources.mindspore.hccl_files import find_repeated
from timeline.sources.mindspore.step_ticks import StepTicks

__all__ = ["RecordsBuilder", "find_main_graph", "with_iterations", "with_known_graphs"]

_Table = TypeVar("_Table", Tasks, CommunicationOps, PlaneTasks)


def find_main_graph(tasks: Tasks, steps: Steps) -> int:
    """The graph that a step trace is of: the one with most tasks inside its steps.

    NO_GRAPH where no task names a graph.
    """
    known = tasks.graph != NO_GRAPH
    inside = known & (open_at(tasks.start_ns, steps.start_ns, steps.end_ns) >= 0)
    graphs, counts = np.unique(tasks.graph[inside if inside.any() else known], return_counts=True)
    return int(graphs[np.argmax(counts)]) if len(graphs) else NO_GRAPH


def with_iterations(tasks: Tasks, steps: Steps, main: int) -> Tasks:
    """The tasks, with the main graph where they name none.

    Those of other graphs get the number of the step in which they start, so they make steps of
    their own graph: a step of the training runs several graphs when it has control flow.
    """
    graph = np.where(tasks.graph == NO_GRAPH, main, tasks.graph)
    row = open_at(tasks.start_ns, steps.start_ns, steps.end_ns)
    other = (graph != main) & (row >= 0)
    iteration = tasks.iteration.copy()
    iteration[other] = steps.iteration[row[other]]
    return replace(tasks, graph=graph, iteration=iteration)


def with_known_graphs(table: _Table, steps: Steps) -> _Table:
    """The rows, with the graph of the step in which they start where they name none."""
    row = open_at(table.start_ns, steps.start_ns, steps.end_ns)
    found = (table.graph == NO_GRAPH) & (row >= 0)
    graph = table.graph.copy()
    graph[found] = steps.graph[row[found]]
    return replace(table, graph=graph)


class RecordsBuilder:
    """Builds the records of a profile whose steps name no graphs, a table at a time."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self._ticks = StepTicks.none()

    def report(self, omissions: tuple[Omission, ...], warnings: tuple[str, ...] = ()) -> None:
        """Note what was left out, and remarks."""
        self.records = replace(
            self.records,
            omissions=(*self.records.omissions, *omissions),
            warnings=(*self.records.warnings, *warnings),
        )

    def add_tasks(self, tasks: Tasks, omissions: tuple[Omission, ...] = ()) -> None:
        """Put device tasks to those there are."""
        self.report(omissions)
        self.records = replace(self.records, tasks=Tasks.concat([self.records.tasks, tasks]))

    def add_steps(self, ticks: StepTicks) -> None:
        """Take the steps, and their reduces as communication ops where no others tell of them."""
        self.report(ticks.omissions, ticks.warnings)
        self._ticks = ticks
        self.add_ops(ticks.reduces)

    def leave_out(self, ticks: StepTicks) -> None:
        """Report steps whose clock nothing relates to the other records."""
        reason = "steps of the step trace, whose clock nothing relates to the timeline"
        self.report(
            counted_losses({reason: len(ticks.steps)}, self.records.rank, OmissionCode.NO_CLOCK)
        )

    def add_ops(self, ops: CommunicationOps, *, better: bool = False) -> None:
        """Put ops to those there are, one of each that is told twice: the older, or the better."""
        old = self.records.ops
        if better:
            old = old.take(~find_repeated(old, ops))
        else:
            ops = ops.take(~find_repeated(ops, old))
        self.records = replace(self.records, ops=CommunicationOps.concat([old, ops]))

    def describe(self, path: Path) -> None:
        """Give tasks what the framework's table says of their operators."""
        records = self.records
        damage = LossLog(path)
        table = read_framework_table(path, records.strings, damage)
        tasks, described = describe_operators(records.tasks, table)
        self.records = replace(records, tasks=tasks)
        self.report(damage.omissions(records.rank))
        if len(table) and len(tasks) and not described:
            self.report(
                (),
                (
                    f"rank {records.rank}: {path.name} describes none of the operators that ran; "
                    "it is of another run.",
                ),
            )

    def build(self) -> Records:
        """The records, with graphs on which tasks, ops and steps agree."""
        records, ticks = self.records, self._ticks
        tasks, ops, planes = records.tasks, records.ops, records.planes
        main = find_main_graph(tasks, ticks.steps)
        if (ticks.steps.graph == NO_GRAPH).all():
            ticks = ticks.of_graph(main)
            tasks = with_iterations(tasks, ticks.steps, main)
        return replace(
            records,
            tasks=with_known_graphs(tasks, ticks.steps),
            ops=with_known_graphs(replace(ops, graph=np.full(len(ops), NO_GRAPH)), ticks.steps),
            planes=with_known_graphs(planes, ticks.steps),
            steps=ticks.steps,
            parts=ticks.parts,
            tells_free=len(tasks) > 0 or not len(ticks.steps),
        )
