"""The data model of a timeline: a tree of tracks whose slices and samples are columns."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool, Codes, Columnar, Float64, Int64, Rows, rows_of_runs
from timeline.columns.strings import StringPool
from timeline.layers import COUNTERS, SLICES, Category, SizeLayer, SliceKind
from timeline.records.clock import ClockMove


class ArgKind(enum.Enum):
    """Type of the values of an arg."""

    INTEGER = enum.auto()
    NUMBER = enum.auto()
    NAME = enum.auto()
    """Codes of the track's StringPool."""


@dataclass(frozen=True, slots=True)
class Arg(Columnar):
    """One arg of all slices of a track: n values, and a mask of the slices that have it."""

    name: str
    kind: ArgKind
    values: npt.NDArray[np.int64] | npt.NDArray[np.int32] | npt.NDArray[np.float64]
    present: Bool
    default: bool = True
    """True if it is drawn unless the options select no args."""
    of_several: bool = False
    """True if it describes a merged slice."""


@dataclass(frozen=True, slots=True)
class Arrows(Columnar):
    """Arrow ends on the slices of one track: k pairs (slice, arrow id), ascending by slice."""

    slice: Rows
    arrow: Int64

    def between(self, first: int, stop: int) -> Arrows:
        """Return the arrows of slices `first` to `stop`, renumbered from 0."""
        begin, end = np.searchsorted(self.slice, [first, stop])
        return Arrows(self.slice[begin:end] - first, self.arrow[begin:end])

    def of(self, rows: Rows) -> Arrows:
        """Return the arrows of slices in any order, renumbered in that order."""
        begin = np.searchsorted(self.slice, rows, side="left")
        count = np.searchsorted(self.slice, rows, side="right") - begin
        slices = np.repeat(np.arange(len(rows)), count)
        return Arrows(slices, self.arrow[rows_of_runs(begin, count)])


_NO_ARROWS = Arrows(np.empty(0, np.intp), np.empty(0, np.int64))


def no_arrows() -> Arrows:
    """Return the shared empty Arrows."""
    return _NO_ARROWS


MERGED = -1
"""Value of `Coarse.row` for elements that are merged from several slices."""


@dataclass(frozen=True, slots=True)
class Coarse(Columnar):
    """Elements of one track, each a single slice or merged from several.

    row: (n,) index of the element's slice, or MERGED. start_ns, end_ns: (n,). count, busy_ns: (n,)
    number and summed length of its slices. owner, name, name_count, name_busy_ns: (k,) the names in
    merged elements with the number and summed length of their slices, ascending by owner (the index
    of the element), then name.
    """

    start_ns: Int64
    end_ns: Int64
    row: Int64
    count: Int64
    busy_ns: Int64
    owner: Int64
    name: Codes
    name_count: Int64
    name_busy_ns: Int64

    def __len__(self) -> int:
        return len(self.start_ns)

    def between(self, first: int, stop: int) -> Coarse:
        """Return elements `first` to `stop`, renumbered from 0 together with their slices."""
        begin, end = np.searchsorted(self.owner, [first, stop])
        row = self.row[first:stop]
        return Coarse(
            self.start_ns[first:stop],
            self.end_ns[first:stop],
            np.where(row == MERGED, MERGED, row - first),
            self.count[first:stop],
            self.busy_ns[first:stop],
            self.owner[begin:end] - first,
            self.name[begin:end],
            self.name_count[begin:end],
            self.name_busy_ns[begin:end],
        )


