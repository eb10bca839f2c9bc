"""Writing of drawn ranks into files under temporary names, for every way to keep the limit."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path

from timeline.analysis.ordinary_steps import StepRun
from timeline.analysis.rank_facts import RankFacts
from timeline.columns.chunks import one_by_one
from timeline.encoders.attributes import DRAWN, FORMAT, LANGUAGE, ZERO
from timeline.encoders.drafts import Draft, publish_all, write_draft
from timeline.encoders.formats import Format
from timeline.encoders.piece_maker import EncodingWorkers, PieceMaker
from timeline.encoders.pieces import (
    FIRST_SEQUENCE,
    Compression,
    Piece,
    TrackBatch,
    batch_tracks,
    in_file_order,
    join_pieces,
)
from timeline.errors import LimitError
from timeline.fitting.coarsen_ranks import lowest_floors
from timeline.fitting.drawn_layers import DrawnLayer, count_arrows
from timeline.fitting.limits import Cost, LimitName, Limits
from timeline.language import spoken_language
from timeline.layers import SizeLayer
from timeline.options import ExportOptions
from timeline.printable import valid_text
from timeline.progress import Progress
from timeline.records.tables import Omission
from timeline.tracks.model import Samples, Slices, Timeline, Track
from timeline.tracks.rank_tracks import DrawnRank, RankTracks, with_args
from timeline.tracks.root_rows import Notes, VerdictRow, in_order, with_notes, with_verdict
from timeline.units import format_count, format_number

TIME_BYTES = 8
"""Bytes of a time in a column."""


@dataclass(frozen=True)
class FileNotes:
    """Text in a file about the file: attributes for programs, notes and verdict for people."""

    attributes: tuple[tuple[str, str], ...] = ()
    notes: Notes | None = None
    verdict: VerdictRow | None = None


@dataclass(frozen=True)
class Kept:
    """The part of a selection that a file keeps.

    steps: steps with detail. exact: runs of steps that stay exact when others are merged.
    limited_by: the binding limit, None if nothing had to be left out.
    """

    steps: tuple[int, ...] = ()
    omissions: tuple[Omission, ...] = ()
    layers: tuple[DrawnLayer, ...] = ()
    exact: tuple[StepRun, ...] = ()
    limited_by: LimitName | None = None


Describe = Callable[[Kept], FileNotes]
"""Returns the text in a file about the file, given the part of the selection that it keeps."""


Arrange = Callable[[Sequence[RankFacts], Sequence[RankTracks]], tuple[Track, ...]]
"""Puts the rows of all ranks into one timeline."""


@dataclass(frozen=True)
class Picture:
    """A complete timeline, and its rows of sentences, which come last."""

    timeline: Timeline
    sentences: tuple[Track, ...]


@dataclass(frozen=True)
class Part:
    """One written file under a temporary name, with its number of slices and its cost.

    drawn_ns: the first and the last time drawn, on the clock of the tracks. offset_ns: the offset
    from times of the tracks to times in the file. layer_bytes: size of each layer that was encoded
    separately.
    """

    draft: Draft
    target: Path
    slices: int
    cost: Cost
    drawn_ns: tuple[int, int]
    offset_ns: int
    layer_bytes: Mapping[SizeLayer, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Written:
    """All files of an export, not yet published, and the part they keep.

    exact_share: size of a file with everything, as a multiple of the limits; 0 if unknown.
    """

    parts: tuple[Part, ...]
    facts: tuple[RankFacts, ...]
    kept: Kept
    exact_share: float = 0.0

    def publish(
        self, side_files: Sequence[tuple[Draft, Path]] = (), stale: Sequence[Path] = ()
    ) -> None:
        """Give all files and further drafts (`side_files`) their final names, or none of them.

        stale: existing files to remove after that.
        """
        publish_all([*((part.draft, part.target) for part in self.parts), *side_files], stale)

    def discard(self) -> None:
        """Remove all files."""
        for part in self.parts:
            part.draft.discard()


def selected_steps(ranks: Sequence[RankFacts]) -> tuple[int, ...]:
    """Return all steps of the selection, ascending."""
    return tuple(sorted({step for facts in ranks for step in facts.steps.iteration.tolist()}))


@dataclass(frozen=True)
class Drawing:
    """Tracks ready to be encoded, and the records that drawing them left out."""

    facts: tuple[RankFacts, ...]
    tracks: tuple[Track, ...]
    omissions: tuple[Omission, ...]
    floors: Mapping[SizeLayer, int]
    """By layer, the level at which ranks were merged before."""
    kept_steps: tuple[int, ...] | None = None
    """Steps whose detail is drawn; None for all."""

    @cached_property
    def arrows(self) -> int:
        """Return the number of arrows."""
        return count_arrows(self.tracks)

    @property
    def steps(self) -> tuple[int, ...]:
        """Return the steps with detail drawn."""
        return selected_steps(self.facts) if self.kept_steps is None else self.kept_steps


@dataclass(frozen=True)
class Writer:
    """Puts the tracks of ranks together and writes them."""

    options: ExportOptions
    target: Path
    form: Format
    describe: Describe
    wall_offset_ns: int | None
    progress: Progress
    arrange: Arrange
    limits: Limits
    """Limits that no file may exceed."""
    workers: EncodingWorkers | None = None
    drafts: list[Draft] = field(default_factory=list)
    """All drafts written so far, to be removed after a failure."""

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
        kept: Kept,
        first_ns: int | None = None,
        compression: Compression = Compression.BEST,
        *,
        apart: bool = False,
    ) -> Part:
        """Encode tracks to a draft, whatever its size.

        apart: encode each layer separately, and return the bytes of each.
        """
        self.progress.report("Writing", 0, 0)
        picture = self.picture(tracks, kept, first_ns)
        first_ns = picture.timeline.first_ns
        every = format_count(picture.timeline.slice_count, "slice")
        layer_bytes, layers, done = Counter[SizeLayer](), deque[SizeLayer](), 0

        def batches() -> Iterator[TrackBatch]:
            sequence = FIRST_SEQUENCE
            for layer, own in groupby(
                in_file_order(tracks), lambda track: (track.size_layer or "") if apart else ""
            ):
                for batch in batch_tracks(own, first_ns, sequence, self.form.batch_elements):
                    sequence += len(batch.tracks)
                    layers.append(layer)
                    yield batch

        def pieces(maker: PieceMaker) -> Iterator[Piece]:
            nonlocal done
            yield maker.opening(picture.timeline, picture.sentences, compression)
            for piece, slices in maker.make_all(batches(), compression):
                layer_bytes[layers.popleft()] += len(piece)
                done += slices
                self.progress.report(f"Writing {format_number(done)} of {every}", 0, 0)
                yield piece
            yield maker.closing(tracks, compression)

        last_ns = last_time_ns(tracks)
        self.form.check_span(self.target, last_ns - first_ns)
        with self.maker(tracks, first_ns) as maker:
            draft = write_draft(join_pieces(maker.packing, pieces(maker)), self.target)
        self.drafts.append(draft)
        return Part(
            draft,
            self.target,
            picture.timeline.slice_count,
            replace(self.limits.cost(0, picture.timeline.tracks), size_bytes=draft.size_bytes),
            (first_time_ns(tracks), last_ns),
            -first_ns,
            layer_bytes,
        )

    def maker(self, tracks: Sequence[Track], first_ns: int) -> PieceMaker:
        """Return a maker of pieces for a file with these rows."""
        return PieceMaker(self.form, in_order(tracks), first_ns, self.workers)

    def picture(self, tracks: Sequence[Track], kept: Kept, first_ns: int | None = None) -> Picture:
        """Return the timeline of a file: its tracks, and the text about the file."""
        about = self.describe(kept)
        start_ns = first_time_ns(tracks)
        end_ns = max(start_ns, last_time_ns(tracks))
        noted = with_notes(tracks, about.notes, start_ns, end_ns)
        every = in_order(with_verdict(noted, about.verdict, start_ns, end_ns))
        first = start_ns if first_ns is None else first_ns
        times = ((ZERO, str(first)), (DRAWN, f"{start_ns} {end_ns}"))
        format_of = ((FORMAT, self.form.name), (LANGUAGE, spoken_language()))
        attributes = (*format_of, *times, *about.attributes)
        facts = tuple((key, valid_text(value)) for key, value in attributes)
        timeline = Timeline(every, first, self.wall_offset_ns, facts)
        return Picture(timeline, every[len(tracks) :])

    def exact(self, drawing: Drawing, compression: Compression = Compression.BEST) -> Written:
        """Write everything, whatever its size."""
        kept = Kept(drawing.steps, drawing.omissions)
        part = self.write(drawing.tracks, kept, compression=compression)
        share = self.limits.share(part.cost) if self.limits else 0.0
        return Written((part,), drawing.facts, kept, share)


def first_time_ns(tracks: Sequence[Track]) -> int:
    """Return the earliest time of any slice or sample, 0 if there is none."""
    firsts = (
        int(content.start_ns.min()) if isinstance(content, Slices) else int(content.time_ns[0])
        for content in _contents(tracks)
    )
    return min(firsts, default=0)


def last_time_ns(tracks: Sequence[Track]) -> int:
    """Return the latest time of any slice or sample, 0 if there is none."""
    lasts = (
        int(content.end_ns.max()) if isinstance(content, Slices) else int(content.time_ns[-1])
        for content in _contents(tracks)
    )
    return max(lasts, default=0)


def _contents(tracks: Sequence[Track]) -> Iterator[Slices | Samples]:
    """Yield the contents of tracks that have any; only one column of each may be read."""
    filled = (track.content for track in tracks if track.content)
    return one_by_one(filled, lambda content: TIME_BYTES * len(content))


def too_small_error(limits: Limits, least: Cost) -> LimitError:
    """Return the error for limits below the smallest possible file, which takes `least`."""
    option, number, unit = (
        ("--limit", least.size_bytes, "bytes")
        if limits.binding(least) == "bytes"
        else ("--max-events", least.elements, "events")
    )
    return LimitError(
        f"the limit of {limits.format(least)[0]} cannot hold the summary of this selection; the "
        f"smallest that works is {int(number)} {unit}.",
        do=f"Raise {option}, or take fewer --ranks or --steps.",
    )
