"""DrawnLayer: how one layer was drawn, for reports and for the rows themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from timeline.errors import spell_ids
from timeline.fitting.coarsen import Resolution
from timeline.fitting.resolve import Drawn
from timeline.frozen import dataclass
from timeline.layers import NOUNS, SizeLayer
from timeline.tracks.model import Samples, Slices, Track
from timeline.units import spell_duration

__all__ = ["WHOLE_NS", "DrawnLayer", "describe_resolutions"]

WHOLE_NS = 1 << 44
"""A resolution of hours merges all that there is."""


@dataclass(frozen=True)
class DrawnLayer:
    """How one layer was drawn: its power, the finer one before a moment, and what became of it."""

    layer: SizeLayer
    power: int
    drawn: Drawn
    finer_power: int | None = None
    finer_until_ns: int | None = None

    @property
    def merged(self) -> int:
        """How many records are not drawn one by one."""
        return self.drawn.merged

    @property
    def width_ns(self) -> int:
        """The width of a bin, which is also the least length of a slice that is always exact."""
        return Resolution(self.power).width_ns

    @property
    def finer_width_ns(self) -> int | None:
        """The same before `finer_until_ns`, where there is such a moment."""
        return None if self.finer_power is None else Resolution(self.finer_power).width_ns


def describe_resolutions(
    tracks: Sequence[Track], layers: Sequence[DrawnLayer], exact: Mapping[int, Sequence[int]]
) -> list[Track]:
    """Add to the descriptions of tracks what their merged slices stand for.

    All rows of a layer that is not exact say so: lanes of one row must say the same.

    Args:
        exact: by rank, the steps in which nothing is merged.
    """
    merged = {layer.layer: layer for layer in layers if layer.merged}
    made = []
    for track in tracks:
        layer = merged.get(track.size_layer or "")
        if layer is not None and track.content is not None:
            steps = exact.get(track.rank, ()) if track.rank is not None else ()
            also = _describe(track.content, layer, steps)
            track = replace(track, description=f"{track.description} {also}")  # noqa: PLW2901
        made.append(track)
    return made


def _describe(content: Slices | Samples, layer: DrawnLayer, steps: Sequence[int]) -> str:
    """What slices or samples stand for in a row that is not exact."""
    width = "" if layer.width_ns >= WHOLE_NS else spell_duration(layer.width_ns)
    also = "" if layer.finer_until_ns is None else " The first part is finer."
    if steps:
        also += f" Exact in {spell_steps(steps)}."
    if isinstance(content, Samples):
        of = f"each {width}" if width else "all"
        return f"To keep the size limit, the least and the greatest of {of}.{also}"
    shorter = f" shorter than {width}" if width else ""
    return (
        f"To keep the size limit, {NOUNS[content.kind]}{shorter} that follow each other are one "
        f"slice; its count and busy_ns are exact.{also}"
    )


def spell_steps(steps: Sequence[int]) -> str:
    """Steps for people, as in "steps 3, 5-7"."""
    return f"{'step' if len(steps) == 1 else 'steps'} {spell_ids(steps)}"
