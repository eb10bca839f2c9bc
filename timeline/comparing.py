"""Turns two profiles into what one lost against the other, and one timeline of both."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import orjson

from timeline.comparison import Comparison
from timeline.encoders.formats import format_of
from timeline.encoders.sink import Draft, write_draft
from timeline.errors import UsageError
from timeline.exporting import by_layer_of, limit_bytes_of
from timeline.figures import Figures
from timeline.fitting import About, Written, fit
from timeline.jobs import crew_for
from timeline.options import Args, ExportOptions
from timeline.pipeline import output_files, resolution_row
from timeline.problems import notes_of
from timeline.profile import Profile, open_profile
from timeline.progress import Progress
from timeline.reading import EVERY_NAME, JoinedShares, choose_ranks, read_shares
from timeline.records.clock import ClockMove
from timeline.records.tables import Omission
from timeline.report import OutputFile, ResolutionRow, spelled_omissions
from timeline.selection import Align, Kind, Layer, Selection, choice_of
from timeline.share import Request
from timeline.table import Table
from timeline.targets import check_not_input, check_target
from timeline.tracks.facts import RankFacts
from timeline.tracks.fit import Leading
from timeline.tracks.model import Track
from timeline.tracks.picture import RankTracks, assemble
from timeline.tracks.rank_picture import PictureOptions
from timeline.tracks.resolve import Resolved
from timeline.tracks.side_by_side import StepDifferences, side_by_side
from timeline.units import spell_bytes, spell_count
from timeline.version import __version__

__all__ = ["ComparisonReport", "compare"]

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class ComparisonReport:
    """What a comparison found, and the file that it wrote.

    csv, page: what was written beside it. shift_ns: by how much the new run is moved in time.
    """

    comparison: Comparison
    base: Path
    new: Path
    outputs: tuple[OutputFile, ...]
    shift_ns: int
    warnings: tuple[str, ...]
    omissions: tuple[Omission, ...]
    resolutions: tuple[ResolutionRow, ...]
    csv: Path | None = None
    page: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values; the shape is versioned by `schema`."""
        return {
            "schema": SCHEMA_VERSION,
            "status": "ok",
            "base": str(self.base),
            "new": str(self.new),
            "shift_ns": self.shift_ns,
            "comparison": self.comparison.to_dict(),
            "outputs": [
                {"path": str(own.path), "format": own.format, "bytes": own.size_bytes}
                for own in self.outputs
            ],
            "omitted": [
                {"reason": said, "rows": rows} for said, rows in spelled_omissions(self.omissions)
            ],
            "resolution": [row.to_dict() for row in self.resolutions],
            "warnings": list(self.warnings),
        }

    def to_json(self) -> bytes:
        """The report as one JSON object."""
        return orjson.dumps(self.to_dict(), option=orjson.OPT_INDENT_2)

    def lines(self) -> list[str]:
        """What was written, and what is not in it, for people."""
        beside = [f"Wrote {own}" for own in (self.csv, self.page) if own is not None]
        return [
            *(
                f"Wrote {own.path}  {spell_bytes(own.size_bytes)}, "
                f"{spell_count(own.slices, 'slice')} of both runs"
                for own in self.outputs
            ),
            *(f"  {row.spelled()}" for row in self.resolutions),
            *(f"  left out: {said}" for said, _ in spelled_omissions(self.omissions)),
            *beside,
        ]


