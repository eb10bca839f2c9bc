"""What colours slices by what they mean: computing green, waiting red, idle yellow, in any view.

The Perfetto UI takes the colour of a slice from a hash of its name, or of its correlation id where
it has one. So the uses of time have correlation ids whose hashes are the colours they should have;
`tests/tracks/test_colours.py` computes them as the UI does.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from functools import lru_cache

from timeline.layers import Category, SliceKind


class Colour(enum.Enum):
    """What slices are for, by a correlation id that gives them a colour."""

    COMPUTING = "computation"
    """Green."""
    WAITING = "waiting only"
    """Red."""
    TRANSFER = "transfer part"
    """Orange."""
    EXPOSED = "exposed communication"
    """Orange, a little more yellow."""
    COPIES = "copies (time)"
    """Violet."""
    IDLE = "spent idle"
    """Yellow."""
    TEXT = "sentences"
    """A dark blue, the same for all sentences: their words matter."""


_OF_KIND = {SliceKind.NOTE: Colour.TEXT}
_OF_CATEGORY = {Category.WAIT: Colour.WAITING, Category.IDLE: Colour.IDLE}
_BY_NAME = frozenset({SliceKind.PARTITION, SliceKind.OVERLAP, SliceKind.CRITICAL_PATH})
_BEFORE_USE = re.compile(r"^(?:\d+ \w+: )?(?:a? ?rank[^:]*: )?")
"""Before what a slice is for: how many it stands for, and on the critical path the rank."""
_USES = (
    ("computing", Colour.COMPUTING),
    ("waiting for data", Colour.IDLE),
    ("waiting", Colour.WAITING),
    ("transfer delayed", Colour.WAITING),
    ("transfer", Colour.TRANSFER),
    ("communication", Colour.TRANSFER),
    ("exposed communication", Colour.EXPOSED),
    ("cop", Colour.COPIES),
    ("", Colour.IDLE),
)
"""What the name of a slice begins with, in small letters; what is none of it is idle."""
MOST_NAMES = 1 << 14
"""Names whose colours are remembered."""
_UNREAD = re.compile("not (profiled|selected|known)")
"""In the name of a rank on the critical path of which is known only that others waited for it."""


def colours_of(
    kind: SliceKind, category: Category, names: Sequence[str]
) -> Sequence[Colour | None]:
    """The colours of slices by their names, None where the UI may choose one."""
    colour = _OF_KIND.get(kind) or _OF_CATEGORY.get(category)
    if colour is None and kind in _BY_NAME:
        return [_colour_of_use(name) for name in names]
    return [colour] * len(names)


def is_coloured_by_name(kind: SliceKind) -> bool:
    """Whether slices of a kind may have colours that differ."""
    return kind in _BY_NAME


@lru_cache(MOST_NAMES)
def _colour_of_use(name: str) -> Colour:
    use = _BEFORE_USE.sub("", name.lower())
    if _UNREAD.search(use):
        return Colour.WAITING
    return next(colour for begin, colour in _USES if use.startswith(begin))
