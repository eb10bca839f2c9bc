"""The gate of a comparison: whether the new run is slower than is allowed, beyond its noise."""

from __future__ import annotations

from typing import Any

import numpy as np

from timeline.columns.columns import Int64
from timeline.frozen import dataclass
from timeline.units import spell_duration

__all__ = ["LEAST_STEPS", "Gate"]

LEAST_STEPS = 5
"""Fewer steps of a run have no quartiles that tell a change from noise."""


@dataclass(frozen=True)
class Gate:
    """Whether the median step became longer by more than a limit.

    limit: the share that is allowed. ratio: the median step of the new run as a multiple of that of
    the base, None where a run holds nothing. separated: whether the quartiles of the new run lie
    above those of the base; None where a run has fewer than `LEAST_STEPS` steps. failed: whether
    the run is slower than allowed; never where a run has too few steps for quartiles. base_ns,
    new_ns: the medians; base_steps, new_steps: of how many steps. Where a run has no steps at all,
    these are 0, and times are from end to end, whose ratio decides alone.
    """

    limit: float
    ratio: float | None
    separated: bool | None
    failed: bool
    base_ns: int
    new_ns: int
    base_steps: int
    new_steps: int

    @classmethod
    def of(cls, limit: float, base_ns: Int64, new_ns: Int64, whole_ns: tuple[int, int]) -> Gate:
        """Judge the times of the steps of both runs.

        Args:
            base_ns, new_ns: (n,) and (k,) times of steps.
            whole_ns: of both runs from end to end, which count where a run has no steps.
        """
        counts = (len(base_ns), len(new_ns))
        if not all(counts):
            return cls._judged(limit, *whole_ns, None, (0, 0))
        separated = None
        if min(counts) >= LEAST_STEPS:
            separated = bool(np.quantile(new_ns, 0.25) > np.quantile(base_ns, 0.75))
        medians_ns = (int(np.median(base_ns)), int(np.median(new_ns)))
        return cls._judged(limit, *medians_ns, separated, counts)

    @classmethod
    def _judged(
        cls, limit: float, base_ns: int, new_ns: int, separated: bool | None, steps: tuple[int, int]
    ) -> Gate:
        ratio = new_ns / base_ns if base_ns and new_ns else None
        longer = ratio is not None and ratio > 1 + limit
        failed = longer and (separated is True or not any(steps))
        return cls(limit, ratio, separated, failed, base_ns, new_ns, *steps)

    @property
    def warning(self) -> str:
        """What has to be known of what it stands on; empty where nothing has."""
        if self.ratio is None:
            return "the gate is open: a run holds nothing that it could judge."
        if not self.base_steps:
            return "the gate stands on times from end to end: a run has no steps."
        if self.separated is None:
            steps = " and ".join(str(count) for count in (self.base_steps, self.new_steps))
            return (
                f"the gate does not fail on {steps} steps: fewer than {LEAST_STEPS} do not tell a "
                "change from noise."
            )
        return ""

    def sentence(self) -> str:
        """The judgement, for people."""
        limit = f"{100 * self.limit:g}%"
        if self.ratio is None:
            return f"Gate of {limit}: a run holds nothing that it could judge."
        what = "median step" if self.base_steps else "end to end"
        times = f"{spell_duration(self.base_ns)} before, {spell_duration(self.new_ns)} now"
        verdict = "fails" if self.failed else "passes"
        return f"Gate of {limit} {verdict}: {what} {self.ratio - 1:+.1%} ({times}){self._pardon}."

    @property
    def _pardon(self) -> str:
        """What lets it pass though the median step is longer than allowed."""
        if self.failed or self.ratio is None or self.ratio <= 1 + self.limit:
            return ""
        if self.separated is None:
            return f", but fewer than {LEAST_STEPS} steps do not tell a change from noise"
        return ", but the quartiles of both runs overlap"

    def to_dict(self) -> dict[str, Any]:
        """The gate as plain values."""
        return {
            "limit": self.limit,
            "ratio": None if self.ratio is None else round(self.ratio, 6),
            "separated": self.separated,
            "failed": self.failed,
            "base_ns": self.base_ns,
            "new_ns": self.new_ns,
            "base_steps": self.base_steps,
            "new_steps": self.new_steps,
        }
