"""What the numbers of a run advise: each with its value, its mean and its threshold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass

from timeline.figures.table import Table

__all__ = ["Advice", "advice_table"]

_COLUMNS: Mapping[str, type] = {
    "about": object,
    "rank": int,
    "stage": int,
    "source_rank": int,
    "target_rank": int,
    "link": object,
    "op": int,
    "value": float,
    "unit": object,
    "mean": float,
    "share": float,
    "threshold": float,
    "text": object,
}


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A number that is above its threshold, and what to do about it, in a sentence.

    about: its subject, such as data processing; all have the same in one kind of advice. severity:
    how many times its threshold it is, which says what is told first.
    """

    about: str
    rank: int | None = None
    stage: int | None = None
    source_rank: int | None = None
    target_rank: int | None = None
    link: str | None = None
    op: int | None = None
    value: float | None = None
    unit: str | None = None
    mean: float | None = None
    share: float | None = None
    threshold: float | None = None
    text: str
    severity: float = 0.0


def advice_table(advice: Iterable[Advice]) -> Table:
    """A row per piece of advice, the worst first, with the columns of the report."""
    worst = sorted(advice, key=lambda one: -one.severity)
    return Table.of_rows(_COLUMNS, [astuple(one)[: len(_COLUMNS)] for one in worst])
