"""The timeline as data: a tree of tracks whose slices and samples are columns."""

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
    """How the values of an arg are to be read."""

    INTEGER = enum.auto()
    NUMBER = enum.auto()
    NAME = enum.auto()
    """Codes of the track's StringPool."""


@dataclass(frozen=True, slots=True)
class Arg(Columnar):
    """One arg of all slices of a track: n values, and which slices have it."""

    name: str
    kind: ArgKind
    values: npt.NDArray[np.int64] | npt.NDArray[np.int32] | npt.NDArray[np.float64]
    present: Bool
    default: bool = True
    """Whether it is drawn unless all or no args are asked for."""
    of_several: bool = False
    """Whether it tells what a merged slice stands for."""


@dataclass(frozen=True, slots=True)
class Arrows(Columnar):
    """Arrow ends on the slices of one track: k pairs (slice, arrow id), ascending by slice."""

    slice: Rows
    arrow: Int64

    def between(self, first: int, stop: int) -> Arrows:
        """The arrows of slices `first` to `stop`, which are numbered from 0 then."""
        begin, end = np.searchsorted(self.slice, [first, stop])
        return Arrows(self.slice[begin:end] - first, self.arrow[begin:end])

    def of(self, rows: Rows) -> Arrows:
        """The arrows of some slices, in any order, which are numbered in that order then."""
        begin = np.searchsorted(self.slice, rows, side="left")
        count = np.searchsorted(self.slice, rows, side="right") - begin
        slices = np.repeat(np.arange(len(rows)), count)
        return Arrows(slices, self.arrow[rows_of_runs(begin, count)])


_NO_ARROWS = Arrows(np.empty(0, np.intp), np.empty(0, np.int64))


def no_arrows() -> Arrows:
    """No arrow at all."""
    return _NO_ARROWS


MERGED = -1
"""Row of an element that stands for several slices."""


@dataclass(frozen=True, slots=True)
class Coarse(Columnar):
    """Slices of one track, some of which stand for several.

    row: (n,) the slice an element is, or MERGED; start_ns, end_ns: (n,); count and busy_ns: (n,)
    how many slices it stands for and their summed length. The names of merged slices are pairs
    (owner, name) with a count and a summed length each, ascending by owner, then name.
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
        """Elements `first` to `stop`, which are numbered from 0 then, as their slices are."""
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
    """What those slices stand for that were merged; None while each is a record."""
    own_category: Category | None = None
    """The category of a row whose slices are not what others of their kind are, such as waits."""

    @property
    def category(self) -> Category:
        """What viewers group them by."""
        return self.own_category or SLICES[self.kind].category

    def __len__(self) -> int:
        return len(self.start_ns)

    def moved(self, move: ClockMove) -> Slices:
        """These slices, moved to another clock."""
        start_ns, end_ns = move.of(self.start_ns), move.of(self.end_ns)
        coarse = self.coarse
        if coarse is not None:
            coarse = replace(coarse, start_ns=start_ns, end_ns=end_ns)
        return replace(self, start_ns=start_ns, end_ns=end_ns, coarse=coarse)

    def take(self, rows: Rows | slice, arrows: Arrows) -> Slices:
        """Some of the slices, each as a record of its own, with their arrows."""
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

    def between(self, first: int, stop: int) -> Slices:
        """Slices `first` to `stop`, and what they stand for where they were merged."""
        made = self.take(slice(first, stop), self.arrows.between(first, stop))
        coarse = self.coarse
        return made if coarse is None else replace(made, coarse=coarse.between(first, stop))

    def with_args(self, wanted: Callable[[Arg], bool]) -> Slices:
        """These slices with no args but the wanted ones."""
        args = tuple(arg for arg in self.args if wanted(arg))
        return self if len(args) == len(self.args) else replace(self, args=args)


@dataclass(frozen=True, slots=True)
class Samples(Columnar):
    """Samples of one counter in order of time: (n,) int64 and (n,) float64."""

    time_ns: Int64
    value: Float64
    unit: str
    left_out: int = 0
    """Samples that were thinned out."""

    def moved(self, move: ClockMove) -> Samples:
        """These samples, moved to another clock."""
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
    def size_layer(self) -> SizeLayer | None:
        """What it has its resolution with; None for a row that only holds others."""
        if isinstance(self.content, Slices):
            return self.content.kind.value
        return COUNTERS if isinstance(self.content, Samples) else None


def element_count(tracks: Iterable[Track]) -> int:
    """All slices and samples of tracks."""
    return sum(len(track.content or ()) for track in tracks)


@dataclass(frozen=True)
class Timeline:
    """A whole timeline: tracks, parents before children, and what is known of its clock.

    attributes are facts about it for people and programs (tool, selection, losses).
    """

    tracks: tuple[Track, ...]
    first_ns: int
    wall_offset_ns: int | None
    """Wall time less the clock of the tracks; None where it is unknown."""
    attributes: tuple[tuple[str, str], ...] = ()

    @property
    def slice_count(self) -> int:
        """All slices of all tracks."""
        return sum(len(track.content) for track in self.tracks if isinstance(track.content, Slices))


ARROW_REASON = "arrows with an end that is merged with others"
"""Why arrows are left out whose slice stands for several."""
