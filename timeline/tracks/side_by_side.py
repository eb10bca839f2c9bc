"""Turns the pictures of two runs into one: under each other, below how their steps differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from timeline.records.columns import Int64
from timeline.records.strings import StringPool
from timeline.tracks.model import Schema, Slices, Track
from timeline.tracks.painter import Drawn, Painter, integers
from timeline.units import spell_duration

__all__ = ["StepDifferences", "side_by_side"]

_ROOT = (
    "Two runs under each other; the new one is moved in time so that its first step begins with "
    "that of the base."
)
_DIFFERENCE = (
    "How much longer each step took in the new run than in the base, on the rank where it took "
    "longest. A slice begins with the step of the base and lasts as long."
)


@dataclass(frozen=True)
class StepDifferences:
    """Steps of both runs in order; all columns are (n,) int64. Starts are those of the base."""

    base_step: Int64
    new_step: Int64
    start_ns: Int64
    base_ns: Int64
    new_ns: Int64


def side_by_side(
    base: Sequence[Track], new: Sequence[Track], differences: StepDifferences
) -> tuple[Track, ...]:
    """One picture of both runs, whose tracks are whole pictures on one time axis."""
    painter = Painter()
    root = painter.group("New run against base", None, 0, _ROOT)
    _paint_differences(painter, root, differences)
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
                own = replace(content.arrows, arrow=content.arrows.arrow + first_arrow)
                arrows = max(arrows, int(own.arrow.max()))
                moved = replace(moved, content=replace(content, arrows=own))
            made.append(moved)
    return tuple(made)


def _paint_differences(painter: Painter, root: int, steps: StepDifferences) -> None:
    if not len(steps.start_ns):
        return
    strings = StringPool()
    rows = zip(
        steps.base_step.tolist(),
        steps.new_step.tolist(),
        steps.base_ns.tolist(),
        steps.new_ns.tolist(),
        strict=True,
    )
    drawn = Drawn(
        steps.start_ns,
        steps.start_ns + steps.base_ns,
        strings.codes(_label(*row) for row in rows),
        Schema.STEP,
        [
            integers("base_step", steps.base_step),
            integers("new_step", steps.new_step),
            integers("base_ns", steps.base_ns),
            integers("new_ns", steps.new_ns),
            integers("delta_ns", steps.new_ns - steps.base_ns),
        ],
    )
    painter.flat("Difference of steps", root, 0, drawn, strings, None, _DIFFERENCE)


def _label(base_step: int, new_step: int, base_ns: int, new_ns: int) -> str:
    which = f"Step {base_step}" if base_step == new_step else f"Step {base_step} and {new_step}"
    delta_ns = new_ns - base_ns
    sign = "+" if delta_ns > 0 else ""
    share = f" ({delta_ns / base_ns:+.1%})" if base_ns else ""
    return f"{which}: {sign}{spell_duration(delta_ns)}{share}"
