"""What tables alone tell of what is slow, in sentences: where no task says when it ran."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from timeline.analysis.work.operators import HOST_CORE
from timeline.figures.advice import mean_rows
from timeline.figures.rank_tables import Figures
from timeline.figures.table import Table
from timeline.units import spell_flop, spell_like, spell_share, spell_short

MOST_OPERATORS = 3
"""Operators of the host that are named."""


def untimed_sentences(figures: Figures) -> Iterator[str]:
    """The longest step, the longest type of operators, and the lowest use of a device's FLOP/s."""
    yield from _host_alone(figures)
    steps = figures.step_trace
    yield from _longest_step(
        mean_rows(steps.take(np.ma.filled(steps["total_ns"], 0) > 0)) if len(steps) else []
    )
    yield from _longest_type(figures)
    yield from _lowest_use(figures.flops)


def _host_alone(figures: Figures) -> Iterator[str]:
    """How long steps and operators take on the host, where no device is recorded."""
    operators = figures.operators.to_dicts()
    if not any(row["core"] == HOST_CORE for row in operators):
        return
    steps = figures.steps
    lengths_ns = (steps["end_ns"] - steps["start_ns"])[steps["end_ns"] > steps["start_ns"]]
    if len(lengths_ns):
        of = f", the mean of {len(lengths_ns)}" if len(lengths_ns) > 1 else ""
        mean_ns = int(lengths_ns.sum()) // len(lengths_ns)
        yield f"Host only: a step takes {spell_short(mean_ns)}{of}."
    own_ns: dict[str, int] = {}
    for row in operators:
        own_ns[row["type"]] = own_ns.get(row["type"], 0) + row["total_ns"]
    all_ns = sum(own_ns.values())
    longest = sorted(own_ns.items(), key=lambda item: (-item[1], item[0]))[:MOST_OPERATORS]
    said = ", ".join(
        f"{name} {spell_short(time_ns)} ({spell_share(time_ns, all_ns)})"
        for name, time_ns in longest
    )
    yield f"Host only: operators take {spell_short(all_ns)} without those they call: {said}."


def _longest_step(rows: list[dict[str, Any]]) -> Iterator[str]:
    """What a mean step consists of, on the rank where it takes longest."""
    if not rows:
        return
    row = max(rows, key=lambda row: row["total_ns"])
    whole_ns = row["total_ns"]
    names = ("forward and backward", "fp_bp_ns"), ("tail", "tail_ns"), ("interval", "interval_ns")
    parts = [f"{name} {spell_share(row[key], whole_ns)}" for name, key in names if row[key]]
    step = "Step" if row["step"] is None else f"Step {row['step']}"
    on = f" on rank {row['rank']}, where it takes longest" if len(rows) > 1 else ""
    yield f"{step} ({spell_short(whole_ns)}{on}): {', '.join(parts)}."


def _longest_type(figures: Figures) -> Iterator[str]:
    """Which type of operators takes longest, as files sum them up.

    Those of AI CPU only where there are none of AI Core: they are of all steps, not of a mean one.
    """
    found = dict[str, int]()
    of_source: dict[str, list[dict[str, Any]]] = {}
    for row in figures.operator_sums.to_dicts():
        of_source.setdefault(row["source"], []).append(row)
    sums = of_source.get("aicore_intermediate") or of_source.get("aicpu_intermediate")
    steps = [row for row in figures.operator_steps.to_dicts() if row["level"] == "type"]
    for row in sums or steps:
        found[row["type"]] = found.get(row["type"], 0) + (row["total_ns"] or 0)
    all_ns = sum(found.values())
    if all_ns:
        longest = max(found, key=lambda name: (found[name], name))
        took, whole = (spell_like(time_ns, all_ns) for time_ns in (found[longest], all_ns))
        share = spell_share(found[longest], all_ns)
        yield f"Of operators {longest} takes longest: {took} of {whole} ({share})."


def _lowest_use(flops: Table) -> Iterator[str]:
    """How much of what its device could compute the rank does that uses it least."""
    rows = [
        row
        for row in flops.to_dicts()
        if row["level"] == "rank" and row["unit"] == "all" and row["utilization"] is not None
    ]
    if rows:
        row = min(rows, key=lambda row: row["utilization"])
        work = "" if row["flop"] is None else f": its operators compute {spell_flop(row['flop'])}"
        at = "" if row["flop_per_s"] is None else f", at {spell_flop(row['flop_per_s'])}/s"
        yield (
            f"Rank {row['rank']} uses {row['utilization']:.1%} of the FLOP/s of its device between "
            f"forward and backward{work}{at}."
        )
