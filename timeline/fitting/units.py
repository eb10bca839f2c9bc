"""Units: tracks, or runs of long ones, that are merged, encoded and written together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from timeline.encoders.batches import FIRST_SEQUENCE, layer_place
from timeline.encoders.track_parts import PART_ELEMENTS, split_track
from timeline.fitting.exact_runs import ExactRuns
from timeline.frozen import dataclass
from timeline.layers import SizeLayer
from timeline.tracks.model import Slices, Track, element_count

__all__ = ["Unit", "make_units"]


_Row = tuple[int, str]
"""The order of a row among its siblings, and the category of its slices or its name: threads have
other names in each rank."""


@dataclass(frozen=True)
class Unit:
    """Tracks of one layer, or a run of a track, in which nothing goes on at either end.

    number: its place in the file. sequence: the first of the packet sequences that it may use.
    elements: its slices or samples, of which `exact` are exact at any power. start_ns: when the
    first of it begins.
    """

    number: int
    sequence: int
    layer: SizeLayer
    tracks: tuple[Track, ...]
    elements: int
    exact: int
    start_ns: int

    @property
    def rows(self) -> tuple[_Row, ...]:
        """The rows of which it has a part, each the same as that in its place of other ranks."""
        return tuple(map(_row_of, self.tracks))


def _row_of(track: Track) -> _Row:
    content = track.content
    return track.order, content.category.value if isinstance(content, Slices) else track.name


def make_units(
    tracks: Sequence[Track], unit_elements: Mapping[SizeLayer, int], exact: ExactRuns
) -> list[Unit]:
    """Cut tracks into units of about so many elements of each layer, in the order of the file.

    exact: what stays exact at any power.
    """
    by_layer: dict[SizeLayer, list[Track]] = {}
    for track in tracks:
        if track.size_layer is not None and len(track.content or ()):
            by_layer.setdefault(track.size_layer, []).append(track)
    units: list[Unit] = []
    sequence = FIRST_SEQUENCE
    for layer in sorted(by_layer, key=layer_place):
        for group in _groups(by_layer[layer], unit_elements[layer]):
            units.append(
                Unit(
                    len(units),
                    sequence,
                    layer,
                    group,
                    element_count(group),
                    sum(exact.count(track) for track in group),
                    _start_ns(group),
                )
            )
            # Merging leaves fewer elements, which are never cut into more parts.
            sequence += sum(1 + len(track.content or ()) // PART_ELEMENTS for track in group)
    return units


def _groups(tracks: Sequence[Track], most: int) -> Iterator[tuple[Track, ...]]:
    group: list[Track] = []
    elements = 0
    for track in tracks:
        for part in split_track(track, most):
            group.append(part)
            elements += len(part.content or ())
            if elements >= most:
                yield tuple(group)
                group, elements = [], 0
    if group:
        yield tuple(group)


def _start_ns(tracks: Sequence[Track]) -> int:
    return min(
        int(content.start_ns.min()) if isinstance(content, Slices) else int(content.time_ns[0])
        for content in (track.content for track in tracks)
        if content is not None
    )
