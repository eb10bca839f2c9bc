"""Turns tables into tracks: numbers them, parts slices into lanes, and remembers the places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from timeline.records.columns import Bool, Float64, Int64, Rows
from timeline.records.strings import StringPool
from timeline.records.tables import FlowEnd
from timeline.tracks.lanes import flat_lanes, nested_lanes, rows_by_lane
from timeline.tracks.model import Arg, ArgKind, Arrows, Samples, Schema, Slices, Track

__all__ = ["Drawn", "Painter", "integers", "names", "numbers"]


def integers(name: str, values: Int64, absent: int | None = None, *, default: bool = True) -> Arg:
    """An integer arg; rows that hold the sentinel do not have it."""
    present = np.ones(len(values), np.bool_) if absent is None else values != absent
    return Arg(name, ArgKind.INTEGER, values, present, default)


def names(name: str, codes: np.ndarray, *, default: bool = True) -> Arg:
    """An arg of names; rows without a name do not have it."""
    return Arg(name, ArgKind.NAME, codes, codes != 0, default)


def numbers(name: str, values: Float64, present: Bool, *, default: bool = True) -> Arg:
    """An arg of real numbers."""
    return Arg(name, ArgKind.NUMBER, values, present & np.isfinite(values), default)


@dataclass(frozen=True)
class Drawn:
    """Slices to draw on one row: the columns, their args, and the table rows they come from."""

    start_ns: Int64
    end_ns: Int64
    name: np.ndarray
    schema: Schema
    args: Sequence[Arg] = ()
    kind: FlowEnd | None = None
    rows: Rows | None = None


class Painter:
    """Collects the tracks of one picture."""

    def __init__(self) -> None:
        self.tracks: list[Track] = []
        self._places: dict[tuple[int, FlowEnd], tuple[Int64, Int64]] = {}

    def group(
        self,
        name: str,
        parent: int | None,
        order: int,
        description: str,
        rank: int | None = None,
    ) -> int:
        """Add a row that only holds others; its id."""
        return self._add(name, parent, order, description, None, rank)

    def flat(
        self,
        name: str,
        parent: int | None,
        order: int,
        drawn: Drawn,
        strings: StringPool,
        rank: int | None,
        description: str,
    ) -> None:
        """Add a row of slices without nesting; where they overlap it gets lanes."""
        by_start = np.lexsort((drawn.end_ns, drawn.start_ns))
        lane = flat_lanes(drawn.start_ns[by_start], drawn.end_ns[by_start])
        for rows in rows_by_lane(lane) or [np.empty(0, np.intp)]:
            self._lane(
                name, parent, order, drawn, by_start[rows], strings, rank, description, nested=False
            )

    def stacked(
        self,
        name: str,
        parent: int | None,
        order: int,
        drawn: Drawn,
        strings: StringPool,
        description: str,
    ) -> int:
        """Add one row of slices that must not cross and that may hold other rows; its id."""
        slices = Slices(
            drawn.start_ns,
            drawn.end_ns,
            drawn.name,
            strings,
            drawn.schema,
            tuple(drawn.args),
            nested=True,
        )
        return self._add(name, parent, order, description, slices, None)

    def nested(
        self,
        name: str,
        parent: int,
        order: int,
        drawn: Drawn,
        strings: StringPool,
        rank: int,
        description: str,
    ) -> None:
        """Add a row of slices that nest, such as calls; where they cross it gets lanes."""
        lane = nested_lanes(drawn.start_ns, drawn.end_ns)
        for rows in rows_by_lane(lane) or [np.empty(0, np.intp)]:
            self._lane(name, parent, order, drawn, rows, strings, rank, description, nested=True)

    def counter(
        self,
        name: str,
        parent: int,
        order: int,
        samples: Samples,
        rank: int,
        description: str,
    ) -> None:
        """Add a counter."""
        self._add(name, parent, order, description, samples, rank)

    def _lane(
        self,
        name: str,
        parent: int | None,
        order: int,
        drawn: Drawn,
        rows: Rows,
        strings: StringPool,
        rank: int | None,
        description: str,
        *,
        nested: bool,
    ) -> None:
        slices = Slices(
            drawn.start_ns[rows],
            drawn.end_ns[rows],
            drawn.name[rows].astype(np.int32),
            strings,
            drawn.schema,
            tuple(
                replace(arg, values=arg.values[rows], present=arg.present[rows])
                for arg in drawn.args
            ),
            nested=nested,
        )
        track = self._add(name, parent, order, description, slices, rank)
        if drawn.kind is not None and drawn.rows is not None and rank is not None:
            self._remember(rank, drawn.kind, drawn.rows[rows], track)

    def _add(
        self,
        name: str,
        parent: int | None,
        order: int,
        description: str,
        content: Slices | Samples | None,
        rank: int | None,
    ) -> int:
        number = len(self.tracks)
        self.tracks.append(Track(number, parent, name, order, description, content, rank))
        return number

    def reserve(self, rank: int, kind: FlowEnd, count: int) -> None:
        """Make room to remember where the rows of a table are drawn."""
        nowhere = np.full(count, -1, np.int64)
        self._places[rank, kind] = (nowhere, nowhere.copy())

    def _remember(self, rank: int, kind: FlowEnd, rows: Rows, track: int) -> None:
        if (rank, kind) in self._places:
            tracks, slices = self._places[rank, kind]
            tracks[rows] = track
            slices[rows] = np.arange(len(rows))

    def places(self, rank: int, kind: FlowEnd, rows: Int64) -> tuple[Int64, Int64]:
        """The track and slice of rows of a table, -1 where a row is not drawn."""
        if (rank, kind) not in self._places:
            nowhere = np.full(len(rows), -1, np.int64)
            return nowhere, nowhere
        tracks, slices = self._places[rank, kind]
        return tracks[rows], slices[rows]

    def connect(self, track: Int64, slice_: Int64, arrow: Int64) -> None:
        """Give slices the ids of the arrows that touch them."""
        order = np.lexsort((arrow, slice_, track))
        track, slice_, arrow = track[order], slice_[order], arrow[order]
        touched, first = np.unique(track, return_index=True)
        bounds = np.append(first, len(track))
        for number, begin, stop in zip(
            touched.tolist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True
        ):
            content = self.tracks[number].content
            assert isinstance(content, Slices)
            arrows = Arrows(slice_[begin:stop], arrow[begin:stop])
            self.tracks[number] = replace(
                self.tracks[number], content=replace(content, arrows=arrows)
            )
