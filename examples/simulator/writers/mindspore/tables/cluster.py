"""How a run is split, and what its ranks do in a step: tables of MindSpore 1.5 to 2.2."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from simulator.model import NO_ID, Collective, Iteration, RankRun, Run, Step
from simulator.overlap import COMPUTING, NOT_OVERLAPPED, sweep, totals
from simulator.writers.mindspore.text import reduce_names

RECEIVE = "receive"
WAIT = "Notify_Wait"
DECIMALS = 4
"""Milliseconds are rounded to so many digits."""


@dataclass(frozen=True)
class Split:
    """How the ranks of a run share its model."""

    mode: str
    stages: int
    ranks: int

    @classmethod
    def of(cls, run: Run) -> Split:
        """How a run is split, by the groups that communicate."""
        ranks = run.truth.world
        pipelines = (len(group.members) for group in run.truth.groups if group.label == "pp")
        stages = next(pipelines, 1)
        return cls("pipeline-parallel" if stages > 1 else "model-parallel", stages, ranks)


def write_cluster(run: Run, rank: RankRun, profiler: Path) -> None:
    """Write how the run is split, the times of each step, and what collectives and links did."""
    split = Split.of(run)
    _write_split(split, rank, profiler)
    _write_times(split, rank, profiler)
    _write_hccl(rank, profiler)


def _write_split(split: Split, rank: RankRun, profiler: Path) -> None:
    of_stage = split.ranks // split.stages
    stages = [range(first, first + of_stage) for first in range(0, split.ranks, of_stage)]
    config = {
        "rankId": rank.rank,
        "stageId": rank.rank // of_stage,
        "parallelType": "semi_auto_parallel",
        "stageDevices": [{"dim": [{"size": str(one)} for one in stage]} for stage in stages],
    }
    _write_json(
        profiler / f"parallel_strategy_{rank.rank}.json",
        {"config": config, "graph": {"node": [], "parameters": []}},
    )
    info = {
        "context_mode": "graph",
        "rank_id": str(rank.rank),
        "rank_size": split.ranks,
        "parallel_mode": "semi_auto_parallel",
        "stage_num": split.stages,
    }
    _write_json(profiler / f"profiler_info_{rank.rank}.json", info)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")


def _write_times(split: Split, rank: RankRun, profiler: Path) -> None:
    """Write a row per step and their mean, without an end of the last line."""
    names = ["computation_time", "communication_alone_time"]
    if split.stages > 1:
        names += ["stage_time", "receive_alone_time", "collective_communication_alone_time"]
    rows = [_times_ms(step)[: len(names)] for step in rank.steps]
    means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    rounded = [[round(value, DECIMALS) for value in row] for row in (*rows, means)]
    lines = [",".join(map(str, row)) for row in (names, *rounded)]
    name = f"ascend_cluster_analyse_{split.mode}_{split.stages}_{split.ranks}_{rank.rank}.csv"
    (profiler / name).write_text("\n".join(lines), encoding="utf-8")


def _times_ms(step: Step) -> list[float]:
    """Computing, and communication, stage, receiving and collectives while nothing computes."""
    whole = totals(sweep(step.iterations))
    receives = [_with_receives_alone(one) for one in step.iterations]
    computing, alone = whole[COMPUTING], whole[NOT_OVERLAPPED]
    receiving = totals(sweep(receives))[NOT_OVERLAPPED]
    collective = alone - receiving
    times_ns = (computing, alone, computing + collective, receiving, collective)
    return [round(time_ns / 1e6, DECIMALS) for time_ns in times_ns]


def _with_receives_alone(iteration: Iteration) -> Iteration:
    found = tuple(one for one in iteration.collectives if RECEIVE in one.op_type)
    return replace(iteration, collectives=found)


Links = dict[str, dict[str, list[float]]]


def _write_hccl(rank: RankRun, profiler: Path) -> None:
    """Write what the ops of each step waited and moved, and the means of all steps."""
    rows = [list(_ops_of(step)) for step in rank.steps]
    names = ("step_num", "communication_cost", "wait_cost", "link_info")
    with (profiler / f"hccl_raw_{rank.rank}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow((*names, "communication_operator_cost"))
        for step, ops in zip(rank.steps, rows, strict=True):
            writer.writerow(_hccl_row(str(step.id), ops, 1))
        every = [op for ops in rows for op in ops]
        writer.writerow(_hccl_row("-", every, len(rows)))


def _ops_of(step: Step) -> Iterator[tuple[str, float, float, Links]]:
    """The name of each op, how long it moved data and waited, in ms, and over which links."""
    for name, one in reduce_names(step):
        links = _links_of(one)
        moved_ms = sum(figures[0] for kinds in links.values() for figures in kinds.values())
        waits = [task for task in one.tasks if task.transfer and task.transfer.kind == WAIT]
        waited_ms = sum(task.duration_ns for task in waits) / 1e6
        yield f"{name}_{one.scope.rpartition('/')[2]}", moved_ms, waited_ms, links


def _links_of(one: Collective) -> Links:
    """Milliseconds, kB and kB/s of each link, whose ends are numbers inside the group."""
    links: Links = {}
    for task in one.tasks:
        transfer = task.transfer
        if transfer is None or not transfer.size_bytes or transfer.target_rank == NO_ID:
            continue
        kinds = links.setdefault(f"{transfer.source_rank}-{transfer.target_rank}", {})
        figures = kinds.setdefault(transfer.transport, [0.0, 0.0, 0.0])
        figures[0] += task.duration_ns / 1e6
        figures[1] += transfer.size_bytes / 1e3
        figures[2] = figures[1] / figures[0] * 1e3
    return links


def _hccl_row(
    step: str, ops: Sequence[tuple[str, float, float, Links]], count: int
) -> Sequence[Any]:
    """A row of so many steps; bandwidths of links are added up, as MindSpore does."""
    links: Links = {}
    for _, _, _, of_op in ops:
        for ends, kinds in of_op.items():
            for kind, figures in kinds.items():
                summed = links.setdefault(ends, {}).setdefault(kind, [0.0, 0.0, 0.0])
                for at, value in enumerate(figures):
                    summed[at] += value / count
    costs: dict[str, list[Any]] = {}
    for name, moved_ms, waited_ms, of_op in ops:
        cost = costs.setdefault(name, [step, 0.0, 0.0, of_op])
        cost[1] += moved_ms / count
        cost[2] += waited_ms / count
    moved_ms = sum(moved for _, moved, _, _ in ops) / count
    waited_ms = sum(waited for _, _, waited, _ in ops) / count
    return step, moved_ms, waited_ms, json.dumps(links), json.dumps(costs)
