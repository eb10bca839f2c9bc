"""Painter, which turns tables into numbered tracks with lanes and connects slices by arrows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.selected_rank import DrawOptions, SelectedRank
from timeline.columns.columns import Bool, Codes, Float64, Int64, Rows, sort_rows, take
from timeline.columns.constant import constant, is_constant
from timeline.columns.strings import NO_NAME, StringPool
from timeline.layers import Category, LayerSpec, SliceKind
from timeline.records.tables import FlowEnd
from timeline.tracks.lanes import flat_lanes, nested_lanes, rows_by_lane
from timeline.tracks.model import Arg, ArgKind, Arrows, Samples, Slices, Track

NOT_DRAWN = -1
"""Number of the slice of a row that is not drawn."""


@dataclass(frozen=True)
class ArgColumn:
    """One arg of all rows of a table; `given` returns a mask of present values."""

    name: str
    kind: ArgKind
    values: npt.NDArray[Any]
    given: Callable[[npt.NDArray[Any]], Bool]
    default: bool

    def at(self, rows: Rows | None) -> Arg | None:
        """Return the arg of these rows (None: all), or None if no row has it."""
        values = _at(self.values, rows)
        if is_constant(values) and len(values):
            present = constant(self.given(values[:1])[0], len(values), np.bool_)
        else:
            present = self.given(values)
        if not present.any():
            return None
        if present.all():
            present = constant(1, len(values), np.bool_)
        return Arg(self.name, self.kind, values, present, self.default)


def integers(
    name: str, values: Int64, absent: int | None = None, *, default: bool = True
) -> ArgColumn:
    """Declare an integer arg; rows that hold the sentinel `absent` do not have it."""

    def given(some: npt.NDArray[Any]) -> Bool:
        return np.ones(len(some), np.bool_) if absent is None else some != absent

    return ArgColumn(name, ArgKind.INTEGER, values, given, default)


def sizes(name: str, values: Int64) -> ArgColumn:
    """Declare an integer arg that is present only where it is greater than 0."""
    return ArgColumn(name, ArgKind.INTEGER, values, lambda some: some > 0, default=True)


def names(name: str, codes: np.ndarray, *, default: bool = True) -> ArgColumn:
    """Declare an arg of names; rows without a name do not have it."""
    return ArgColumn(name, ArgKind.NAME, codes, lambda some: some != NO_NAME, default)


def numbers(name: str, values: Float64, *, default: bool = True) -> ArgColumn:
    """Declare an arg of real numbers; rows whose number is not finite do not have it."""
    return ArgColumn(name, ArgKind.NUMBER, values, np.isfinite, default)


@dataclass(frozen=True)
class SliceTable:
    """Slices to draw on one row: the columns of a table, and their args.

    rows: the rows of the table to draw, None for all. flow_end: the kind of table, if arrows may
    end at its rows. category: the category, None for that of the slice kind.
    """

    start_ns: Int64
    end_ns: Int64
    name: np.ndarray
    kind: SliceKind
    args: Sequence[ArgColumn] = ()
    flow_end: FlowEnd | None = None
    rows: Rows | None = None
    category: Category | None = None


class Painter:
    """Builder of tracks, which numbers them and splits overlapping slices into lanes.

    tracks: existing tracks, to which new ones are appended. strings: the pool of all slices. rank:
    the rank of new tracks, None if they belong to no single rank.
    """

    def __init__(
        self,
        tracks: list[Track] | None = None,
        strings: StringPool | None = None,
        rank: int | None = None,
        wanted: Callable[[ArgColumn], bool] = lambda _: True,
    ) -> None:
        """wanted: see `wants`."""
        self.tracks = [] if tracks is None else tracks
        self.strings = StringPool() if strings is None else strings
        self.rank = rank
        self.wants = wanted
        """Returns True for each arg to draw."""
        self._slice_numbers: dict[FlowEnd, Codes | Int64] = {}
        self._marked: list[tuple[int, int]] = []
        """Tracks whose slices arrows may touch, and the number of the first slice of each."""
        self._next_number = 0

    def add_group(self, name: str, parent: int | None, order: int, description: str) -> int:
        """Add a row that only has other rows below it; return its id."""
        return self._add(name, parent, order, description, None)

    def add_flat_row(
        self, name: str, parent: int | None, order: int, drawn: SliceTable, description: str
    ) -> None:
        """Add a row of slices that do not nest; overlapping ones are put into lanes."""
        rows = _by_start(drawn)
        lane = flat_lanes(_at(drawn.start_ns, rows), _at(drawn.end_ns, rows))
        for lane_rows in _by_lane(rows, lane):
            self._add_lane(name, parent, order, drawn, lane_rows, description, nested=False)

    def add_nested_row(
        self, name: str, parent: int, order: int, drawn: SliceTable, description: str
    ) -> None:
        """Add a row of slices that nest, such as calls; crossing ones are put into lanes."""
        lane = nested_lanes(_at(drawn.start_ns, drawn.rows), _at(drawn.end_ns, drawn.rows))
        for lane_rows in _by_lane(drawn.rows, lane):
            self._add_lane(name, parent, order, drawn, lane_rows, description, nested=True)

    def add_stacked_row(
        self, name: str, parent: int | None, order: int, drawn: SliceTable, description: str
    ) -> int:
        """Add a row of slices that must not cross, which may have rows below it; return its id."""
        slices = self._slices(drawn, drawn.rows, nested=True)
        return self._add(name, parent, order, description, slices)

    def add_counter(
        self, name: str, parent: int, order: int, samples: Samples, description: str
    ) -> None:
        """Add a counter."""
        self._add(name, parent, order, description, samples)

    def _add_lane(
        self,
        name: str,
        parent: int | None,
        order: int,
        drawn: SliceTable,
        rows: Rows | None,
        description: str,
        *,
        nested: bool,
    ) -> None:
        slices = self._slices(drawn, rows, nested=nested)
        track = self._add(name, parent, order, description, slices)
        if drawn.flow_end is not None:
            self._remember(drawn.flow_end, rows, len(slices), track)

    def _slices(self, drawn: SliceTable, rows: Rows | None, *, nested: bool) -> Slices:
        args = (column.at(rows) for column in drawn.args if self.wants(column))
        return Slices(
            _at(drawn.start_ns, rows),
            _at(drawn.end_ns, rows),
            _at(drawn.name, rows),
            self.strings,
            drawn.kind,
            tuple(arg for arg in args if arg is not None),
            nested=nested,
            own_category=drawn.category,
        )

    def _add(
        self,
        name: str,
        parent: int | None,
        order: int,
        description: str,
        content: Slices | Samples | None,
    ) -> int:
        number = len(self.tracks)
        self.tracks.append(Track(number, parent, name, order, description, content, self.rank))
        return number

    def reserve(self, counts: Mapping[FlowEnd, int]) -> None:
        """Prepare to record the slice numbers of the rows of tables with these lengths."""
        few = sum(counts.values()) <= np.iinfo(np.int32).max
        dtype: Any = np.int32 if few else np.int64
        for kind, count in counts.items():
            self._slice_numbers[kind] = np.full(count, NOT_DRAWN, dtype)

    def _remember(self, kind: FlowEnd, rows: Rows | None, count: int, track: int) -> None:
        if kind in self._slice_numbers:
            first = self._next_number
            self._marked.append((track, first))
            self._next_number += count
            which = slice(None) if rows is None else rows
            self._slice_numbers[kind][which] = np.arange(first, self._next_number)

    def slice_numbers(self, kind: FlowEnd, rows: Int64) -> Codes | Int64:
        """Return the number of the slice of each row of a table, NOT_DRAWN if it is not drawn.

        Slices that arrows may touch are numbered over all tracks.
        """
        return self._slice_numbers[kind][rows]

    def connect(self, source: Int64, target: Int64, first_id: int) -> None:
        """Draw arrows, numbered from `first_id`, between slices given by `slice_numbers`.

        `slice_numbers` must not be called afterwards.
        """
        self._slice_numbers.clear()
        ends = np.stack([source, target], axis=1).reshape(-1)
        # A stable sort keeps the arrows of one slice in their own order.
        order = np.argsort(ends, kind="stable")
        ends = ends[order]
        bounds = np.searchsorted(ends, [*(first for _, first in self._marked), self._next_number])
        for (track, first), begin, stop in zip(
            self._marked, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True
        ):
            if begin == stop:
                continue
            content = self.tracks[track].content
            assert isinstance(content, Slices)
            arrows = Arrows(
                ends[begin:stop].astype(np.intp) - first, order[begin:stop] // 2 + first_id
            )
            self.tracks[track] = replace(
                self.tracks[track], content=replace(content, arrows=arrows)
            )


@dataclass(frozen=True)
class LayerDrawing:
    """One layer of one rank to be painted, with the painter and the options."""

    painter: Painter
    layer: LayerSpec
    rank: SelectedRank
    options: DrawOptions

    def add_row(self, name: str = "", position: int = 0, description: str = "") -> int:
        """Add the row that holds all rows of the layer; return its id.

        name: the name in the profile, empty for that of the layer. position: place among several
        rows of the layer. description: replaces that of the layer unless empty.
        """
        layer, name = self.layer, name or self.layer.name
        description = description or layer.description.format(name=name)
        return self.painter.add_group(name, None, layer.order + position, description)


PaintLayer = Callable[[LayerDrawing], None]
"""A function that adds the rows of a layer, if it has any, with their content."""


def _by_start(drawn: SliceTable) -> Rows | None:
    """Return the rows to draw in order of start, then end; None if these are all rows in order."""
    start_ns = _at(drawn.start_ns, drawn.rows)
    if (start_ns[1:] > start_ns[:-1]).all():
        return drawn.rows
    rows = sort_rows(start_ns, _at(drawn.end_ns, drawn.rows))
    return rows if drawn.rows is None else take(drawn.rows, rows)


def _by_lane(rows: Rows | None, lane: Int64) -> Sequence[Rows | None]:
    """Return the rows of each lane; unchanged (None: all) if there is only one lane."""
    if not lane.any():
        return [rows]
    return rows_by_lane(np.arange(len(lane)) if rows is None else rows, lane)


def _at(values: npt.NDArray[Any], rows: Rows | None) -> npt.NDArray[Any]:
    """Return the values of these rows, or all values uncopied for None."""
    return values if rows is None else take(values, rows)