@dataclass(frozen=True, slots=True)
class Slices(Columnar):
    """Slices of one track, which never cross: any two are disjoint or nested.

    start_ns, end_ns: (n,) int64; name: (n,) codes of `strings`. Flat slices are disjoint and in
    order of start; nested ones are in any order and drawn as a stack.
    """

    start_ns: Int64
    end_ns: Int64
    name: npt.NDArray[np.int32]
    strings: StringPool
    kind: SliceKind
    args: tuple[Arg, ...] = ()
    arrows: Arrows = field(default_factory=no_arrows)
    nested: bool = False
    coarse: Coarse | None = None
    """The content of merged slices; None if every slice is one record."""
    own_category: Category | None = None
    """Category that differs from that of the kind, as for waits; None otherwise."""

    @property
    def category(self) -> Category:
        """Return the category by which viewers group the slices."""
        return self.own_category or SLICES[self.kind].category

    def __len__(self) -> int:
        return len(self.start_ns)

    def moved(self, move: ClockMove) -> Slices:
        """Return the slices with their times moved to another clock."""
        start_ns, end_ns = move.of(self.start_ns), move.of(self.end_ns)
        coarse = self.coarse
        if coarse is not None:
            coarse = replace(coarse, start_ns=start_ns, end_ns=end_ns)
        return replace(self, start_ns=start_ns, end_ns=end_ns, coarse=coarse)

    def take(self, rows: Rows | slice, arrows: Arrows) -> Slices:
        """Return the slices at `rows`, without content of merged ones, and with these arrows."""
        return replace(
            self,
            start_ns=self.start_ns[rows],
            end_ns=self.end_ns[rows],
            name=self.name[rows],
            args=tuple(
                replace(arg, values=arg.values[rows], present=arg.present[rows])
                for arg in self.args
            ),
            arrows=arrows,
            coarse=None,
        )

    def connected(self, slice_: Rows | Int64, arrow: Int64) -> Slices:
        """Return the slices with further arrow ends (k,), given in any order."""
        slices = np.concatenate([self.arrows.slice, slice_])
        arrows = np.concatenate([self.arrows.arrow, arrow])
        order = np.lexsort((arrows, slices))
        return replace(self, arrows=Arrows(slices[order], arrows[order]))

    def between(self, first: int, stop: int) -> Slices:
        """Return slices `first` to `stop`, with the content of merged ones."""
        part = self.take(slice(first, stop), self.arrows.between(first, stop))
        coarse = self.coarse
        return part if coarse is None else replace(part, coarse=coarse.between(first, stop))

    def with_args(self, wanted: Callable[[Arg], bool]) -> Slices:
        """Return the slices with only the wanted args."""
        args = tuple(arg for arg in self.args if wanted(arg))
        return self if len(args) == len(self.args) else replace(self, args=args)


@dataclass(frozen=True, slots=True)
class Samples(Columnar):
    """Samples of one counter in order of time: (n,) int64 and (n,) float64."""

    time_ns: Int64
    value: Float64
    unit: str
    left_out: int = 0
    """Number of samples that were thinned out."""

    def moved(self, move: ClockMove) -> Samples:
        """Return the samples with their times moved to another clock."""
        return replace(self, time_ns=move.of(self.time_ns))

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass(frozen=True, slots=True)
class Track:
    """One row of the timeline, or a group of rows.

    Tracks with the same parent and name are lanes of one row. Siblings are drawn by `order`.
    """

    id: int
    parent: int | None
    name: str
    order: int
    description: str = ""
    content: Slices | Samples | None = None
    rank: int | None = None

    @property
    def last_arrow(self) -> int:
        """Return the greatest id of arrows on the track, 0 without arrows."""
        content = self.content
        return int(content.arrows.arrow.max(initial=0)) if isinstance(content, Slices) else 0

    @property
    def size_layer(self) -> SizeLayer | None:
        """Return the layer that it shares a resolution with; None if it only holds other rows."""
        if isinstance(self.content, Slices):
            return self.content.kind.value
        return COUNTERS if isinstance(self.content, Samples) else None


def element_count(tracks: Iterable[Track]) -> int:
    """Return the number of slices and samples of all tracks."""
    return sum(len(track.content or ()) for track in tracks)


@dataclass(frozen=True)
class Timeline:
    """A whole timeline: its tracks, parents before children, and its clock.

    attributes: facts about the timeline by key, such as tool, selection and losses.
    """

    tracks: tuple[Track, ...]
    first_ns: int
    wall_offset_ns: int | None
    """Wall time minus the clock of the tracks; None if unknown."""
    attributes: tuple[tuple[str, str], ...] = ()

    @property
    def slice_count(self) -> int:
        """Return the number of slices on all tracks."""
        return sum(len(track.content) for track in self.tracks if isinstance(track.content, Slices))


MERGED_END_REASON = "arrows with an end that is merged with others"
"""Reason for leaving out arrows that touch a merged slice."""
