"""The pipeline: a path and what is wanted of it become one trace file and a report."""

from __future__ import annotations

import enum
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import orjson

from timeline.analysis.clocks import JoinedClock, join_clocks
from timeline.analysis.cut import Cut, cut, cut_window, device_span_ns
from timeline.analysis.membership import NO_STEP
from timeline.analysis.overlap import Overlap, join_overlaps, overlap_of
from timeline.analysis.steps import StepOperators, with_steps
from timeline.encoders.chrome import encode_chrome
from timeline.encoders.perfetto import encode_perfetto
from timeline.encoders.sink import Draft, write_draft
from timeline.errors import LimitError, OutputError, SelectionError, spell_ids
from timeline.progress import Progress, Silent
from timeline.records.tables import NO_GRAPH, Omission, Records
from timeline.records.valid import valid
from timeline.report import ExportReport, OutputFile, OverlapRow, RankReport
from timeline.selection import DETAIL_LAYERS, SUMMARY_LAYERS, Kind, Layer, Selection
from timeline.sources.base import Source
from timeline.sources.discovery import discover
from timeline.tracks.fit import Trimming, omissions_of, row_count, trimmings
from timeline.tracks.model import Arg, Slices, Timeline
from timeline.tracks.picture import Painted, paint
from timeline.tracks.rank_picture import PictureOptions, RankPicture
from timeline.units import spell_bytes
from timeline.version import __version__

__all__ = ["Args", "ExportOptions", "Fit", "export", "read_ranks"]

DEFAULT_LIMIT_BYTES = 20 * 1024 * 1024
AIM = 0.93
"""Share of the limit that a trimmed detail is aimed at: estimates err by a few percent."""
MOST_TRIES = 12
LIMIT_REASON = "the size limit left no room for them"


class Fit(enum.Enum):
    """What happens when the whole selection is larger than the limit."""

    STEPS = "steps"
    ERROR = "error"


class Args(enum.Enum):
    """Which args slices carry."""

    DEFAULT = "default"
    ALL = "all"
    NONE = "none"


@dataclass(frozen=True)
class ExportOptions:
    """How an export is done; what is exported is a Selection.

    limit_bytes: size of the written file that is never exceeded; 0 is no limit.
    by_layer: rows by layer, then rank; None is by layer for a summary and by rank for a detail.
    """

    kind: Kind = Kind.SUMMARY
    output: Path | None = None
    limit_bytes: int = DEFAULT_LIMIT_BYTES
    fit: Fit = Fit.STEPS
    args: Args = Args.DEFAULT
    by_layer: bool | None = None
    merge_graphs: bool = True
    operators: StepOperators = field(default_factory=StepOperators)
    assigned_ranks: Mapping[str, int] = field(default_factory=dict)
    force: bool = False
    strict: bool = False


@dataclass(frozen=True)
class _Format:
    """A way to encode: its name, the encoder, and whether the whole file is gzipped."""

    name: str
    encode: Callable[[Timeline], Iterator[bytes]]
    gzipped: bool


_FORMATS: dict[str, _Format] = {
    ".pftrace": _Format("pftrace", encode_perfetto, False),
    ".pftrace.gz": _Format(
        "pftrace", lambda timeline: encode_perfetto(timeline, compressed=False), True
    ),
    ".json": _Format("json", encode_chrome, False),
    ".json.gz": _Format("json", encode_chrome, True),
}


def layers_for(kind: Kind, asked: frozenset[Layer] | None) -> frozenset[Layer]:
    """The layers that are drawn: those asked for, else those of the kind."""
    if asked is not None:
        return asked
    return SUMMARY_LAYERS if kind is Kind.SUMMARY else DETAIL_LAYERS


def export(
    path: Path, selection: Selection, options: ExportOptions, progress: Progress | None = None
) -> ExportReport:
    """Export a profile.

    Args:
        path: a capture, a file of one, or any directory around one.
        selection: which part; ids that are not there are errors.
        options: how.
        progress: is told how far it is.

    Raises:
        TimelineError: nothing was written; the message says what to do.
    """
    progress = progress or Silent()
    try:
        return _export(path, selection, options, progress)
    finally:
        progress.finish()


