"""What was merged, left out and moved to make a file: in one line, or each with its reason."""

from __future__ import annotations

from collections.abc import Sequence

from timeline.errors import spell_ids
from timeline.records.tables import Omission
from timeline.reports.report_rows import (
    ExactStep,
    ResolutionRow,
    spell_exact_steps,
    spell_omissions,
)
from timeline.units import spell_count

__all__ = ["KEPT_EXACT", "bookkeeping_lines"]

KEPT_EXACT = "nothing is merged in"


def bookkeeping_lines(
    omissions: Sequence[Omission],
    resolutions: Sequence[ResolutionRow],
    exact_steps: Sequence[ExactStep],
    clocks: Sequence[str],
    *,
    aligned: bool,
    verbose: bool,
) -> list[str]:
    """What a file is not exact in, and what was done to clocks; nothing where nothing was.

    clocks: how well they agree. aligned: whether they were moved. verbose: all of it, a line each.
    """
    if verbose:
        return [
            *(f"  clocks: {line}" for line in clocks),
            *(f"  {row.spelled()}" for row in resolutions),
            *([f"  {KEPT_EXACT}: {spell_exact_steps(exact_steps)}"] if exact_steps else []),
            *(f"  left out: {text}" for text, *_ in spell_omissions(omissions)),
        ]
    merged = sum(1 for row in resolutions if row.merged)
    exact = [step.step for step in exact_steps]
    left_out = sum(omission.rows for omission in omissions)
    said = [
        *([f"{spell_count(merged, 'layer')} merged (size limit)"] if merged else []),
        *([f"{'step' if len(exact) == 1 else 'steps'} {spell_ids(exact)} exact"] if exact else []),
        *([f"{spell_count(left_out, 'record')} left out"] if left_out else []),
        *(["clocks aligned"] if aligned else []),
    ]
    return [f"  {', '.join(said)}: -v says more"] if said else []
