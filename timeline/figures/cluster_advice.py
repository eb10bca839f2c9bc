"""What to do where ranks, stages and links differ: what MindInsight proposes for clusters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from timeline.columns.columns import Bool
from timeline.columns.distinct import distinct_values
from timeline.figures.advice import Advice
from timeline.figures.parallel_tables import stage_of
from timeline.figures.step_trace_table import OF_FILE, OF_STEPS
from timeline.figures.table import Table
from timeline.units import spell_duration, spell_flop, spell_rate

__all__ = ["cluster_advice", "mean_rows"]

NOTABLE_SIZE = 0.01
"""A link that moved a smaller share of what the busiest one did says nothing of its speed."""
FROM_MEAN = 0.2
"""Of ranks, stages and links further from the mean of their kind the furthest is told."""
COMMUNICATING = 0.1
"""A larger share of computing and communication is told."""
_PIPELINE = "pipeline-parallel"

Row = dict[str, Any]


def cluster_advice(
    step_trace: Table, flops: Table, links: Table, parallel: Table, parallel_times: Table
) -> Iterator[Advice]:
    """Advice on step intervals and FLOP/s of ranks, links, communication, and work of stages.

    Args:
        step_trace, flops, parallel, parallel_times: see the functions that make them.
        links: see `Figures.links`.
    """
    yield from _step_intervals(step_trace)
    yield from _rates(flops)
    yield from _links(links)
    yield from _communication(parallel, parallel_times)
    yield from _stage_work(flops, parallel)


def mean_rows(table: Table) -> list[Row]:
    """The mean step of each rank: that of the file, else that of its steps, or its only step.

    table: rows with the columns rank, step and of.
    """
    by_rank: dict[int, dict[str | None, list[Row]]] = {}
    for row in table.take(_means_and_only_steps(table)).to_dicts():
        by_rank.setdefault(row["rank"], {}).setdefault(row["of"], []).append(row)
    found = []
    for rows in by_rank.values():
        single = rows.get(None, [])
        chosen = rows.get(OF_FILE) or rows.get(OF_STEPS) or (single if len(single) == 1 else [])
        found += chosen[:1]
    return found


def _means_and_only_steps(table: Table) -> Bool:
    """Which rows are means, or the only step of their rank; there may be millions of others."""
    if not len(table):
        return np.zeros(0, np.bool_)
    is_step = table["of"] == None  # noqa: E711 - row by row
    _, which = distinct_values(np.ma.getdata(table["rank"]))
    steps = np.bincount(which[is_step], minlength=int(which.max()) + 1)
    chosen: Bool = ~is_step | (steps[which] == 1)
    return chosen


def _furthest(values: Sequence[float], *, above: bool) -> Iterator[tuple[int, float, float]]:
    """The value of its kind furthest above, or below, their mean: position, share, mean.

    The first of equal ones; nothing where none is beyond `FROM_MEAN`.
    """
    mean = sum(values) / max(len(values), 1)
    if mean <= 0:
        return
    shares = [value / mean - 1 if above else (mean - value) / mean for value in values]
    share = max(shares)
    if share > FROM_MEAN:
        yield shares.index(share), share, mean


def _step_intervals(step_trace: Table) -> Iterator[Advice]:
    rows = [row for row in mean_rows(step_trace) if row["interval_ns"] is not None]
    for at, share, mean in _furthest([row["interval_ns"] for row in rows], above=True):
        rank, interval_ns = rows[at]["rank"], rows[at]["interval_ns"]
        yield Advice(
            about="step interval of ranks",
            rank=rank,
            value=interval_ns,
            unit="ns",
            mean=mean,
            share=share,
            threshold=FROM_MEAN,
            text=f"The step interval of rank {rank} is {spell_duration(interval_ns)}, {share:.0%} "
            "above the mean.",
            severity=share / FROM_MEAN,
        )


def _of_ranks(flops: Table, name: str) -> dict[int, float]:
    """A number of each rank as a whole; of cube and vector together where they are told apart."""
    apart: dict[int, dict[str, float]] = {}
    for row in flops.to_dicts():
        if row["level"] == "rank" and row[name] is not None:
            apart.setdefault(row["rank"], {})[row["unit"]] = row[name]
    return {rank: of.get("all", sum(of.values())) for rank, of in sorted(apart.items())}


def _rates(flops: Table) -> Iterator[Advice]:
    rates = _of_ranks(flops, "flop_per_s")
    ranks = list(rates)
    for at, share, mean in _furthest(list(rates.values()), above=False):
        rate = rates[ranks[at]]
        yield Advice(
            about="flop/s of ranks",
            rank=ranks[at],
            value=rate,
            unit="flop/s",
            mean=mean,
            share=share,
            threshold=FROM_MEAN,
            text=f"Operators of rank {ranks[at]} compute at {spell_flop(rate)}/s, {share:.0%} "
            "below the mean of ranks.",
            severity=share / FROM_MEAN,
        )


def _links(links: Table) -> Iterator[Advice]:
    """Yield the slowest link of each kind, of those between two ranks that moved anything.

    Short messages are slow on any link, so one that moved next to nothing is not compared.
    """
    if not len(links):
        return
    kinds: dict[str, list[Row]] = {}
    for row in links.to_dicts():
        if row["source_rank"] != row["target_rank"] and row["size_bytes"] and row["total_ns"]:
            kinds.setdefault(row["link"], []).append(row)
    for kind, every in kinds.items():
        least_bytes = NOTABLE_SIZE * max(row["size_bytes"] for row in every)
        rows = [row for row in every if row["size_bytes"] >= least_bytes]
        for at, share, mean in _furthest([row["bandwidth_gb_s"] for row in rows], above=False):
            yield _slow_link(kind, rows[at], share, mean)


def _slow_link(kind: str, row: Row, share: float, mean: float) -> Advice:
    ends = f"{row['source_rank']}-{row['target_rank']}"
    in_group = row["numbered_in"] == "group"
    inside = ", numbered inside its group," if in_group else ""
    named = f"{kind} link" if kind else "link"
    return Advice(
        about="link",
        rank=row["rank"],
        source_rank=row["source_rank"],
        target_rank=row["target_rank"],
        link=kind,
        value=row["bandwidth_gb_s"],
        unit="GB/s",
        mean=mean,
        share=share,
        threshold=FROM_MEAN,
        text=f"The {named} {ends} of rank {row['rank']}{inside} moves "
        f"{spell_rate(row['bandwidth_gb_s'])}, {share:.0%} below the mean of {named}s.",
        # Of links between known ranks the verdict tells what they cost.
        severity=share / FROM_MEAN if in_group else 0.0,
    )


def _communication(parallel: Table, parallel_times: Table) -> Iterator[Advice]:
    """How much ranks communicate without computing: of pipelines between and within stages."""
    split = next(iter(parallel.to_dicts()), {"mode": None, "stages": None})
    rows = [
        row
        for row in mean_rows(parallel_times)
        if row["computing_ns"] is not None and row["communication_alone_ns"] is not None
    ]
    if not rows:
        return
    if split["mode"] != _PIPELINE and (split["stages"] or 1) <= 1:
        share = _share(rows, "communication_alone_ns")
        who = "Ranks communicate" if len(rows) > 1 else f"Rank {rows[0]['rank']} communicates"
        text = f"{who} without computing for {share:.0%} of the time that both take."
        yield from _told("communication", share, text)
        return
    share = _share(rows, "receive_alone_ns")
    text = f"Pipeline stages wait for each other for {share:.0%} of computing and communication."
    yield from _told("communication between stages", share, text)
    for stage in sorted({row["stage"] for row in rows if row["stage"] is not None}):
        share = _share([row for row in rows if row["stage"] == stage], "collective_alone_ns")
        text = (
            f"Ranks of stage {stage} of the pipeline communicate with each other without computing "
            f"for {share:.0%} of computing and communication."
        )
        yield from _told("communication within a stage", share, text, stage)


def _told(about: str, share: float, text: str, stage: int | None = None) -> Iterator[Advice]:
    if share > COMMUNICATING:
        yield Advice(
            about=about,
            stage=stage,
            share=share,
            threshold=COMMUNICATING,
            text=text,
            severity=share / COMMUNICATING,
        )


def _share(rows: Sequence[Row], name: str) -> float:
    """A part of all computing and communication of ranks that tell it."""
    known = [row for row in rows if row[name] is not None]
    whole_ns = sum(row["computing_ns"] + row["communication_alone_ns"] for row in known)
    return float(sum(row[name] for row in known) / whole_ns) if whole_ns > 0 else 0.0


def _stage_work(flops: Table, parallel: Table) -> Iterator[Advice]:
    """The stage whose ranks compute most, if much more than those of others."""
    stages: dict[int, list[float]] = {}
    for rank, flop in _of_ranks(flops, "flop").items():
        stage = stage_of(rank, parallel)
        if stage is not None:
            stages.setdefault(stage, []).append(flop)
    means = {stage: sum(of_ranks) / len(of_ranks) for stage, of_ranks in sorted(stages.items())}
    numbers = list(means)
    for at, share, mean in _furthest(list(means.values()), above=True):
        flop = means[numbers[at]]
        yield Advice(
            about="work of stages",
            stage=numbers[at],
            value=flop,
            unit="flop",
            mean=mean,
            share=share,
            threshold=FROM_MEAN,
            text=f"Stage {numbers[at]} of the pipeline computes {spell_flop(flop)} on each rank, "
            f"{share:.0%} above the mean of stages: move layers to others.",
            severity=share / FROM_MEAN,
        )