def compare(
    base: str | os.PathLike[str],
    new: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    selection: Selection | None = None,
    kind: Kind | Literal["summary", "detail"] = "summary",
    group_by: Literal["rank", "layer"] | None = None,
    merge_graphs: bool = True,
    scopes: bool = False,
    args: Args | Literal["default", "all", "none"] = "default",
    limit: int | str = "20MB",
    csv: str | os.PathLike[str] | None = None,
    report: str | os.PathLike[str] | None = None,
    force: bool = False,
    assign_rank: Mapping[str, int] | None = None,
    align: Align | Literal["recorded", "collectives", "start", "none"] | None = None,
    offset: Mapping[int, int | str] | None = None,
    fp_start: str = "",
    bp_end: str = "",
    jobs: int | None = None,
    executor: str = "",
    keep_going: bool = False,
    progress: Progress | None = None,
) -> ComparisonReport:
    """Compare two runs, whatever their layouts, and write one timeline of both.

    Args:
        base, new: paths as for `open_profile`; what is selected is selected of both.
        output: compare-KIND.pftrace here if not given.
        csv: a file for all operators and collectives, matched.
        report: a file for a page of the comparison, which ends in .html.
        selection, kind, group_by, merge_graphs, scopes, args, limit, force: as for `export`.
        assign_rank, align, offset, fp_start, bp_end, jobs, executor, keep_going, progress: how both
            are opened; see `open_profile`.

    Raises:
        TimelineError: nothing was written; the message says what to do.
    """
    kind = choice_of(Kind, kind, "kind")
    options = ExportOptions(
        kind=kind,
        output=Path(output or f"compare-{kind.value}.pftrace"),
        limit_bytes=limit_bytes_of(limit),
        args=choice_of(Args, args, "args"),
        by_layer=by_layer_of(group_by),
        merge_graphs=merge_graphs,
        csv=None if csv is None else Path(csv),
        report=None if report is None else Path(report),
        force=force,
    )
    selection = selection or Selection()
    layers = selection.layers_of(kind) | ({Layer.SCOPES} if scopes else set())
    selection = replace(selection, layers=layers)
    with ExitStack() as stack:
        profiles = [
            stack.enter_context(
                open_profile(
                    path,
                    assign_rank=assign_rank,
                    align=align,
                    offset=offset,
                    fp_start=fp_start,
                    bp_end=bp_end,
                    jobs=jobs,
                    executor=executor,
                    keep_going=keep_going,
                    progress=progress,
                )
            )
            for path in (base, new)
        ]
        try:
            return _Runs(profiles[0], profiles[1], selection, options).compared()
        finally:
            profiles[0].progress.finish()


