"""Writing of drawn ranks into files under temporary names, whatever the way to keep the limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from timeline.analysis.rank_facts import RankFacts
from timeline.columns.chunks import one_by_one
from timeline.encoders.compression import BEST_LEVEL, TrackSizes
from timeline.encoders.drafts import Draft, publish_all, write_draft
from timeline.encoders.encoding_workers import EncodingWorkers
from timeline.encoders.formats import Format
from timeline.errors import LimitError
from timeline.fitting.coarsen_ranks import lowest_floors
from timeline.fitting.plan import DrawnLayer
from timeline.fitting.size_model import bytes_by_layer
from timeline.layers import SizeLayer
from timeline.options import ExportOptions
from timeline.progress import Progress
from timeline.records.tables import Omission
from timeline.tracks.model import Samples, Slices, Timeline, Track
from timeline.tracks.notes import Notes, with_notes
from timeline.tracks.rank_tracks import DrawnRank, RankTracks, with_args
from timeline.tracks.root_rows import in_order
from timeline.tracks.verdict_row import VerdictRow, with_verdict
from timeline.units import spell_bytes, spell_count, spell_number

__all__ = [
    "MOST_WRITES",
    "TARGET_FILL",
    "Arrange",
    "Describe",
    "Drawing",
    "FileNotes",
    "Part",
    "Writer",
    "Written",
    "first_moment_ns",
    "last_moment_ns",
    "selected_steps",
    "too_small_error",
]

TARGET_FILL = 0.93
"""How much of the limit is aimed at: estimates err by a few percent."""
MOST_WRITES = 4
"""How often a file is written at the most."""


@dataclass(frozen=True)
class FileNotes:
    """What a file says of itself: facts for programs; for people notes and what is slow, if any."""

    attributes: tuple[tuple[str, str], ...] = ()
    notes: Notes | None = None
    verdict: VerdictRow | None = None


Describe = Callable[[Sequence[Omission], Sequence[DrawnLayer], Sequence[int]], FileNotes]
"""What a file says of itself, given what is left out, merged, and whose detail is in."""


Arrange = Callable[[Sequence[RankFacts], Sequence[RankTracks]], tuple[Track, ...]]
"""Puts the rows of all ranks into one timeline."""


@dataclass(frozen=True)
class Part:
    """One written file under a temporary name: its slices, and the bytes of each layer.

    drawn_ns: the first and the last moment drawn, on the clock of the tracks; offset_ns: what is
    added to a time of the tracks in the file.
    """

    draft: Draft
    target: Path
    slices: int
    layer_bytes: Mapping[SizeLayer, float]
    drawn_ns: tuple[int, int]
    offset_ns: int


@dataclass(frozen=True)
class Written:
    """All files of an export, not yet published, and what they cost."""

    parts: tuple[Part, ...]
    facts: tuple[RankFacts, ...]
    kept_steps: tuple[int, ...]
    omissions: tuple[Omission, ...] = ()
    drawn_layers: tuple[DrawnLayer, ...] = ()
    exact_bytes: float = 0.0

    def publish(
        self, beside: Sequence[tuple[Draft, Path]] = (), stale: Sequence[Path] = ()
    ) -> None:
        """Give all files, and those beside them, their names; if one cannot, none has its own.

        stale: files that are removed then.
        """
        publish_all([*((part.draft, part.target) for part in self.parts), *beside], stale)

    def discard(self) -> None:
        """Remove all files."""
        for part in self.parts:
            part.draft.discard()


def selected_steps(ranks: Sequence[RankFacts]) -> tuple[int, ...]:
    """All steps of the selection, ascending."""
    return tuple(sorted({step for facts in ranks for step in facts.steps.iteration.tolist()}))


@dataclass(frozen=True)
class Drawing:
    """Tracks that are ready to be encoded, and what drawing them left out."""

    facts: tuple[RankFacts, ...]
    tracks: tuple[Track, ...]
    omissions: tuple[Omission, ...]
    floors: Mapping[SizeLayer, int]
    """At which power layers were merged before."""

    @property
    def steps(self) -> tuple[int, ...]:
        """All steps of the selection."""
        return selected_steps(self.facts)


@dataclass(frozen=True)
class Writer:
    """Puts the tracks of ranks together and writes them, again and again until they fit."""

    options: ExportOptions
    target: Path
    form: Format
    describe: Describe
    wall_offset_ns: int | None
    progress: Progress
    arrange: Arrange
    workers: EncodingWorkers | None = None
    drafts: list[Draft] = field(default_factory=list)
    """All that were written, so that none outlives a failure."""

    @property
    def limit_bytes(self) -> int:
        """The size that no file may exceed, 0 for any."""
        return self.options.limit_bytes

    def draw(self, ranks: Sequence[DrawnRank]) -> Drawing:
        """Put the tracks of all ranks into one timeline."""
        self.progress.report("Drawing", 0, 0)
        facts = tuple(rank.facts for rank in ranks)
        rows = [rank.tracks for rank in ranks]
        left_out = tuple(rank.missing for rank in facts if rank.missing is not None)
        tracks = self.arrange(facts, rows)
        return Drawing(
            facts,
            with_args(tracks, self.options.args),
            (*(omission for rank_tracks in rows for omission in rank_tracks.omissions), *left_out),
            lowest_floors(rows),
        )

    def write(
        self,
        tracks: Sequence[Track],
        omissions: Sequence[Omission],
        drawn_layers: Sequence[DrawnLayer],
        steps: Sequence[int],
        first_ns: int | None = None,
        level: int = BEST_LEVEL,
    ) -> Part:
        """Encode tracks to a draft."""
        again = f" again, to fit the limit ({len(self.drafts) + 1})" if self.drafts else ""
        self.progress.report(f"Writing{again}", 0, 0)
        made = self._timeline(tracks, self.describe(omissions, drawn_layers, steps), first_ns)
        every = spell_count(made.slice_count, "slice")

        def tell(slices: int) -> None:
            self.progress.report(f"Writing {spell_number(slices)} of {every}{again}", 0, 0)

        self.form.check_span(self.target, last_moment_ns(tracks) - made.first_ns)
        sizes = TrackSizes(tell)
        draft = write_draft(
            self.form.encode(made, sizes, level=level, workers=self.workers), self.target
        )
        self.drafts.append(draft)
        sizes.scale_to(draft.size_bytes)
        return Part(
            draft,
            self.target,
            made.slice_count,
            bytes_by_layer(tracks, sizes.by_track),
            (first_moment_ns(tracks), last_moment_ns(tracks)),
            self.form.offset_ns(made.first_ns),
        )

    def measure(
        self,
        tracks: Sequence[Track],
        omissions: Sequence[Omission] = (),
        steps: Sequence[int] = (),
        first_ns: int | None = None,
    ) -> int:
        """The bytes that tracks take in a file, without writing it."""
        about = self.describe(omissions, (), steps)
        return self.form.size_of(self._timeline(tracks, about, first_ns))

    def _timeline(
        self, tracks: Sequence[Track], about: FileNotes, first_ns: int | None
    ) -> Timeline:
        start_ns = first_moment_ns(tracks)
        end_ns = max(start_ns, last_moment_ns(tracks))
        noted = with_notes(tracks, about.notes, start_ns, end_ns)
        every = with_verdict(noted, about.verdict, start_ns, end_ns)
        first = start_ns if first_ns is None else first_ns
        return Timeline(in_order(every), first, self.wall_offset_ns, about.attributes)

    def exact(self, drawing: Drawing, steps: tuple[int, ...]) -> Written:
        """Write everything, whatever its size."""
        part = self.write(drawing.tracks, drawing.omissions, (), steps)
        return Written(
            (part,), drawing.facts, steps, drawing.omissions, exact_bytes=part.draft.size_bytes
        )


def first_moment_ns(tracks: Sequence[Track]) -> int:
    """The first moment of any slice or sample, 0 where there is none."""
    firsts = []
    for track in one_by_one(tracks):
        if isinstance(track.content, Slices) and len(track.content):
            firsts.append(int(track.content.start_ns.min()))
        elif isinstance(track.content, Samples) and len(track.content):
            firsts.append(int(track.content.time_ns[0]))
    return min(firsts, default=0)


def last_moment_ns(tracks: Sequence[Track]) -> int:
    """The last moment of any slice or sample, 0 where there is none."""
    lasts = []
    for track in one_by_one(tracks):
        if isinstance(track.content, Slices) and len(track.content):
            lasts.append(int(track.content.end_ns.max()))
        elif isinstance(track.content, Samples) and len(track.content):
            lasts.append(int(track.content.time_ns[-1]))
    return max(lasts, default=0)


def too_small_error(limit: int, least: int) -> LimitError:
    """The error of a limit below the smallest file there is, of `least` bytes."""
    return LimitError(
        f"the limit of {spell_bytes(limit)} cannot hold the summary of this selection; the "
        f"smallest that works is {least} bytes.",
        do="Raise --limit, or take fewer --ranks or --steps.",
    )
