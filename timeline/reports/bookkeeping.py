"""What was merged, left out and moved to make a file: in one line, or each with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from timeline.fitting.limits import LimitName
from timeline.records.tables import Omission
from timeline.reports.report_rows import (
    ExactStep,
    ResolutionRow,
    spell_exact_steps,
    spell_omissions,
)
from timeline.units import spell_count

KEPT_EXACT = "nothing is merged in"
_LIMITS: Mapping[LimitName, str] = {
    "bytes": "size limit",
    "events": "limit of events",
    "memory": "limit of a viewer's memory",
}


def bookkeeping_lines(
    omissions: Sequence[Omission],
    resolutions: Sequence[ResolutionRow],
    exact_steps: Sequence[ExactStep],
    limited_by: LimitName | None,
    clocks: Sequence[str],
    *,
    aligned: bool,
    verbose: bool,
) -> list[str]:
    """What a file is not exact in, and what was done to clocks; nothing where nothing was.

    clocks: how well they agree. aligned: whether they were moved. verbose: all of it, a line each.
    """
    merged = sum(1 for row in resolutions if row.merged)
    if verbose:
        return [
            *(f"  clocks: {line}" for line in clocks),
            *([f"  {spell_merged(merged, limited_by)}"] if merged else []),
            *(f"  {row.spelled()}" for row in resolutions),
            *([f"  {KEPT_EXACT}: {spell_exact_steps(exact_steps)}"] if exact_steps else []),
            *(f"  left out: {text}" for text, *_ in spell_omissions(omissions)),
        ]
    exact = f" (nothing in {spell_exact_steps(exact_steps)})" if exact_steps else ""
    left_out = sum(omission.rows for omission in omissions)
    said = [
        *([f"{spell_merged(merged, limited_by)}{exact}"] if merged else []),
        *([f"{spell_count(left_out, 'record')} left out"] if left_out else []),
        *(["clocks aligned"] if aligned else []),
    ]
    return [f"  {', '.join(said)}: -v says more"] if said else []


def spell_merged(layers: int, limited_by: LimitName | None) -> str:
    """How many layers are merged, and to keep which limit."""
    return f"{spell_count(layers, 'layer')} merged to keep the {_LIMITS[limited_by or 'bytes']}"