class _Runs:
    """Two profiles that are compared."""

    def __init__(
        self, base: Profile, new: Profile, selection: Selection, options: ExportOptions
    ) -> None:
        self._base, self._new = base, new
        self._selection, self._options = selection, options
        assert options.output is not None
        self._target = options.output
        self._warnings: list[str] = []

    def compared(self) -> ComparisonReport:
        """Read both, compare them, and write."""
        form = format_of(self._target)
        self._check_targets()
        base, new = self._read("base", self._base), self._read("new", self._new)
        figures = [Figures.of(own.facts, own.waiting) for own in (base, new)]
        comparison = Comparison.of(*figures)
        shift_ns = _shift_ns(comparison, base, new)
        moved = tuple(share.moved(ClockMove(shift_ns)) for share in new.shares)
        written = fit(
            (*base.shares, *moved),
            _not_redrawn,
            self._options,
            self._target,
            form,
            self._about,
            base.clock.wall_offset_ns,
            self._base.progress,
            _Arrangement(len(base.shares), comparison, self._options.groups_by_layer),
        )
        report = self._report(comparison, written, shift_ns, (*base.facts, *new.facts))
        try:
            written.publish(self._beside(report))
        except BaseException:
            written.discard()
            raise
        return report

    def _check_targets(self) -> None:
        options = self._options
        targets = [own for own in (self._target, options.csv, options.report) if own is not None]
        if len({own.resolve() for own in targets}) < len(targets):
            raise UsageError("two outputs have one name.", do="Give each a file of its own.")
        for target in targets:
            check_target(target, force=options.force)
            for profile in (self._base, self._new):
                check_not_input(target, profile.path, profile.sources)

    def _read(self, name: str, profile: Profile) -> JoinedShares:
        sources = choose_ranks(profile.sources, self._selection, profile.path)
        options = self._options
        ranks = len(self._base.sources) + len(self._new.sources)
        request = Request(
            self._selection,
            profile.reading.operators,
            PictureOptions(self._selection.layers_of(options.kind), options.merge_graphs),
            options.args,
            options.limit_bytes,
            ranks,
            self._target,
            clock=profile.reading.clock,
            named_operators=EVERY_NAME,
        )
        with crew_for(sources, profile.reading, profile.progress) as crew:
            joined = read_shares(sources, request, crew, profile.path)
        for said in (*profile.notes, *crew.left_out(), *joined.warnings):
            self._warnings.append(f"{name}: {said}")
        return joined

    def _about(
        self, omissions: Sequence[Omission], resolved: Sequence[Resolved], steps: Sequence[int]
    ) -> About:
        """Facts and notes that travel in the file."""
        rows = [resolution_row(own) for own in resolved]
        return About(
            (
                ("io.tlexport.version", __version__),
                ("io.tlexport.kind", f"comparison, {self._options.kind.value}"),
                ("io.tlexport.base", str(self._base.path)),
                ("io.tlexport.new", str(self._new.path)),
                ("io.tlexport.resolution", "; ".join(row.spelled() for row in rows) or "exact"),
            ),
            notes_of(self._warnings, omissions, rows),
        )

    def _report(
        self,
        comparison: Comparison,
        written: Written,
        shift_ns: int,
        facts: Sequence[RankFacts],
    ) -> ComparisonReport:
        return ComparisonReport(
            comparison,
            self._base.path,
            self._new.path,
            output_files(written),
            shift_ns,
            tuple(self._warnings),
            (*(own for known in facts for own in known.omissions), *written.omissions),
            tuple(resolution_row(own) for own in written.resolved),
            self._options.csv,
            self._options.report,
        )

    def _beside(self, report: ComparisonReport) -> list[tuple[Draft, Path]]:
        drafts = list[tuple[Draft, Path]]()
        if self._options.csv is not None:
            table = _operators_of_both(report.comparison).to_csv().encode()
            drafts.append((write_draft([table], self._options.csv), self._options.csv))
        return drafts


@dataclass(frozen=True)
class _Arrangement:
    """The pictures of both runs as one; the first `ranks` rows are those of the base."""

    ranks: int
    comparison: Comparison
    by_layer: bool

    def __call__(self, facts: Sequence[RankFacts], rows: Sequence[RankTracks]) -> tuple[Track, ...]:
        """See `Arrange`."""
        base, new = (
            assemble(facts[own], rows[own], by_layer=self.by_layer)
            for own in (slice(self.ranks), slice(self.ranks, None))
        )
        steps = self.comparison.steps
        differences = StepDifferences(
            steps["base_step"],
            steps["new_step"],
            steps["base_start_ns"],
            steps["base_ns"],
            steps["new_ns"],
        )
        return side_by_side(base, new, differences)


def _shift_ns(comparison: Comparison, base: JoinedShares, new: JoinedShares) -> int:
    """What puts the first step of the new run on that of the base; their starts without steps."""
    steps = comparison.steps
    if len(steps):
        return int(steps["base_start_ns"][0] - steps["new_start_ns"][0])
    starts = [
        min((known.span_ns[0] for known in own.facts if known.span_ns is not None), default=0)
        for own in (base, new)
    ]
    return starts[0] - starts[1]


def _operators_of_both(comparison: Comparison) -> Table:
    """Operators and collectives in one table, with a column that tells them apart."""
    tables = (comparison.operators, comparison.collectives)
    whats = [
        np.full(len(own), what, object)
        for own, what in zip(tables, ("operator", "collective"), strict=True)
    ]
    columns = {
        name: np.concatenate([own[name] for own in tables]) for name in comparison.operators.columns
    }
    return Table({"what": np.concatenate(whats), **columns})


def _not_redrawn(_leading: Leading) -> NoReturn:
    """Both runs are gathered where they are too large; leading steps are never asked for."""
    raise AssertionError("a comparison is gathered")
