"""What is said of ranks, once for all that the same is said of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from timeline.errors import spell_ids

_OF_A_RANK = re.compile(r"rank (\d+): (.+)", re.DOTALL)


def said_once(warnings: Iterable[str]) -> Iterator[str]:
    """Warnings in their order, those of ranks that differ in nothing but the rank as one.

    >>> list(said_once(["rank 0: no steps.", "one profile.", "rank 1: no steps."]))
    ['ranks 0,1: no steps.', 'one profile.']
    """
    ranks = dict[str, list[int]]()
    for warning in warnings:
        found = _OF_A_RANK.fullmatch(warning)
        if found is None:
            ranks.setdefault(warning, [])
        else:
            ranks.setdefault(found[2], []).append(int(found[1]))
    for text, of in ranks.items():
        several = sorted(set(of))
        head = f"{'rank' if len(several) == 1 else 'ranks'} {spell_ids(several)}: " if of else ""
        yield f"{head}{text}"
