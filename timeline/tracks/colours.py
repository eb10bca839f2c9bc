"""Colours by meaning: computing green, waiting red, idle yellow, in any view, page and terminal.

The Perfetto UI derives the colour of a slice from a hash of its name, or of its correlation id if
it has one. Uses of time therefore get correlation ids whose hashes give the intended colours;
`tests/tracks/test_lanes.py` computes them as the UI does.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from functools import lru_cache

from timeline.layers import Category, SliceKind


class Colour(enum.Enum):
    """The meaning of a slice, as a correlation id that gives it a colour."""

    COMPUTING = "computation"
    """Green."""
    WAITING = "waiting for ranks"
    """Red."""
    TRANSFER = "time of data transfer"
    """Orange."""
    EXPOSED = "exposed communication"
    """Yellowish orange."""
    COPIES = "time for copies"
    """Violet."""
    IDLE = "idle on the device"
    """Yellow."""
    TEXT = "sentences"
    """Dark blue, the same for all sentences."""

    @property
    def shown(self) -> str:
        """Return the colour that the Perfetto UI derives, as #rrggbb, for pages and terminals."""
        return _SHOWN[self]


_SHOWN = {
    Colour.COMPUTING: "#5f9a3c",
    Colour.WAITING: "#bf2e5e",
    Colour.TRANSFER: "#ca9044",
    Colour.EXPOSED: "#c09444",
    Colour.COPIES: "#d177eb",
    Colour.IDLE: "#a69d44",
    Colour.TEXT: "#3a75b2",
}

_OF_KIND = {SliceKind.NOTE: Colour.TEXT}
_OF_CATEGORY = {Category.WAIT: Colour.WAITING, Category.IDLE: Colour.IDLE}
_BY_LENGTH = ((" slower by ", Colour.WAITING), (" faster by ", Colour.COMPUTING))
"""What names of steps hold that are compared with others."""
_BY_NAME = frozenset({SliceKind.PARTITION, SliceKind.OVERLAP, SliceKind.CRITICAL_PATH})
_BEFORE_USE = re.compile(r"^(?:\d+ \w+: )?(?:a? ?rank[^:]*: )?")
"""The part of a name before the use: the number of merged slices, and the rank on the path."""
_USES = (
    ("computing", Colour.COMPUTING),
    ("waiting for data", Colour.IDLE),
    ("waiting", Colour.WAITING),
    ("transfer", Colour.TRANSFER),
    ("communication", Colour.TRANSFER),
    ("exposed communication", Colour.EXPOSED),
    ("cop", Colour.COPIES),
    ("", Colour.IDLE),
)
"""Beginnings of slice names in lower case; the last one makes all other names idle."""
MOST_NAMES = 1 << 14
"""Size of the cache of colours by name."""
_UNREAD = re.compile("not (profiled|selected|known|found)")
"""Label of a rank on the critical path whose op was not read: only waits for it are known."""


def colours_of(
    kind: SliceKind, category: Category, names: Sequence[str]
) -> Sequence[Colour | None]:
    """Return the colours of slices by name, None if the UI may choose one."""
    if kind is SliceKind.STEP:
        return [next((one for text, one in _BY_LENGTH if text in name), None) for name in names]
    colour = _OF_KIND.get(kind) or _OF_CATEGORY.get(category)
    if colour is None and kind in _BY_NAME:
        return [_colour_of_use(name) for name in names]
    return [colour] * len(names)


@lru_cache(MOST_NAMES)
def _colour_of_use(name: str) -> Colour:
    use = _BEFORE_USE.sub("", name.lower())
    if _UNREAD.search(use):
        return Colour.WAITING
    return next(colour for begin, colour in _USES if use.startswith(begin))
