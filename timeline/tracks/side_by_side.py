"""The timelines of two runs under each other, below how their steps differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from timeline.columns.columns import Int64
from timeline.columns.strings import StringPool
from timeline.layers import SliceKind
from timeline.tracks import descriptions
from timeline.tracks.model import Slices, Track
from timeline.tracks.painter import Painter, SliceTable, integers

__all__ = ["TITLE", "StepDifferences", "side_by_side"]

TITLE = "New run against base"
"""The row that holds all others."""


@dataclass(frozen=True)
class StepDifferences:
    """Steps of both runs, ascending by start_ns, that of the base; all columns are (n,) int64."""

    base_step: Int64
    new_step: Int64
    start_ns: Int64
    base_ns: Int64
    new_ns: Int64


def side_by_side(
    base: Sequence[Track], new: Sequence[Track], differences: StepDifferences
) -> tuple[Track, ...]:
    """The tracks of both runs, each a whole timeline, below one row on one time axis."""
    painter = Painter()
    root = _paint_root(painter, differences)
    made = list(painter.tracks)
    arrows = 0
    for order, (title, tracks) in enumerate((("Base", base), ("New", new)), 1):
        first_id, first_arrow = len(made), arrows
        for track in tracks:
            moved = replace(track, id=track.id + first_id)
            if track.parent is None:
                name = f"{title}: {track.name}"
                moved = replace(moved, parent=root, name=name, order=order)
            else:
                moved = replace(moved, parent=track.parent + first_id)
            content = moved.content
            if isinstance(content, Slices) and len(content.arrows.arrow):
                shifted = replace(content.arrows, arrow=content.arrows.arrow + first_arrow)
                arrows = max(arrows, int(shifted.arrow.max()))
                moved = replace(moved, content=replace(content, arrows=shifted))
            made.append(moved)
    return tuple(made)


def _paint_root(painter: Painter, steps: StepDifferences) -> int:
    """The row that holds all others, and is seen before it is unfolded; its id."""
    if not len(steps.start_ns):
        return painter.add_group(TITLE, None, 0, descriptions.BASE_AND_NEW)
    strings = StringPool()
    columns = (steps.base_step, steps.new_step, steps.base_ns, steps.new_ns)
    labels = (_label(*row) for row in zip(*(column.tolist() for column in columns), strict=True))
    end_ns = steps.start_ns + steps.base_ns
    end_ns[:-1] = np.minimum(end_ns[:-1], steps.start_ns[1:])
    drawn = SliceTable(
        steps.start_ns,
        end_ns,
        strings.codes(labels),
        SliceKind.STEP,
        [
            integers("base_step", steps.base_step),
            integers("new_step", steps.new_step),
            integers("base_ns", steps.base_ns),
            integers("new_ns", steps.new_ns),
            integers("delta_ns", steps.new_ns - steps.base_ns),
        ],
    )
    return painter.add_stacked_row(TITLE, None, 0, drawn, strings, descriptions.BASE_AND_NEW)


def _label(base_step: int, new_step: int, base_ns: int, new_ns: int) -> str:
    """What the UI colours by: it takes a hue from a name without its digits.

    In version 52 these words make what is slower red and what is faster green, whatever the time,
    because its unit stays the same.
    """
    which = f"Step {base_step}" if base_step == new_step else f"Step {base_step} and {new_step}"
    delta_ns = new_ns - base_ns
    if not delta_ns:
        return f"{which} as before"
    word = "slower" if delta_ns > 0 else "faster"
    share = f" ({delta_ns / base_ns:+.1%})" if base_ns else ""
    return f"{which} {word} by {abs(delta_ns) / 1e6:.3f} ms{share}"
