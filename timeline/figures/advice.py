"""What the numbers of a run advise: each with its value, its mean and its threshold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple

from timeline.figures.table import Table
from timeline.frozen import dataclass

__all__ = ["NEVER_TOLD", "Advice", "advice_table", "worst_first", "worst_of_each"]

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
NEVER_TOLD = 0.0
"""The severity of advice that is in tables and not in the verdict."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A number beyond its threshold, and a sentence on what it means or what to try.

    about: its subject, such as data processing. rank, stage, source_rank, target_rank, link, op:
    what it concerns, as far as that is one. value: the number, and mean: that of its kind, where it
    is compared with that, both in unit: ns, GB/s, flop/s, flop, batches; None of a share. share:
    what is compared with the threshold: a share of a whole, or the distance from the mean as a
    share of that; where it is None, the value is. severity: how many times the threshold it is,
    which decides what is told first.
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
    severity: float = NEVER_TOLD


def advice_table(advice: Iterable[Advice]) -> Table:
    """A row per piece of advice, the worst first, with the columns of the report."""
    return Table.of_rows(_COLUMNS, [astuple(one)[: len(_COLUMNS)] for one in _sorted(advice)])


def worst_of_each(advice: Iterable[Advice], rank: int | None = None) -> Iterator[Advice]:
    """What a verdict tells: of each subject the worst, the worst subject first.

    rank: of what there is about this one, that is told.
    """
    told: dict[str, Advice] = {}
    for one in worst_first(advice):
        before = told.setdefault(one.about, one)
        if one.rank == rank != before.rank:
            told[one.about] = one
    yield from told.values()


def worst_first(advice: Iterable[Advice]) -> list[Advice]:
    """All that is told to people, the worst first."""
    return [one for one in _sorted(advice) if one.severity > NEVER_TOLD]


def _sorted(advice: Iterable[Advice]) -> list[Advice]:
    return sorted(advice, key=lambda one: -one.severity)