def _export(
    path: Path, selection: Selection, options: ExportOptions, progress: Progress
) -> ExportReport:
    found = discover(path, options.assigned_ranks)
    sources = choose_ranks(found.sources, selection, path)
    target = _target(options, selection, sources)
    form = _format_of(target)
    _check_target(target, force=options.force)
    joined = read_ranks(sources, selection, options.operators, progress)
    check_selection(joined.records, selection, path)
    pictures = _pictures(joined.records, selection)
    writer = _Writer(target, form, selection, options, joined, sources, progress)
    written = writer.fit(pictures)
    warnings = (
        *found.notes,
        *joined.warnings,
        *(warning for own in joined.records for warning in own.warnings),
        *_empty_warnings(pictures, selection),
    )
    report = _report(
        written,
        pictures,
        joined,
        sources,
        options,
        warnings,
        _suggestion(path, selection, options, written),
    )
    losses = [omission for omission in report.omissions if omission.loss]
    if options.strict and losses:
        written.draft.discard()
        rows = sum(omission.rows for omission in losses)
        raise LimitError(f"--strict: {rows} records would be left out: {losses[0].reason}.")
    written.draft.publish()
    return report


def choose_ranks(sources: Sequence[Source], selection: Selection, path: Path) -> tuple[Source, ...]:
    """The sources of the selected ranks.

    Raises:
        SelectionError: a rank is not there.
    """
    known = [source.identity.rank for source in sources]
    if selection.ranks is None:
        return tuple(sources)
    _check_known("rank", selection.ranks, known, path)
    return tuple(source for source in sources if source.identity.rank in selection.ranks)


def _check_known(noun: str, wanted: frozenset[int], known: Iterable[int], path: Path) -> None:
    held = set(known)
    absent = wanted - held
    if absent:
        are = "is" if len(absent) == 1 else "are"
        plural = noun if len(absent) == 1 else f"{noun}s"
        raise SelectionError(
            f"{plural} {spell_ids(absent)} {are} not in {path}: found {noun}s {spell_ids(held)}. "
            "Use --list to see them."
        )


def read_ranks(
    sources: Sequence[Source], selection: Selection, operators: StepOperators, progress: Progress
) -> JoinedClock:
    """Read all ranks, find their steps, and put them on one clock."""
    read = []
    for number, source in enumerate(sources):
        progress.report(f"Reading rank {source.identity.rank}", number, len(sources))
        records = valid(source.read(selection, selection.layers))
        read.append((with_steps(records, operators), source.clock))
    return join_clocks(read)


def check_selection(ranks: Sequence[Records], selection: Selection, path: Path) -> None:
    """Make sure that every graph and step that was asked for is in some rank.

    Raises:
        SelectionError: one is not.
    """
    if selection.graphs is not None:
        known = {graph for records in ranks for graph in graphs_of(records)}
        asked_none = selection.graphs & {NO_GRAPH}
        _check_known("graph", selection.graphs, (known - {NO_GRAPH}) | (known & asked_none), path)
    if selection.steps is not None:
        steps = {step for records in ranks for step in records.steps.iteration.tolist()}
        _check_known("step", selection.steps, steps, path)


def graphs_of(records: Records) -> set[int]:
    """The graphs that a rank has tasks, ops or steps of."""
    tables = (records.tasks.graph, records.ops.graph, records.steps.graph)
    return {graph for column in tables for graph in np.unique(column).tolist()}


def _pictures(ranks: Sequence[Records], selection: Selection) -> tuple[RankPicture, ...]:
    cuts = [cut(records, selection) for records in ranks]
    if selection.window is not None:
        spans = [span for part in cuts if (span := device_span_ns(part.records))]
        if not spans:
            raise SelectionError("--window: the selection holds no device records to count from.")
        bounds = selection.window.bounds_ns(
            min(span[0] for span in spans), max(span[1] for span in spans)
        )
        cuts = [cut_window(part, *bounds) for part in cuts]
    return tuple(_picture(part, selection) for part in cuts)


