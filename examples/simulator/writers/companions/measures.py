"""The measures that profilers write beside a capture, and that checks compare with."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

from simulator.model import Collective, RankRun, Run
from simulator.writers.events import write_table
from simulator.writers.trace_json.msprof import wall_clock

LINK = "HCCS"
OP_STATISTIC = (
    "OP Type",
    "Core Type",
    "Count",
    "Total Time(us)",
    "Min Time(us)",
    "Avg Time(us)",
    "Max Time(us)",
    "Ratio(%)",
)
MEASURES_SCHEMA = """
CREATE TABLE CommAnalyzerTime (hccl_op_name TEXT, group_name TEXT, start_timestamp NUMERIC,
    elapse_time NUMERIC, step TEXT, type TEXT);
CREATE TABLE CommAnalyzerBandwidth (hccl_op_name TEXT, group_name TEXT, transport_type TEXT,
    transit_size NUMERIC, transit_time NUMERIC, package_size NUMERIC, step TEXT, type TEXT);
CREATE TABLE CommAnalyzerMatrix (hccl_op_name TEXT, group_name TEXT, src_rank TEXT,
    dst_rank TEXT, transport_type TEXT, transit_size NUMERIC, transit_time NUMERIC, step TEXT,
    type TEXT);
"""
Links = dict[tuple[int, int], tuple[int, int]]
"""Bytes and ns by the ranks of both ends."""


def links_of(one: Collective) -> Links:
    """What each link moved for an op: transfers between two ranks."""
    found: Links = {}
    for task in one.tasks:
        moved = task.transfer
        assert moved is not None
        if task.kind in ("Memcpy", "Reduce_Inline") and moved.link == LINK:
            ends = moved.source_rank, moved.target_rank
            size_bytes, total_ns = found.get(ends, (0, 0))
            found[ends] = size_bytes + moved.size_bytes, total_ns + task.duration_ns
    return found


def operator_sums(rank: RankRun) -> dict[str, tuple[str, int, int]]:
    """The core, the number and the summed length of the operators of each type."""
    found: dict[str, tuple[str, int, int]] = {}
    for task in (task for one in rank.iterations for task in one.local_tasks):
        if task.kernel is not None:
            _, count, total_ns = found.get(task.kernel.op_type, ("", 0, 0))
            sums = count + 1, total_ns + task.duration_ns
            found[task.kernel.op_type] = task.kernel.core, *sums
    return found


def write_operator_sums(rank: RankRun, path: Path) -> None:
    """Write op_statistic.csv."""
    rows = [
        (name, core, count, f"{total_ns / 1000:.3f}", 0, 0, 0, 0)
        for name, (core, count, total_ns) in operator_sums(rank).items()
    ]
    write_table(path, OP_STATISTIC, rows, "\n")


def write_communication_measures(run: Run, rank: RankRun, output: Path) -> None:
    """Write communication.json and communication_matrix.json as torch_npu does."""
    clock = wall_clock(run)
    ops: dict[str, dict[str, Any]] = {}
    matrix: dict[str, dict[str, Any]] = {}
    for step in rank.steps:
        collectives = [one for iteration in step.iterations for one in iteration.collectives]
        ops[f"step{step.id}"] = {
            "p2p": {},
            "collective": {
                **{f"{one.name}@1": _op(one, float(clock(one.start_ns))) for one in collectives},
                "Total Op Info": {"Communication Time Info": {"Elapse Time(ms)": 1e6}},
            },
        }
        total: Counter[tuple[int, int]] = Counter()
        taken_ns: Counter[tuple[int, int]] = Counter()
        for one in collectives:
            for ends, (size_bytes, total_ns) in links_of(one).items():
                total[ends] += size_bytes
                taken_ns[ends] += total_ns
        cells = {ends: _cell(total[ends], taken_ns[ends]) for ends in total}
        local = {(rank.rank, rank.rank): _cell(10, 10) | {"Transport Type": "LOCAL"}}
        matrix[f"step{step.id}"] = {
            "p2p": {},
            "collective": {
                "allreduce-top1@1": {"0-1": _cell(10**9, 10)},
                "allreduce-total@1": {
                    f"{a}-{b}": one for (a, b), one in {**cells, **local}.items()
                },
            },
        }
    (output / "communication.json").write_text(json.dumps(ops), encoding="utf-8")
    (output / "communication_matrix.json").write_text(json.dumps(matrix), encoding="utf-8")


def _op(one: Collective, start_us: float) -> dict[str, Any]:
    moved_mb = sum(size_bytes for size_bytes, _ in links_of(one).values()) / 1e6
    return {
        "Communication Time Info": {
            "Start Timestamp(us)": start_us,
            "Elapse Time(ms)": one.duration_ns / 1e6,
        },
        "Communication Bandwidth Info": {
            "RDMA": {"Transit Size(MB)": 0},
            LINK: {"Transit Size(MB)": moved_mb},
            "SDMA": {"Transit Size(MB)": moved_mb},
        },
    }


def _cell(size_bytes: int, total_ns: int) -> dict[str, Any]:
    return {
        "Transport Type": LINK,
        "Transit Size(MB)": size_bytes / 1e6,
        "Transit Time(ms)": total_ns / 1e6,
    }


def write_measures_database(run: Run, rank: RankRun, path: Path) -> None:
    """Add the same measures to analysis.db."""
    clock = wall_clock(run)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(MEASURES_SCHEMA)
        for step in rank.steps:
            key = f"step{step.id}"
            sums: defaultdict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
            for one in (one for iteration in step.iterations for one in iteration.collectives):
                name = one.name
                moved_mb = sum(size_bytes for size_bytes, _ in links_of(one).values()) / 1e6
                start_us, elapsed_ms = float(clock(one.start_ns)), one.duration_ns / 1e6
                connection.execute(
                    "INSERT INTO CommAnalyzerTime VALUES (?, '1', ?, ?, ?, 'collective')",
                    (name, start_us, elapsed_ms, key),
                )
                # A row for each size of packages, and the same sums in each.
                connection.executemany(
                    "INSERT INTO CommAnalyzerBandwidth VALUES (?, '1', ?, ?, 1, ?, ?, '')",
                    [
                        (name, kind, moved_mb, size, key)
                        for kind, size in ((LINK, 1), (LINK, 2), ("SDMA", 0))
                    ],
                )
                for ends, link in links_of(one).items():
                    for at, value in enumerate(link):
                        sums[ends][at] += value
            connection.executemany(
                "INSERT INTO CommAnalyzerMatrix "
                "VALUES ('allreduce-total', '1', ?, ?, ?, ?, ?, ?, '')",
                [
                    (str(a), str(b), LINK, size_bytes / 1e6, total_ns / 1e6, key)
                    for (a, b), (size_bytes, total_ns) in sums.items()
                ],
            )
