"""Floating-point operations of ranks, steps, scopes and operators, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from timeline.analysis.rank_facts import RankFacts
from timeline.figures.table import Table
from timeline.records.not_given import NO_ID
from timeline.records.profiler_tables import FlopLevel, FlopRows, FlopUnit

__all__ = ["FLOPS", "flops_table"]

FLOPS: Mapping[str, type] = {
    "rank": int,
    "level": object,
    "name": object,
    "parent": object,
    "step": int,
    "unit": object,
    "flop": int,
    "flop_per_s": int,
    "utilization": float,
}


def flops_table(facts: Sequence[RankFacts]) -> Table:
    """A row per rank, step, scope and operator of which MindSpore counted operations.

    level: rank, step, scope or operator. unit: all, cube or vector. flop: of one step, or of one
    run of an operator. flop_per_s: as the file has it, so of a rank the mean over its operators and
    not work / time. utilization: of the peak, 0 to 1. Names of scopes are those of the file, such
    as fc3-Dense(Gradients). A scope may lie in several others, so its name and parent together tell
    it.
    """
    return Table.of_rows(FLOPS, (row for rank in facts for row in _rows(rank)))


def _rows(facts: RankFacts) -> Iterator[tuple[object, ...]]:
    strings, table = facts.profiler_tables.strings, facts.profiler_tables.of(FlopRows)
    for level, name, parent, step, unit, flop, rate, share in zip(
        table.level.tolist(),
        table.name.tolist(),
        table.parent.tolist(),
        table.step.tolist(),
        table.unit.tolist(),
        table.flop.tolist(),
        table.flop_per_s.tolist(),
        table.utilization.tolist(),
        strict=True,
    ):
        yield (
            facts.rank,
            FlopLevel(level).name.lower(),
            strings[name] or None,
            strings[parent] or None,
            None if step == NO_ID else step,
            FlopUnit(unit).name.lower(),
            None if flop == NO_ID else flop,
            None if rate == NO_ID else rate,
            None if np.isnan(share) else share,
        )
