"""Slices, arrows, counters and rows of a loaded trace of either format, by SQL alone."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from simulator.overlap import IDLE
from tests.support.expected_picture import ALL_RANKS, STEPS, Arg, Counter, Shown, rounded
from tests.support.perfetto_sql import TraceProcessor
from timeline.encoders.chrome import OVERVIEW
from timeline.encoders.drawn_values import FORMATTERS
from timeline.layers import Layer, spec_of
from timeline.tracks import root_rows
from timeline.tracks.partition import PARTITION

Place = tuple[int, str, str]
"""Rank, layer and row."""

NOTES = "Notes"
"""The layer of what whoever opens the file should know; nothing of it is in a profile."""
TEXT_ROWS = frozenset(
    root_rows.seen_name(name)
    for name in (root_rows.NOTES, root_rows.WHAT_IS_SLOW, root_rows.WHAT_CHANGED)
)
"""Rows without a parent that say something of all records, and hold none."""
ROWS_APART = TEXT_ROWS | {
    root_rows.seen_name(name) for name in (root_rows.CRITICAL_PATH, root_rows.COLLECTIVES)
}
"""Rows without a parent that hold nothing of a profile."""
OVERLAP_LAYER = spec_of(Layer.OVERLAP).name
PIECE_ARGS = frozenset({"rank", "iteration", "share_of_step"})
"""Args of uses of time; `tests/encoders/test_slice_args.py` proves them."""
_RANK = re.compile(r"Rank (\d+)(?:: .+)?")


LATE = "Late by"
"""The counter that is computed, not recorded."""


@dataclass(frozen=True)
class LoadedTrack:
    """One track of a protobuf trace: its names from the root on, and what orders it."""

    id: int
    parent: int | None
    path: tuple[str, ...]
    order: int
    description: str
    row: int | None
    """Tracks that the UI merges into one row share this number."""

    @property
    def rank(self) -> int:
        """The rank whose group the track lies in."""
        numbers = [match[1] for name in self.path if (match := _RANK.fullmatch(name))]
        return int(numbers[0]) if numbers else ALL_RANKS

    @property
    def place(self) -> Place:
        """Rank, layer and row; a name that repeats the one above it stands for both."""
        if self.path[0] in ROWS_APART or self.is_partition:
            return ALL_RANKS, NOTES, " ".join(self.path)
        if self.path[0] == STEPS:
            is_step = self.path[-1] in (STEPS, "Steps, continued")
            return (ALL_RANKS, "", STEPS) if is_step else (ALL_RANKS, NOTES, self.path[-1])
        layer, *below = [name for name in self.path if not _RANK.fullmatch(name)]
        if len(below) > 1 and below[-1].startswith(below[-2]):
            del below[-2]
        return self.rank, layer.lstrip("0123456789 "), " ".join(below)

    @property
    def is_partition(self) -> bool:
        """Whether it is the row of a rank itself, which parts its time."""
        rows = [name for name in self.path if not _RANK.fullmatch(name)]
        return not rows or rows[0].endswith(PARTITION)


@dataclass(frozen=True)
class LoadedPicture:
    """A trace in the trace processor; zero_ns is the moment that its times count from."""

    processor: TraceProcessor
    is_json: bool
    zero_ns: int = 0

    @cached_property
    def tracks(self) -> dict[int, LoadedTrack]:
        """All tracks of a protobuf trace."""
        found = self.processor.rows(
            "SELECT id, parent_id, name, track_group_id,"
            " extract_arg(source_arg_set_id, 'sibling_order_rank'),"
            " extract_arg(source_arg_set_id, 'description') FROM track"
        )
        names = {track: (name, parent) for track, parent, name, *_ in found}

        def path(track: int) -> tuple[str, ...]:
            name, parent = names[track]
            return (*(() if parent is None else path(parent)), name.strip())

        return {
            track: LoadedTrack(track, parent, path(track), order, description or "", row)
            for track, parent, _, row, order, description in found
        }

    @cached_property
    def places(self) -> dict[int, Place]:
        """Rank, layer and row of each track."""
        if not self.is_json:
            return {track.id: track.place for track in self.tracks.values()}
        found = self.processor.rows(
            "SELECT thread_track.id, process.name, thread.name FROM thread_track"
            " JOIN thread USING (utid) LEFT JOIN process USING (upid)"
        )
        return {track: json_place(process, thread) for track, process, thread in found}

    @cached_property
    def by_id(self) -> dict[int, Shown]:
        """All slices by their id, without notes, and without what is said of the slowest step."""
        args = self._args()
        found = self.processor.rows("SELECT id, track_id, ts, dur, name, arg_set_id FROM slice")
        return {
            slice_id: Shown(
                *self.places[track],
                start + self.zero_ns,
                length,
                name.removesuffix(" (slowest)"),
                tuple(sorted(_of_records(self.places[track], args.get(arg_set, [])))),
            )
            for slice_id, track, start, length, name, arg_set in found
            if self.places[track][1] != NOTES
        }

    def _args(self) -> dict[int | None, list[Arg]]:
        """The exact args of each set; the keys of JSON do not tell what a slice stands for."""
        found: dict[int | None, list[Arg]] = defaultdict(list)
        rows = self.processor.rows(
            "SELECT arg_set_id, key, int_value, real_value, string_value FROM args"
            " WHERE arg_set_id IN (SELECT arg_set_id FROM slice) AND key != 'correlation_id'"
        )
        for arg_set, key, integer, real, string in rows:
            kind, _, name = key.partition(".")
            value = integer if integer is not None else string if real is None else rounded(real)
            found[arg_set].append(Arg(kind, name, value))
        return {arg_set: list(_without_spelled(args)) for arg_set, args in found.items()}

    def arrows(self) -> list[tuple[Shown, Shown]]:
        """The two ends of each arrow, without args, but for those of rows that hold no records.

        Nor those of waits, which are found by comparing ranks.
        """
        found = self.processor.rows("SELECT slice_out, slice_in FROM flow")
        return [
            (self.by_id[source].bare, self.by_id[target].bare)
            for source, target in found
            if all(
                end in self.by_id and self.by_id[end].row != "Waiting" for end in (source, target)
            )
        ]

    def counters(self) -> list[Counter]:
        """All recorded counters; JSON has no units, so there the unit is a part of the name."""
        samples: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for track, time, value in self.processor.rows("SELECT track_id, ts, value FROM counter"):
            samples[track].append((time + self.zero_ns, value))
        return [
            Counter(*label, tuple(sorted(samples[track])))
            for track, label in self._counter_labels().items()
        ]

    def _counter_labels(self) -> dict[int, tuple[int, str, str, str]]:
        if self.is_json:
            rows = self.processor.rows(
                "SELECT t.id, process.name, t.name FROM process_counter_track t"
                " JOIN process USING (upid)"
            )
            return {
                track: (_rank_of(process), "", name, "")
                for track, process, name in rows
                if LATE not in name
            }
        units: dict[int, str | None] = dict(
            self.processor.rows("SELECT id, unit FROM counter_track")
        )
        return {
            track.id: (track.rank, track.path[-2], track.path[-1], units[track.id] or "")
            for track in self.tracks.values()
            if track.id in units and track.path[-1] != LATE
        }


def _of_records(place: Place, args: Iterable[Arg]) -> Iterator[Arg]:
    """Args without those that pieces of time have of where they lie, which no record tells."""
    _, layer, _ = place
    for arg in args:
        if layer != OVERLAP_LAYER or arg.name not in PIECE_ARGS:
            yield arg


def joined_idle(slices: Iterable[Shown]) -> Iterator[Shown]:
    """Slices, of which those of idle time are joined where they touch, whatever their causes."""
    open_idle: Shown | None = None
    idle = list[Shown]()
    for one in slices:
        if one.row == IDLE:
            idle.append(one)
        else:
            yield one
    for one in sorted(idle, key=lambda one: (one.rank, one.start_ns)):
        plain = one._replace(name=IDLE, args=())
        if open_idle is not None and _touch(open_idle, plain):
            length_ns = open_idle.length_ns + plain.length_ns
            open_idle = open_idle._replace(length_ns=length_ns)
            continue
        if open_idle is not None:
            yield open_idle
        open_idle = plain
    if open_idle is not None:
        yield open_idle


def _touch(one: Shown, other: Shown) -> bool:
    return one.rank == other.rank and one.start_ns + one.length_ns == other.start_ns


def json_place(process: str | None, thread: str) -> Place:
    """Rank, layer and row of a thread of a JSON trace."""
    if process == OVERVIEW:
        is_step = thread in (STEPS, f"{STEPS}: Steps, continued")
        return (ALL_RANKS, "", STEPS) if is_step else (ALL_RANKS, NOTES, thread)
    rank = _rank_of(process or "")
    layer, _, row = thread.partition(": ")
    if process and not _RANK.fullmatch(process):  # of one layer
        layer, row = process.partition(": ")[0].lstrip("0123456789 "), thread
    return rank, layer, row


def _rank_of(process: str) -> int:
    (match,) = re.findall(r"\bRank (\d+)", process)
    return int(match)


def _without_spelled(args: Sequence[Arg]) -> Iterator[Arg]:
    """The args but those that spell another one for reading, `waited` of `waited_ns`."""
    names = {arg.name for arg in args}
    return (
        arg for arg in args if names.isdisjoint({f"{arg.name}{unit}" for unit, _ in FORMATTERS})
    )
