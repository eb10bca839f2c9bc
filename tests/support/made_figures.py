"""The report of an export that nobody made, of any number of ranks and steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from timeline.reports.export_report import ExportReport
from timeline.reports.report_rows import OutputFile, RankReport
from timeline.tables.operators import OPERATORS
from timeline.tables.table import Spec, Table
from timeline.tables.waits import COLLECTIVES, LINKS, LONGEST_OPS, WAITED_FOR, WAITING
from timeline.verdict.figures import Figures
from timeline.verdict.verdict import Verdict

MILLISECOND_NS = 1_000_000


def made_report(
    ranks: int, steps: int, *, word: str = "", names: int = 300, phases: bool = True
) -> ExportReport:
    """A report with figures of random steps and operators.

    word: is part of every text. names: operators of each rank. phases: whether steps have them.
    """
    chance = np.random.default_rng(1)
    figures = Figures(
        {
            "overlap": (overlap := _overlap(chance, ranks, steps)),
            "steps": _steps(chance, overlap, steps, phases=phases),
            "operators": _operators(chance, ranks, names, word),
            "longest_ops": _longest_ops(chance, ranks, word),
            "waiting": filled(WAITING, chance, rank=np.arange(ranks)),
            "waited_for": _waited_for(chance, ranks),
            "collectives": _collectives(chance, ranks, word),
            "links": _links(chance, ranks, word),
        }
    )
    return ExportReport(
        kind="summary",
        outputs=(
            OutputFile(
                Path(f"{word}.pftrace"), "pftrace", 1234, 10, 10, tuple(range(steps)), (0, 9), 0
            ),
        ),
        ranks=tuple(
            RankReport(
                rank=rank,
                device=None,
                source=Path(f"/{word}/rank{rank}"),
                layout=word,
                tasks=9,
                communication_tasks=9,
                communication_ops=9,
                steps=steps,
                graphs=(1,),
                offset_ns=0,
                drift_ppb=0,
                align="recorded",
                spread_ns=None,
                matched_ops=0,
            )
            for rank in range(ranks)
        ),
        steps=tuple(range(1, steps + 1)),
        figures=figures,
        verdict=Verdict.of(figures),
        warnings=(f"a warning {word}",),
        suggestion=f"tlexport {word}",
    )


def _parts(chance: np.random.Generator, count: int, scale: int) -> dict[str, np.ndarray]:
    computing, not_overlapped, free = chance.integers(1, scale * MILLISECOND_NS, (3, count))
    overlapped = chance.integers(0, computing)
    copies = chance.integers(0, free)
    return {
        "span_ns": computing + not_overlapped + free,
        "computing_ns": computing,
        "communication_ns": overlapped + not_overlapped,
        "not_overlapped_ns": not_overlapped,
        "free_ns": free,
        "copies_ns": copies,
        "idle_ns": free - copies,
    }


def _overlap(chance: np.random.Generator, ranks: int, steps: int) -> Table:
    parts = _parts(chance, ranks, 100)
    step_ns = np.ma.masked_array(parts["span_ns"] // max(1, steps), np.full(ranks, not steps))
    head = {"rank": np.arange(ranks), "steps": np.full(ranks, steps), "step_ns": step_ns}
    none = np.ma.masked_equal(np.full(ranks, -1), -1)
    return Table({**head, **parts, "outside_ns": none, "before_ns": none})


def _steps(chance: np.random.Generator, overlap: Table, steps: int, *, phases: bool) -> Table:
    rank = np.repeat(overlap["rank"], steps)
    step = np.tile(np.arange(1, steps + 1), len(overlap))
    parts = _parts(chance, len(rank), 5)
    start_ns = step * 20 * MILLISECOND_NS + chance.integers(0, 1000, len(rank))
    lengths = chance.integers(1, MILLISECOND_NS, (3, len(rank)))
    names = ("fp_bp_ns", "tail_ns", "interval_ns")
    columns = {
        "rank": rank,
        "graph": np.ma.masked_array(np.ones(len(rank), np.int64), np.ones(len(rank), np.bool_)),
        "step": step,
        "start_ns": start_ns,
        "end_ns": start_ns + parts["span_ns"],
        "device_start_ns": start_ns,
        "period_ns": parts["span_ns"] + 3000,
        "before_ns": np.ma.masked_array(np.full(len(rank), 2000), np.zeros(len(rank), bool)),
        "late_ns": np.ma.masked_array(1000 * (rank == 0), rank > 5),
        "between_ns": np.ma.masked_array(np.full(len(rank), 1000), np.zeros(len(rank), bool)),
        **{
            name: np.ma.masked_array(part, np.zeros(len(part), bool))
            for name, part in parts.items()
        },
        **{
            name: np.ma.masked_array(column, np.full(len(column), not phases))
            for name, column in zip(names, lengths, strict=True)
        },
        "tasks": np.ones(len(rank), np.int64),
        "ordinary": ((step > 1) | (steps < 4)).astype(np.int64),
    }
    return Table(columns)


def _operators(chance: np.random.Generator, ranks: int, names: int, word: str) -> Table:
    count = ranks * names
    number = np.tile(np.arange(names), ranks)
    scope = "Default/" + "scope/" * 8
    runs, shortest_ns = chance.integers(1, 100, count), chance.integers(1, 1000, count)
    longest_ns = shortest_ns + chance.integers(0, 100_000, count)
    return filled(
        OPERATORS,
        chance,
        word,
        rank=np.repeat(np.arange(ranks), names),
        communication=(number % 10 == 0).astype(np.int64),
        type=np.array([f"Type{at % 40}{word}" for at in number.tolist()], object),
        name=np.array([f"{scope}op{at}{word}" for at in number.tolist()], object),
        shapes=np.array([f"{at},8{word}" for at in number.tolist()], object),
        count=runs,
        total_ns=runs * (shortest_ns + longest_ns) // 2,
        shortest_ns=shortest_ns,
        longest_ns=longest_ns,
    )


def filled(spec: Spec, chance: np.random.Generator, word: str = "", **columns: np.ndarray) -> Table:
    """A table of a declaration: columns that are not given hold numbers at random, or a word."""
    count = len(next(iter(columns.values())))
    for name, kind in spec.kinds.items():
        if name not in columns:
            text = np.full(count, f"{name}{word}", object)
            columns[name] = text if kind is object else chance.integers(1, MILLISECOND_NS, count)
    return Table({name: columns[name] for name in spec.kinds})


def _waited_for(chance: np.random.Generator, ranks: int) -> Table:
    """Each rank waited for the two behind it."""
    rank = np.repeat(np.arange(ranks), 2)
    whom = (rank + np.tile([1, 2], ranks)) % ranks
    others = rank != whom
    profiled = np.full(int(others.sum()), True, object)
    return filled(
        WAITED_FOR, chance, rank=rank[others], waited_for_rank=whom[others], profiled=profiled
    )


def _collectives(chance: np.random.Generator, ranks: int, word: str) -> Table:
    waited_ns, transfer_ns = chance.integers(1, MILLISECOND_NS, (2, ranks))
    speed = chance.random(ranks) * 50
    return filled(
        COLLECTIVES,
        chance,
        word,
        rank=np.arange(ranks),
        group=np.array([f"Group {rank % 3}{word}" for rank in range(ranks)], object),
        total_ns=waited_ns + transfer_ns,
        waited_ns=waited_ns,
        transfer_ns=transfer_ns,
        bandwidth_gb_s=np.ma.masked_array(speed, speed < 1),
    )


def _links(chance: np.random.Generator, ranks: int, word: str) -> Table:
    source = np.repeat(np.arange(ranks), 2)
    size_bytes = chance.integers(1, 10**9, len(source))
    total_ns = chance.integers(1, MILLISECOND_NS, len(source))
    return filled(
        LINKS,
        chance,
        rank=source,
        source_rank=source,
        target_rank=(source + np.tile([1, 2], ranks)) % ranks,
        link=np.full(len(source), f"HCCS{word}", object),
        size_bytes=size_bytes,
        total_ns=total_ns,
        bandwidth_gb_s=size_bytes / total_ns,
        group=np.full(len(source), None, object),
        numbered_in=np.full(len(source), "run", object),
    )


def _longest_ops(chance: np.random.Generator, ranks: int, word: str) -> Table:
    count = ranks * 20
    ones = np.ones(count, np.int64)
    return filled(
        LONGEST_OPS,
        chance,
        word,
        rank=np.repeat(np.arange(ranks), 20),
        name=np.array([f"hcom_allReduce_{at}{word}" for at in range(count)], object),
        graph=ones,
        step=ones,
        duration_ns=chance.integers(1, 10**7, count),
    )
