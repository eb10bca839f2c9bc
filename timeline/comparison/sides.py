"""The two sides of a comparison: what is selected of each, and the words that name them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from timeline.errors import UsageError, format_ids
from timeline.selection import Selection, select

BASE, NEW = "base", "new"
PAIRED = ("ranks", "steps")
"""Keywords whose text may hold a pair, the base before the colon and the new side after it."""
_PLACES = {"ranks": "on", "steps": "in"}


@dataclass(frozen=True)
class Sides:
    """Names of the base and of the new side, those of two runs by default.

    titles: as in the heads of tables. places: as after a time. labels: as before a warning.
    by_order: the sides have other ranks, which are paired in order.
    """

    titles: tuple[str, str] = ("before", "now")
    places: tuple[str, str] = ("before", "now")
    labels: tuple[str, str] = (BASE, NEW)
    by_order: bool = False

    @property
    def in_one_run(self) -> bool:
        """Return True if both sides are parts of one run."""
        return self.labels != (BASE, NEW)

    @property
    def heads(self) -> tuple[str, str]:
        """Return the titles with a capital letter."""
        base, new = (title[:1].upper() + title[1:] for title in self.titles)
        return base, new

    @property
    def against(self) -> str:
        """Return the words behind a change that name the base, empty for two runs."""
        return f" against {self.titles[0]}" if self.in_one_run else ""

    def both(self, base: str, new: str) -> str:
        """Return two times, each with its side.

        >>> Sides().both("3 ms", "4 ms")
        '3 ms before, 4 ms now'
        """
        return f"{base} {self.places[0]}, {new} {self.places[1]}"

    def subject(self, noun: str) -> str:
        """Return the new side as the subject of a sentence; of two runs the noun."""
        return self.heads[1] if self.in_one_run else noun

    def to_dict(self) -> dict[str, str] | None:
        """Return the names of both parts of one run, None for two runs."""
        return dict(zip((BASE, NEW), self.titles, strict=True)) if self.in_one_run else None


RUNS = Sides()


def pairs_in(keywords: Mapping[str, Any]) -> dict[str, str]:
    """Return the keywords whose text holds a pair, such as steps="7:3"."""
    given = {name: keywords.get(name) for name in PAIRED}
    return {name: text for name, text in given.items() if isinstance(text, str) and ":" in text}


def select_sides(
    selection: Selection | None, keywords: Mapping[str, Any]
) -> tuple[tuple[Selection, Selection], Sides]:
    """Return what is selected of the base and of the new side, and the names of both.

    selection, keywords: as for `select`; a keyword with a pair has a part for each side.

    Raises:
        UsageError: a value has no meaning.
    """
    pairs = pairs_in(keywords)
    if not pairs:
        both = select(selection, keywords)
        return (both, both), RUNS
    parts = [{name: text.partition(":")[at] for name, text in pairs.items()} for at in (0, 2)]
    for name, text in pairs.items():
        if not all(part[name].strip() for part in parts):
            raise UsageError(
                f"--{name} {text}: one side of the colon is empty.",
                do=f"Write the base before it and the new side after it, as in --{name} 7:3.",
            )
    base, new = (select(selection, {**keywords, **part}) for part in parts)
    return (base, new), _sides_of(base, new, [*pairs])


def _sides_of(base: Selection, new: Selection, names: Collection[str]) -> Sides:
    """Return the words for two parts of one run that differ in these keywords."""
    spelled = [
        [(name, _spelled(name, getattr(one, name))) for name in names] for one in (base, new)
    ]
    titles = [", ".join(words for _, words in side) for side in spelled]
    places = [" ".join(f"{_PLACES[name]} {words}" for name, words in side) for side in spelled]
    return Sides(
        (titles[0], titles[1]),
        (places[0], places[1]),
        (titles[0], titles[1]),
        base.ranks != new.ranks,
    )


def _spelled(name: str, ids: frozenset[int] | None) -> str:
    """Return the ids of a side with their noun.

    >>> _spelled("steps", frozenset({7})), _spelled("ranks", frozenset({1, 2, 3}))
    ('step 7', 'ranks 1-3')
    """
    if ids is None:
        return f"all {name}"
    return f"{name[:-1] if len(ids) == 1 else name} {format_ids(ids)}"
