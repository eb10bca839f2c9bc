"""Turns a profile and what is wanted of it into trace files and a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson

from timeline.analysis.clocks import RankMove
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.selected_rank import DrawOptions
from timeline.commands.narrower import narrower_command
from timeline.commands.outputs import check_target, check_targets, default_target
from timeline.encoders.drafts import Draft, write_drafts
from timeline.encoders.formats import format_of
from timeline.errors import LimitError, spell_ids
from timeline.figures.figures import Figures, checks_of
from timeline.figures.verdict import Verdict
from timeline.fitting.fit import fit
from timeline.fitting.resolve import Resolved
from timeline.fitting.writer import About, Describe, Written, steps_of
from timeline.options import ExportOptions, Fit, ReadingOptions
from timeline.profile import Profile
from timeline.ranks.chosen_ranks import choose_ranks
from timeline.ranks.rank_work import RankRequest
from timeline.ranks.reading import JoinedShares, read_shares, redrawn
from timeline.ranks.workers import worker_pool_for
from timeline.records.tables import Omission
from timeline.reports.check_text import check_warnings
from timeline.reports.export_report import (
    CsvFile,
    ExportReport,
    OutputFile,
    OverlapRow,
    RankReport,
    ResolutionRow,
)
from timeline.reports.file_notes import notes_of
from timeline.selection import Layer, Selection
from timeline.sources.source import Source
from timeline.units import spell_count
from timeline.version import __version__

__all__ = ["exported", "most_names", "output_files", "resolution_row", "warnings_of"]

MOST_NAMES = 100_000
"""Operators that all ranks together may tell apart by name for a report."""
LEAST_NAMES = 100
"""Operators that each rank may, however many ranks there are."""


def exported(profile: Profile, selection: Selection, options: ExportOptions) -> ExportReport:
    """Write what is selected of a profile.

    Raises:
        TimelineError: nothing was written; the message says what to do.
    """
    profile.check_open()
    selection = replace(selection, layers=selection.layers_of(options.kind))
    try:
        return _exported(profile, selection, options)
    finally:
        profile.progress.finish()


def _exported(profile: Profile, selection: Selection, options: ExportOptions) -> ExportReport:
    sources = choose_ranks(profile.sources, selection, profile.path)
    target = options.output or default_target(options.kind, selection, sources)
    form = format_of(target)
    check_targets(target, options, {profile.path: sources})
    asked = _request(selection, options, profile.reading, target, len(sources))
    written: Written | None = None
    try:
        with worker_pool_for(sources, profile.reading, profile.progress) as workers:
            if workers.jobs > 1:
                form.load()
            joined = read_shares(sources, asked, workers, profile.path)
            layers = selection.layers_of(options.kind)
            warnings = (
                *profile.notes,
                *workers.left_out(),
                *warnings_of(joined, selection, layers),
            )
            written = fit(
                joined.shares,
                lambda leading: redrawn(joined, workers, leading),
                options,
                target,
                form,
                _describe(selection, options, joined, warnings),
                joined.clock.wall_offset_ns,
                profile.progress,
                workers=workers.encoders(),
            )
        return _finish(written, joined, selection, options, profile, warnings)
    except BaseException:
        if written is not None:
            written.discard()
        raise


def _request(
    selection: Selection,
    options: ExportOptions,
    reading: ReadingOptions,
    target: Path,
    ranks: int,
) -> RankRequest:
    """What is wanted of each rank; shares of several ranks must not each fill the file."""
    return RankRequest(
        selection,
        reading.operators,
        DrawOptions(selection.layers_of(options.kind), options.merge_graphs),
        options.args,
        options.limit_bytes if ranks > 1 and options.fit is Fit.COARSEN else 0,
        ranks,
        target,
        clock=reading.clock,
        named_operators=most_names(ranks) if options.report else 0,
    )


def most_names(ranks: int) -> int:
    """How many operators each of so many ranks may tell apart by name."""
    return max(LEAST_NAMES, MOST_NAMES // ranks)


def warnings_of(
    joined: JoinedShares, selection: Selection, layers: frozenset[Layer]
) -> Iterator[str]:
    """What is wrong with the profiles, or not in them."""
    yield from joined.warnings
    yield from _waiting_warnings(joined, selection)
    yield from _empty_warnings(joined.facts, selection)
    yield from _absent_layers(joined.facts, layers)
    yield from check_warnings(checks_of(joined.facts))


def _finish(
    written: Written,
    joined: JoinedShares,
    selection: Selection,
    options: ExportOptions,
    profile: Profile,
    warnings: tuple[str, ...],
) -> ExportReport:
    """Report what was written, and publish it unless --strict or an existing part forbids."""
    suggestion = narrower_command(profile, selection, options, written, joined)
    report = _report(written, joined, options, warnings, suggestion)
    table = b""
    if options.csv is not None:
        times = report.step_times()
        table = times.to_csv().encode()
        report = replace(report, csv=CsvFile(options.csv, len(table), len(times)))
    losses = [omission for omission in report.omissions if omission.loss]
    if options.strict and losses:
        rows = sum(omission.rows for omission in losses)
        raise LimitError(
            f"--strict: {rows} records would be left out: {losses[0].reason}.",
            do="Leave out --strict to accept that.",
        )
    gathered = sum(row.gathered for row in report.resolutions)
    if options.strict and gathered:
        raise LimitError(
            f"--strict: {gathered} slices would be gathered to keep the limit.",
            do="Raise --limit, take fewer --ranks or --steps, or leave out --strict.",
        )
    for part in written.parts:
        check_target(part.target, force=options.force)
    written.publish(_beside(report, table, options))
    return report


def _beside(report: ExportReport, table: bytes, options: ExportOptions) -> list[tuple[Draft, Path]]:
    """The table, page and picture of a report, where they are asked for."""
    contents = list[tuple[bytes, Path]]()
    if options.csv is not None:
        contents.append((table, options.csv))
    if options.report is not None:
        from timeline.reports.html import page

        contents.append((page(report), options.report))
    if options.still is not None:
        from timeline.reports.html import still

        contents.append((still(report), options.still))
    return write_drafts(contents)


def _describe(
    selection: Selection, options: ExportOptions, joined: JoinedShares, warnings: Sequence[str]
) -> Describe:
    """Facts and notes about the picture that travel in the file."""
    sources = joined.sources
    known = (
        ("io.tlexport.version", __version__),
        ("io.tlexport.kind", options.kind.value),
        ("io.tlexport.ranks", spell_ids(source.identity.rank for source in sources)),
        ("io.tlexport.graphs", _spelled(selection.graphs)),
        ("io.tlexport.steps", _spelled(selection.steps)),
        ("io.tlexport.sources", "; ".join(_provenance(source) for source in sources)[:4096]),
        ("io.tlexport.clock", joined.clock.method),
    )
    before = [own for facts in joined.facts for own in facts.omissions]

    def about(
        omissions: Sequence[Omission], resolved: Sequence[Resolved], steps: Sequence[int]
    ) -> About:
        left_out = [*before, *omissions]
        rows = [resolution_row(own) for own in resolved]
        attributes = (
            *known,
            ("io.tlexport.detail_steps", spell_ids(steps)),
            ("io.tlexport.left_out", orjson.dumps(_left_out(left_out)).decode()),
            ("io.tlexport.resolution", "; ".join(row.spelled() for row in rows) or "exact"),
        )
        return About(attributes, notes_of(warnings, left_out, rows))

    return about


def _left_out(omissions: Sequence[Omission]) -> list[dict[str, object]]:
    """What is left out, by reason, over all ranks."""
    rows: dict[str, int] = {}
    for own in omissions:
        rows[own.reason] = rows.get(own.reason, 0) + own.rows
    return [{"reason": reason, "rows": count} for reason, count in rows.items()]


def _spelled(ids: frozenset[int] | None) -> str:
    return "all" if ids is None else spell_ids(ids)


def resolution_row(resolved: Resolved) -> ResolutionRow:
    """The row of the report on what became of a layer."""
    resolution = resolved.resolution
    return ResolutionRow(
        layer=resolved.layer,
        resolution_ns=resolution.width_ns,
        finer_ns=resolution.finer_width_ns,
        finer_until_ns=resolution.finer_until_ns,
        exact=resolved.exact,
        gathered=resolved.gathered,
        gathered_into=resolved.gathered_into,
    )


def _provenance(source: Source) -> str:
    identity = source.identity
    return f"rank {identity.rank}: {source.layout} of {identity.directory.name}"


def _empty_warnings(ranks: Sequence[RankFacts], selection: Selection) -> Iterator[str]:
    """Ranks, and steps with a marker, that hold no device record."""
    for facts in ranks:
        if not facts.rows and not len(facts.steps):
            chosen = selection.graphs is not None or selection.steps is not None
            yield f"rank {facts.rank}: holds nothing" + (" of the selection." if chosen else ".")
            continue
        empty = facts.steps.iteration[~facts.step_totals.known].tolist()
        if empty:
            yield (
                f"rank {facts.rank}: steps {spell_ids(empty)} are marked but have no device tasks "
                "in the profile."
            )


def _waiting_warnings(joined: JoinedShares, selection: Selection) -> Iterator[str]:
    """Collectives that could not be compared with those of other ranks."""
    if len(joined.facts) < 2:
        return
    told = joined.waiting.stragglers
    where = "in the profile" if selection.ranks is None else "selected"
    left = (
        (told.alone, told.alone_ns, f"no other rank of the group is {where}"),
        (told.unmatched, told.unmatched_ns, "the other ranks have none that ran with them"),
    )
    all_ns = max(joined.waiting.basis.communication_ns, 1)
    for counts, took_ns, why in left:
        ranks = [
            own.rank for own, count in zip(joined.facts, counts.tolist(), strict=True) if count
        ]
        if ranks:
            yield (
                f"ranks {spell_ids(ranks)}: of {spell_count(int(counts.sum()), 'collective')} "
                f"({int(took_ns.sum()) / all_ns:.0%} of communication time) {why}, so who waits in "
                "them is not known."
            )


def _absent_layers(ranks: Sequence[RankFacts], layers: frozenset[Layer]) -> Iterator[str]:
    """Layers that were asked for and that a profile does not hold at all.

    Steps are none of a single run of an operator, and the report says so anyway.
    """
    for layer in Layer:
        if layer in layers and layer is not Layer.STEPS:
            without = [facts.rank for facts in ranks if layer in facts.profile.lacks]
            if without:
                which = "rank" if len(without) == 1 else "ranks"
                yield f"{which} {spell_ids(without)}: the profile holds no {layer.value} records."


def output_files(written: Written) -> tuple[OutputFile, ...]:
    """What was written, for the report."""
    return tuple(
        OutputFile(
            part.target,
            format_of(part.target).name,
            part.draft.size_bytes,
            part.slices,
            written.kept_steps,
            part.drawn_ns,
            part.offset_ns,
        )
        for part in written.parts
    )


def _report(
    written: Written,
    joined: JoinedShares,
    options: ExportOptions,
    warnings: tuple[str, ...],
    suggestion: str,
) -> ExportReport:
    figures = Figures.of(joined.facts, joined.waiting)
    return ExportReport(
        kind=options.kind.value,
        outputs=output_files(written),
        ranks=tuple(
            _rank_report(facts, source, move)
            for facts, source, move in zip(
                joined.facts, joined.sources, joined.clock.moves, strict=True
            )
        ),
        overlap=tuple(row for facts in joined.facts for row in _overlap_rows(facts)),
        steps=steps_of(joined.facts),
        figures=figures,
        verdict=Verdict.of(figures),
        omissions=(
            *(own for facts in joined.facts for own in facts.omissions),
            *written.omissions,
        ),
        warnings=warnings,
        suggestion=suggestion,
        limit_bytes=options.limit_bytes,
        resolutions=tuple(resolution_row(own) for own in written.resolved),
    )


def _rank_report(facts: RankFacts, source: Source, move: RankMove) -> RankReport:
    return RankReport(
        rank=facts.rank,
        device=source.identity.device,
        source=source.identity.directory,
        layout=source.layout,
        tasks=facts.tasks,
        communication_tasks=facts.communication_tasks,
        communication_ops=facts.communication_ops,
        steps=len(facts.steps),
        graphs=tuple(sorted(facts.graphs)),
        offset_ns=move.offset_ns,
        drift_ppb=move.move.drift_ppb,
        align=move.method,
        spread_ns=move.spread_ns,
        matched_ops=move.ops,
        free_rule=facts.profile.free_rule,
        communication_rule=facts.profile.communication_rule,
    )


def _overlap_rows(facts: RankFacts) -> Iterator[OverlapRow]:
    parts = facts.free_parts
    yield OverlapRow(
        facts.rank,
        None,
        None,
        **facts.overlap_ns,
        copies_ns=parts.copies_ns,
        outside_ns=parts.outside_ns,
        idle_ns=parts.idle_ns,
    )
    steps, totals = facts.steps, facts.step_totals
    for row in np.flatnonzero(totals.known).tolist():
        yield OverlapRow(
            facts.rank,
            int(steps.graph[row]),
            int(steps.iteration[row]),
            computing_ns=int(totals.computing_ns[row]),
            communication_ns=int(totals.communication_ns[row]),
            not_overlapped_ns=int(totals.not_overlapped_ns[row]),
            free_ns=int(totals.free_ns[row]),
            copies_ns=None if parts.copies_ns is None else int(totals.copies_ns[row]),
            outside_ns=0,
            idle_ns=int(totals.idle_ns[row]),
        )