def _picture(part: Cut, selection: Selection) -> RankPicture:
    records, membership = part.records, part.membership
    by_step = tuple(_step_overlap(part, step) for step in range(len(records.steps)))
    if selection.steps is None:
        whole = overlap_of(records.tasks, records.ops)
    else:
        run_of_task = np.where(
            membership.tasks == NO_STEP, NO_STEP, _at(part.run, membership.tasks)
        )
        run_of_op = np.where(membership.ops == NO_STEP, NO_STEP, _at(part.run, membership.ops))
        whole = join_overlaps(
            [
                overlap_of(
                    records.tasks,
                    records.ops,
                    task_rows=run_of_task == run,
                    op_rows=run_of_op == run,
                )
                for run in np.unique(part.run).tolist()
            ]
        )
    return RankPicture(part, whole, by_step, records)


def _at(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return values[rows] if len(values) else np.full(len(rows), NO_STEP)


def _step_overlap(part: Cut, step: int) -> Overlap | None:
    tasks, ops = part.membership.tasks == step, part.membership.ops == step
    if not tasks.any() and not ops.any():
        return None
    return overlap_of(part.records.tasks, part.records.ops, task_rows=tasks, op_rows=ops)


def _target(options: ExportOptions, selection: Selection, sources: Sequence[Source]) -> Path:
    if options.output is not None:
        return options.output
    ranks = [source.identity.rank for source in sources]
    name = f"timeline-{options.kind.value}-r{_short(ranks)}"
    if selection.graphs is not None:
        name += f"-g{_short(selection.graphs)}"
    if selection.steps is not None:
        name += f"-s{_short(selection.steps)}"
    return Path(f"{name}.pftrace")


def _short(ids: Iterable[int]) -> str:
    return spell_ids(ids, most=1_000_000, shortest_run=2)[:60]


def _format_of(target: Path) -> _Format:
    for suffix in sorted(_FORMATS, key=len, reverse=True):
        if target.name.endswith(suffix):
            return _FORMATS[suffix]
    raise OutputError(f"{target}: unknown suffix; use one of {', '.join(_FORMATS)}.")


def _check_target(target: Path, *, force: bool) -> None:
    if target.is_dir():
        raise OutputError(f"{target} is a directory; name a file.")
    if target.exists() and not force:
        raise OutputError(f"{target} exists; pass --force to replace it.")
    if not target.parent.is_dir():
        raise OutputError(f"{target.parent} does not exist; make it first.")


@dataclass(frozen=True)
class _Written:
    """A finished draft and what is in it."""

    draft: Draft
    target: Path
    form: _Format
    timeline: Timeline
    painted: Painted
    pictures: tuple[RankPicture, ...]
    kept_steps: tuple[int, ...]


@dataclass(frozen=True)
class _Writer:
    """Paints, encodes and writes pictures until the file fits."""

    target: Path
    form: _Format
    selection: Selection
    options: ExportOptions
    joined: JoinedClock
    sources: Sequence[Source]
    progress: Progress

    def fit(self, pictures: tuple[RankPicture, ...]) -> _Written:
        """Write the whole selection, or as many leading steps of its detail as fit.

        Raises:
            LimitError: it does not fit and nothing may be left out, or not even the summary fits.
        """
        limit = self.options.limit_bytes
        steps = _steps_with_records(pictures)
        whole = self.write(pictures, steps)
        if not limit or whole.draft.size_bytes <= limit:
            return whole
        size = whole.draft.size_bytes
        whole.draft.discard()
        if self.options.fit is Fit.ERROR:
            raise LimitError(
                f"the selection needs {spell_bytes(size)} and the limit is {spell_bytes(limit)}; "
                "take fewer --ranks or --steps, or leave out --fit error."
            )
        return self._trimmed(pictures, size, limit)

    def _trimmed(self, pictures: tuple[RankPicture, ...], size: int, limit: int) -> _Written:
        """Search the largest number of leading pieces that fits, by estimate, then by trial."""
        trimming = trimmings(pictures)
        base = self.write(trimming.keep(pictures, 0), ())
        least = base.draft.size_bytes
        if least > limit:
            base.draft.discard()
            raise LimitError(
                f"the limit of {spell_bytes(limit)} cannot hold the summary of this selection; "
                f"the smallest that works is {least} bytes. Take fewer --ranks or --steps."
            )
        best, low, high = base, 0, trimming.pieces
        for _ in range(MOST_TRIES):
            kept = _estimate(trimming, low, high, best.draft.size_bytes, size, limit)
            if kept is None:
                break
            tried = self.write(trimming.keep(pictures, kept), trimming.steps[:kept])
            if tried.draft.size_bytes <= limit:
                best.draft.discard()
                best, low = tried, kept
            else:
                high, size = kept, tried.draft.size_bytes
                tried.draft.discard()
        return best

    def write(self, pictures: tuple[RankPicture, ...], steps: tuple[int, ...]) -> _Written:
        """Paint, encode and write to a draft."""
        by_layer = self.options.by_layer
        if by_layer is None:
            by_layer = self.options.kind is Kind.SUMMARY
        painted = paint(
            pictures, PictureOptions(self.selection.layers, by_layer, self.options.merge_graphs)
        )
        omissions = (*painted.omissions, *omissions_of(pictures, LIMIT_REASON))
        made = Timeline(
            tuple(
                replace(track, content=track.content.with_args(self._wanted))
                if isinstance(track.content, Slices)
                else track
                for track in painted.tracks
            ),
            _first_ns(painted),
            self.joined.wall_offset_ns,
            self._attributes(steps, omissions),
        )
        self.progress.report("Writing", 0, 0)
        draft = write_draft(self.form.encode(made), self.target, gzipped=self.form.gzipped)
        return _Written(
            draft,
            self.target,
            self.form,
            made,
            replace(painted, omissions=omissions),
            pictures,
            steps,
        )

    def _wanted(self, arg: Arg) -> bool:
        if self.options.args is Args.DEFAULT:
            return arg.default
        return self.options.args is Args.ALL

    def _attributes(
        self, steps: tuple[int, ...], omissions: Sequence[Omission]
    ) -> tuple[tuple[str, str], ...]:
        """Facts about the picture that travel in the file."""
        selection = self.selection
        left_out = [
            {"reason": own.reason, "rank": own.rank, "rows": own.rows, "steps": list(own.steps)}
            for own in (
                *(own for records in self.joined.records for own in records.omissions),
                *omissions,
            )
        ]
        return (
            ("io.tlexport.version", __version__),
            ("io.tlexport.kind", self.options.kind.value),
            ("io.tlexport.ranks", spell_ids(source.identity.rank for source in self.sources)),
            (
                "io.tlexport.graphs",
                "all" if selection.graphs is None else spell_ids(selection.graphs),
            ),
            ("io.tlexport.steps", "all" if selection.steps is None else spell_ids(selection.steps)),
            ("io.tlexport.detail_steps", spell_ids(steps)),
            (
                "io.tlexport.sources",
                "; ".join(_provenance(source) for source in self.sources),
            ),
            ("io.tlexport.clock", self.joined.method),
            ("io.tlexport.left_out", orjson.dumps(left_out).decode()),
        )


def _provenance(source: Source) -> str:
    identity = source.identity
    return f"rank {identity.rank}: {source.layout} of {identity.directory.name}"


def _estimate(
    trimming: Trimming, low: int, high: int, low_bytes: int, high_bytes: int, limit: int
) -> int | None:
    """How many pieces to try between `low`, which fits, and `high`, which does not."""
    if high - low <= 1:
        return None
    between = np.cumsum(np.maximum(trimming.weights[low:high], 1))
    room = (limit * AIM - low_bytes) / max(1, high_bytes - low_bytes)
    if room <= 0:
        return None
    kept = low + int(np.searchsorted(between, between[-1] * room, side="right"))
    return min(max(kept, low + 1), high - 1)


def _first_ns(painted: Painted) -> int:
    firsts = []
    for track in painted.tracks:
        if isinstance(track.content, Slices) and len(track.content):
            firsts.append(int(track.content.start_ns.min()))
        elif track.content is not None and len(track.content):
            firsts.append(int(track.content.time_ns[0]))  # type: ignore[union-attr]
    return min(firsts, default=0)


def _steps_with_records(pictures: Sequence[RankPicture]) -> tuple[int, ...]:
    return tuple(
        sorted(
            {int(step) for picture in pictures for step in picture.records.steps.iteration.tolist()}
        )
    )


def _empty_warnings(pictures: Sequence[RankPicture], selection: Selection) -> Iterator[str]:
    """Ranks, and steps with a marker, that hold no device record."""
    for picture in pictures:
        rank = picture.records.rank
        if not row_count(picture.records) and not len(picture.records.steps):
            chosen = selection.graphs is not None or selection.steps is not None
            yield f"rank {rank}: holds nothing" + (" of the selection." if chosen else ".")
            continue
        empty = [
            int(step)
            for step, overlap in zip(
                picture.records.steps.iteration.tolist(), picture.step_overlaps, strict=True
            )
            if overlap is None
        ]
        if empty:
            yield (
                f"rank {rank}: steps {spell_ids(empty)} are marked but have no device tasks "
                "in the profile."
            )


def _report(
    written: _Written,
    pictures: Sequence[RankPicture],
    joined: JoinedClock,
    sources: Sequence[Source],
    options: ExportOptions,
    warnings: tuple[str, ...],
    suggestion: str,
) -> ExportReport:
    steps = _steps_with_records(pictures)
    output = OutputFile(
        written.target,
        written.form.name,
        written.draft.size_bytes,
        written.timeline.slice_count,
        written.kept_steps,
    )
    return ExportReport(
        kind=options.kind.value,
        outputs=(output,),
        ranks=tuple(
            _rank_report(picture, source, offset, joined.method)
            for picture, source, offset in zip(pictures, sources, joined.offsets_ns, strict=True)
        ),
        overlap=tuple(row for picture in pictures for row in _overlap_rows(picture)),
        steps=steps,
        omissions=(
            *(own for picture in pictures for own in picture.records.omissions),
            *written.painted.omissions,
        ),
        warnings=warnings,
        suggestion=suggestion,
        limit_bytes=options.limit_bytes,
    )


def _rank_report(picture: RankPicture, source: Source, offset_ns: int, method: str) -> RankReport:
    records = picture.records
    return RankReport(
        rank=records.rank,
        source=source.identity.directory,
        layout=source.layout,
        tasks=len(records.tasks),
        communication_tasks=len(records.planes),
        communication_ops=len(records.ops),
        steps=len(records.steps),
        graphs=tuple(sorted(graphs_of(records))),
        offset_ns=offset_ns,
        align=method,
    )


def _overlap_rows(picture: RankPicture) -> Iterator[OverlapRow]:
    records = picture.records
    yield OverlapRow(records.rank, None, None, **picture.overlap.totals_ns())
    steps = records.steps
    for graph, iteration, overlap in zip(
        steps.graph.tolist(), steps.iteration.tolist(), picture.step_overlaps, strict=True
    ):
        if overlap is not None:
            yield OverlapRow(records.rank, graph, iteration, **overlap.totals_ns())


def _suggestion(path: Path, selection: Selection, options: ExportOptions, written: _Written) -> str:
    """A command that shows what the limit left out."""
    missing = [
        step for picture in written.pictures if picture.missing for step in picture.missing.steps
    ]
    if not missing:
        return ""
    order = list(dict.fromkeys(missing))
    words = ["tlexport", str(path)]
    if selection.ranks is not None:
        words += ["--ranks", spell_ids(selection.ranks, most=1_000_000)]
    if selection.graphs is not None:
        words += ["--graphs", spell_ids(selection.graphs, most=1_000_000)]
    count = max(1, len(written.kept_steps))
    words += ["--steps", spell_ids(order[:count], most=1_000_000), "--kind", options.kind.value]
    return shlex.join(words)
