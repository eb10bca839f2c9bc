"""The command that exports a profile to a timeline, with a table, a page and a report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from timeline.analysis.ordinary_steps import informative_steps
from timeline.analysis.questions import Questions
from timeline.analysis.selected_rank import DrawOptions
from timeline.commands.inputs import open_if_path, with_drawn_layers
from timeline.commands.narrower import narrower_command
from timeline.commands.outputs import Target, check_can_draw, check_targets, timeline_name
from timeline.commands.results import (
    exact_steps,
    most_names,
    output_files,
    rank_report,
    resolution_row,
    warnings_of,
)
from timeline.commands.verdict import Answer, measured_answer
from timeline.declarations import fill, with_keywords
from timeline.encoders.attributes import MARK, RANKS
from timeline.encoders.drafts import Draft, publish_all, write_drafts
from timeline.encoders.formats import format_of
from timeline.errors import LimitError, format_ids
from timeline.fitting.fit import fit
from timeline.fitting.writer import Describe, FileNotes, Kept, Written, selected_steps
from timeline.keywords import ExportKeywords
from timeline.layers import Layer
from timeline.options import ExportOptions, Fit, ReadingOptions
from timeline.profile import Profile
from timeline.ranks.rank_work import RankRequest, merging_limit
from timeline.ranks.read_ranks import (
    JoinedRanks,
    choose_ranks,
    draw_again,
    draw_exact_again,
    read_ranks,
)
from timeline.ranks.workers import worker_pool_for
from timeline.records.tables import rows_by_reason
from timeline.reports.export_report import ExportReport
from timeline.reports.first_look import FirstLook
from timeline.reports.report_rows import CsvFile, format_exact_steps, notes_of
from timeline.reports.valid_json import json_of
from timeline.selection import Kind, Selection, check_known, select
from timeline.sources.source import Source
from timeline.tables.memory import MOST_AT_PEAK
from timeline.tables.parallel import ParallelIndices, parallel_indices
from timeline.tracks.assemble import assemble
from timeline.tracks.root_rows import WHAT_IS_SLOW, VerdictRow
from timeline.verdict.figures import Figures
from timeline.verdict.verdict import highlights_of
from timeline.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Unpack


@with_keywords(ExportKeywords, Selection, ExportOptions, ReadingOptions)
def export(
    profile: Profile | str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    selection: Selection | None = None,
    operator_steps: bool = True,
    **keywords: Unpack[ExportKeywords],
) -> ExportReport:
    """Write a timeline of a profile, as the command `tlexport` does.

    Args:
        profile: an open profile, or a path as for `open_profile`.
        output: a file .pftrace, .json, or either with .gz; by default
            timeline-PROFILE-KIND-rRANKS.pftrace in the current directory, which replaces an earlier
            file that tlexport wrote under that name.
        selection: the part to export, all by default. Or pass its keywords instead:
        ranks, graphs, steps, window, layers: as for a Selection.
        operator_steps: compute the time of types of operators in each step, which takes 5 % of the
            time; an HTML report has it in any case.
        kind: summary has steps and overlap, detail every task too.
        group_by: rows by rank, or by layer.
        merge_graphs: draw the steps of all graphs in one row, or in one row per graph.
        scopes: draw the scopes of operator names as a layer.
        args: args on slices; each costs file size and load time.
        causes: say why devices wait and idle, which reads HCCL tasks and host calls too.
        limit: maximum size of a file in bytes, or as in "20MB"; 0 for no limit.
        max_events: maximum number of slices, samples and ends of arrows in a file, or as in "6M"; 0
            for no limit, which is the default without a limit of bytes.
        fit: what to do if the selection is larger than the limit: merge short slices, keep the
            detail of the most important steps, write several files, or raise an error.
        exact_steps: steps that stay exact when others are merged or left out; the most important
            ones by default.
        csv: a file for the times of each rank and step, in the columns of step_trace_time.csv.
        report: a file for an HTML report, whose name ends in .html.
        lang: language of the timeline and of the HTML report, "en" or "zh"; English by default.
        force: replace an existing file.
        strict: raise an error when anything but arrows would be lost or merged.
        assign_rank, align, offset, fp_start, bp_end, jobs, executor, peak_flops, keep_going,
            progress: as for `open_profile`, if a path is passed; an open profile has its own.

    Raises:
        TimelineError: nothing was written; the message says what to do.
    """
    options = fill(ExportOptions, {"output": output, **keywords})
    drawn = with_drawn_layers(select(selection, keywords), options)
    check_can_draw(options)
    with open_if_path(profile, keywords) as source:
        source.check_open()
        try:
            asked = Questions(operator_steps=operator_steps)
            return _write_export(source, drawn, options, asked)
        finally:
            source.progress.finish()


def _write_export(
    profile: Profile, selection: Selection, options: ExportOptions, asked: Questions
) -> ExportReport:
    sources = choose_ranks(profile.sources, selection, profile.path)
    target = Target.of(options, timeline_name(profile.path, options.kind, selection, sources))
    form = format_of(target.path)
    check_targets(target, options, {profile.path: sources})
    request = RankRequest(
        selection,
        profile.reading.operators,
        DrawOptions(selection.layers_of(options.kind), options.merge_graphs),
        options.args,
        merging_limit(options, len(sources)),
        len(sources),
        target.path,
        clock=profile.reading.clock,
        questions=_questions(
            replace(asked, peak_flop_per_s=profile.reading.peak_flops),
            selection,
            options,
            len(sources),
        ),
        on_disk=frozenset(profile.ranks),
    )
    written: Written | None = None
    try:
        with worker_pool_for(sources, profile.reading, profile.progress) as workers:
            if workers.jobs > 1:
                form.load()
            joined = read_ranks(sources, request, workers, profile.path)
            if options.exact_steps is not None:
                steps = selected_steps(joined.facts)
                check_known("step", frozenset(options.exact_steps), steps, profile.path)
            layers = selection.layers_of(options.kind)
            before = (*profile.notes, *workers.left_out())
            warnings = (*before, *warnings_of(joined, selection, layers))
            figures = Figures.of(joined.facts, joined.waiting, joined.path, joined.on_disk)
            notes = (*before, *joined.notes)
            answer = Answer.of(profile, selection, options.kind, figures, notes)
            written = fit(
                joined.ranks,
                lambda chosen: draw_again(joined, workers, chosen),
                options,
                target.path,
                form,
                _describe(selection, options, joined, answer, warnings),
                joined.clock.wall_offset_ns,
                profile.progress,
                partial(
                    assemble,
                    by_layer=options.groups_by_layer,
                    folds_ranks=form.folds,
                    path=joined.path,
                    waits=joined.waiting.waits,
                    highlights=highlights_of(answer.verdict, figures),
                ),
                workers.encoders(),
                informative_steps(joined.facts, answer.verdict.culprit, options.exact_steps),
                lambda exact: draw_exact_again(joined, workers, exact.windows_ns),
            )
        return _finish(written, joined, answer, selection, options, profile, warnings, target)
    except BaseException:
        if written is not None:
            written.discard()
        raise


def _questions(
    asked: Questions, selection: Selection, options: ExportOptions, ranks: int
) -> Questions:
    """Return the questions to each rank, with those that the requested outputs need."""
    return replace(
        asked,
        causes=options.causes,
        calls=options.causes,
        named_operators=most_names(ranks) if options.report else 0,
        operator_steps=asked.operator_steps or options.report is not None,
        most_allocations=_most_allocations(selection, options),
    )


def _most_allocations(selection: Selection, options: ExportOptions) -> int:
    """Return the number of single allocations to report: 0 unless drawn or shown in a page."""
    if options.report:
        return MOST_AT_PEAK
    return int(Layer.COUNTERS in selection.layers_of(options.kind))


def _finish(
    written: Written,
    joined: JoinedRanks,
    answer: Answer,
    selection: Selection,
    options: ExportOptions,
    profile: Profile,
    warnings: tuple[str, ...],
    target: Target,
) -> ExportReport:
    """Publish the written files, and return the report.

    Raises:
        LimitError: --strict is set, and something is left out or merged.
        OutputError: a part would replace a file that must stay.
    """
    suggestion = narrower_command(profile, selection, options, written, joined)
    report = _report(written, joined, answer, options, warnings, suggestion)
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
    merged = sum(row.merged for row in report.resolutions)
    if options.strict and merged:
        raise LimitError(
            f"--strict: {merged} slices would be merged to keep the limit.",
            do="Raise --limit, take fewer --ranks or --steps, or leave out --strict.",
        )
    written_paths = [part.target for part in written.parts]
    for path in written_paths:
        target.check(path)
    stale = target.stale_parts(written_paths) if options.fit is Fit.SPLIT else []
    written.publish(_draft_side_files(report, table, options), stale)
    return replace(report, removed=tuple(stale))


def _draft_side_files(
    report: ExportReport, table: bytes, options: ExportOptions
) -> list[tuple[Draft, Path]]:
    """Write drafts of the requested table and page."""
    contents = list[tuple[bytes, Path]]()
    if options.csv is not None:
        contents.append((table, options.csv))
    if options.report is not None:
        from timeline.reports.html import render_export_page

        contents.append((render_export_page(report), options.report))
    return write_drafts(contents)


def _describe(
    selection: Selection,
    options: ExportOptions,
    joined: JoinedRanks,
    answer: Answer,
    warnings: Sequence[str],
) -> Describe:
    """Return a function that returns the text in a file about what the file keeps."""
    sources = joined.sources
    facts_of_run = (
        (MARK, __version__),
        ("io.tlexport.kind", options.kind.value),
        (RANKS, format_ids((source.identity.rank for source in sources), most=len(sources))),
        ("io.tlexport.graphs", _ids_or_all(selection.graphs)),
        ("io.tlexport.steps", _ids_or_all(selection.steps)),
        ("io.tlexport.sources", "; ".join(_provenance(source) for source in sources)[:4096]),
        ("io.tlexport.clock", joined.clock.method),
    )
    before = [omission for facts in joined.facts for omission in facts.omissions]
    filed = answer.filed()
    verdict = filed.attributes()
    row = VerdictRow(WHAT_IS_SLOW, filed.sentences, filed.see_why)

    ranks = [facts.rank for facts in joined.facts]
    look = FirstLook.of_export(
        answer.verdict, answer.figures, ranks[0], by_layer=options.groups_by_layer
    )

    def describe(kept: Kept) -> FileNotes:
        left_out = [*before, *kept.omissions]
        counted = rows_by_reason(left_out).items()
        reasons = [{"reason": reason, "rows": count} for reason, count in counted]
        rows = [resolution_row(layer) for layer in kept.layers]
        exact = exact_steps(kept, ranks)
        attributes = (
            *facts_of_run,
            ("io.tlexport.detail_steps", format_ids(kept.steps)),
            ("io.tlexport.left_out", json_of(reasons).decode()),
            ("io.tlexport.resolution", "; ".join(one.describe() for one in rows) or "exact"),
            ("io.tlexport.limited_by", kept.limited_by or "nothing"),
            ("io.tlexport.exact_steps", format_exact_steps(exact) or "all"),
            *verdict,
            *look.attributes(),
        )
        notes = notes_of(warnings, left_out, rows, exact, kept.limited_by)
        return FileNotes(attributes, notes, row)

    return describe


def _ids_or_all(ids: frozenset[int] | None) -> str:
    return "all" if ids is None else format_ids(ids)


def _provenance(source: Source) -> str:
    identity = source.identity
    place = identity.place.relative_to(identity.directory.parent)
    return f"rank {identity.rank}: {source.layout} of {place}"


def _report(
    written: Written,
    joined: JoinedRanks,
    answer: Answer,
    options: ExportOptions,
    warnings: tuple[str, ...],
    suggestion: str,
) -> ExportReport:
    report = _report_of_ranks(joined, answer, warnings)
    return replace(
        report,
        outputs=output_files(written),
        omissions=(*report.omissions, *written.kept.omissions),
        suggestion=suggestion,
        limit_bytes=options.limit_bytes,
        max_events=options.most_events,
        resolutions=tuple(resolution_row(layer) for layer in written.kept.layers),
        limited_by=written.kept.limited_by,
        exact_steps=exact_steps(written.kept, [facts.rank for facts in joined.facts]),
        by_layer=options.groups_by_layer,
    )


def _report_of_ranks(
    joined: JoinedRanks, answer: Answer, warnings: tuple[str, ...]
) -> ExportReport:
    """Return the report of an answer without a timeline."""
    indices = parallel_indices(joined.facts)
    return ExportReport(
        kind=answer.kind.value,
        outputs=(),
        ranks=tuple(
            rank_report(facts, source, move, indices.get(facts.rank, ParallelIndices()))
            for facts, source, move in zip(
                joined.facts, joined.sources, joined.clock.moves, strict=True
            )
        ),
        steps=selected_steps(joined.facts),
        figures=answer.figures,
        verdict=answer.verdict,
        omissions=tuple(omission for facts in joined.facts for omission in facts.omissions),
        warnings=warnings,
        notes=answer.notes,
        see_why=answer.see_why,
    )


def answer_on_page(
    profile: str | os.PathLike[str], selection: Selection, keywords: ExportKeywords
) -> Answer:
    """Return the verdict of a profile, and write the page of `report` without a timeline.

    keywords: those of `export`, of which `causes`, `report`, `force` and those of `open_profile`
    have an effect.

    Raises:
        TimelineError: nothing was written; the message says what to do.
    """
    options = fill(ExportOptions, keywords)
    check_can_draw(options)
    with open_if_path(profile, keywords) as source:
        sources = choose_ranks(source.sources, selection, source.path)
        assert options.report is not None
        target = Target(options.report, has_default_name=False, force=options.force)
        check_targets(target, replace(options, report=None), {source.path: sources})
        asked = _questions(Questions(), selection, options, len(sources))
        given, measured = measured_answer(source, selection, {}, asked)
        layers = selection.layers_of(Kind.SUMMARY)
        warnings = (*source.notes, *warnings_of(measured.joined, selection, layers))
        report = _report_of_ranks(measured.joined, given, tuple(warnings))
        publish_all(_draft_side_files(report, b"", options))
    return given
