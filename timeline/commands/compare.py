"""The command that compares two runs: the differences, and one timeline of both."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np

from timeline.analysis.ordinary_steps import longest_periods_ns, measured_steps, ordinary_steps
from timeline.analysis.questions import Questions
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.selected_rank import ChosenDetail, DrawOptions
from timeline.analysis.work.framework_calls import MARKS
from timeline.analysis.work.framework_sums import FrameworkSums, OperatorRules
from timeline.commands.inputs import open_if_path, with_drawn_layers
from timeline.commands.outputs import Target, check_can_draw, check_targets, comparison_name
from timeline.commands.results import (
    most_names,
    output_files,
    resolution_row,
    warnings_of,
)
from timeline.comparison.comparison import Comparison, Gate, remarks_of_comparison
from timeline.comparison.pairs import OperatorNames
from timeline.declarations import fill, with_keywords
from timeline.encoders.attributes import MARK
from timeline.encoders.drafts import Draft, write_drafts
from timeline.encoders.formats import format_of
from timeline.errors import UsageError
from timeline.fitting.fit import fit
from timeline.fitting.writer import FileNotes, Kept, Written
from timeline.keywords import ChangeKeywords, CompareKeywords, ReadingKeywords
from timeline.options import CompareOptions, ExportOptions, ReadingOptions
from timeline.profile import Profile
from timeline.ranks.rank_work import RankRequest, merging_limit
from timeline.ranks.read_ranks import JoinedRanks, choose_ranks, read_ranks
from timeline.ranks.workers import worker_pool_for
from timeline.records.clock import ClockMove
from timeline.records.not_given import NO_GRAPH
from timeline.records.tables import AI_CPU
from timeline.reports.comparison_report import ChangedStep, ComparisonReport, comparison_markdown
from timeline.reports.filed_verdict import FiledVerdict
from timeline.reports.report_rows import notes_of
from timeline.selection import Selection, select
from timeline.sources.finding.discovery import FindingOptions
from timeline.tables.table import Table
from timeline.tracks.assemble import RunOfRanks, StepDifferences, side_by_side
from timeline.tracks.model import Track
from timeline.tracks.overview import step_starts_ns
from timeline.tracks.rank_tracks import RankTracks
from timeline.tracks.root_rows import WHAT_CHANGED, VerdictRow
from timeline.units import format_count
from timeline.verdict.figures import Figures
from timeline.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Unpack

MOST_LENGTHS = 1 << 24
"""Maximum number of operator lengths kept for quartiles, over both runs: 256 MB temporarily."""


@with_keywords(CompareKeywords, Selection, ExportOptions, CompareOptions, ReadingOptions)
def compare(
    base: Profile | str | os.PathLike[str],
    new: Profile | str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    selection: Selection | None = None,
    **keywords: Unpack[CompareKeywords],
) -> ComparisonReport:
    """Compare two runs, whatever their layouts, and write one timeline of both.

    Args:
        base, new: open profiles, or paths as for `open_profile`; the selection applies to both.
        output: a file as for `export`; by default compare-BASE-NEW-KIND.pftrace in the current
            directory.
        csv: a file for the table of all matched operators and collectives.
        report: a file for an HTML report, whose name ends in .html.
        markdown: a file for a short summary, for a merge request.
        fail_above: the share by which the median step may be longer, such as 0.05 or "5%". The
            report says in `gate` if it is exceeded; no error is raised.
        max_kernels: operators of the framework that launched more kernels are replaced, in tables
            of operators, by the operators inside them; at least 4.
        map_operators: new names of operators and modules by old ones, or a JSON file of these.
        match_shapes: distinguish operators by shapes.
        selection, ranks, graphs, steps, window, layers, kind, group_by, merge_graphs, scopes, args,
            causes, limit, max_events, force: as for `export`.
        assign_rank, align, offset, fp_start, bp_end, jobs, executor, peak_flops, keep_going,
            progress: as for `open_profile`, if paths are passed; open profiles have their own.

    Raises:
        TimelineError: nothing was written; the message says what to do.
    """
    options = {"output": output, **keywords}
    with _opened(base, new, select(selection, keywords), options) as comparer:
        return comparer.write()


@with_keywords(ChangeKeywords, Selection, ExportOptions, CompareOptions, ReadingOptions)
def find_changes(
    base: Profile | str | os.PathLike[str],
    new: Profile | str | os.PathLike[str],
    *,
    selection: Selection | None = None,
    **keywords: Unpack[ChangeKeywords],
) -> ComparisonReport:
    """Compare two runs as `compare` does, without writing files: the report has no outputs.

    Args:
        base, new, selection, ranks, graphs, steps, window, causes, fail_above, max_kernels,
            map_operators, match_shapes: as for `compare`.
        assign_rank, align, offset, fp_start, bp_end, jobs, executor, peak_flops, keep_going,
            progress: as for `open_profile`, if paths are passed; open profiles have their own.

    Raises:
        TimelineError: something selected does not exist, or a file cannot be read.
    """
    with _opened(base, new, select(selection, keywords), keywords) as comparer:
        return comparer.compare()


@contextlib.contextmanager
def _opened(
    base: Profile | str | os.PathLike[str],
    new: Profile | str | os.PathLike[str],
    selection: Selection,
    keywords: Mapping[str, Any],
) -> Iterator[_Comparer]:
    """Open both runs, and yield an object that compares them, until the context ends."""
    options, more = fill(ExportOptions, keywords), fill(CompareOptions, keywords)
    drawn = with_drawn_layers(selection, options)
    check_can_draw(options)
    reading, either = cast("ReadingKeywords", keywords), FindingOptions(of_several=True)
    with (
        open_if_path(base, reading, either) as before,
        open_if_path(new, reading, either) as after,
    ):
        before.check_open()
        after.check_open()
        for name in sorted(before.found.unassigned & after.found.unassigned):
            raise UsageError(
                f"--assign-rank {name}: neither run has such a capture.",
                do="Use --list to see what each has.",
            )
        try:
            yield _Comparer(before, after, drawn, options, more)
        finally:
            before.progress.finish()
            after.progress.finish()


@dataclass(frozen=True)
class _Runs:
    """Two runs after reading, and their comparison."""

    base: JoinedRanks
    new: JoinedRanks
    comparison: Comparison
    gate: Gate | None

    @property
    def shift_ns(self) -> int:
        """Return the time by which the new run is moved."""
        return _shift_ns(self.base.facts, self.new.facts)

    @property
    def facts(self) -> tuple[RankFacts, ...]:
        """Return the facts of all ranks of both runs."""
        return (*self.base.facts, *self.new.facts)


class _Comparer:
    """Compares two open profiles, writes the results and collects warnings."""

    def __init__(
        self,
        base: Profile,
        new: Profile,
        selection: Selection,
        options: ExportOptions,
        more: CompareOptions,
    ) -> None:
        self._base, self._new = base, new
        self._selection = selection
        self._options, self._more = options, more
        name = comparison_name(base.path, new.path, options.kind, selection)
        self._target = Target.of(options, name)
        self._warnings: list[str] = []
        self._notes: list[str] = []

    def compare(self) -> ComparisonReport:
        """Read both profiles and compare them."""
        compared = self._compare(draw=False)
        return self._report(compared, Written((), compared.facts, Kept()))

    def write(self) -> ComparisonReport:
        """Compare the profiles, and write the timeline, table, page and summary."""
        options, form = self._options, format_of(self._target.path)
        inputs = {profile.path: profile.sources for profile in (self._base, self._new)}
        check_targets(self._target, options, inputs, self._more.markdown)
        compared = self._compare(draw=True)
        base, comparison = compared.base, compared.comparison
        moved = tuple(rank.moved(ClockMove(compared.shift_ns)) for rank in compared.new.ranks)
        written = fit(
            (*base.ranks, *moved),
            _not_redrawn,
            options,
            self._target.path,
            form,
            partial(self._describe, comparison),
            base.clock.wall_offset_ns,
            self._base.progress,
            _Arrangement(len(base.ranks), comparison, options.groups_by_layer, form.folds),
        )
        try:
            report = self._report(compared, written)
            written.publish(self._draft_side_files(report))
        except BaseException:
            written.discard()
            raise
        return report

    def _compare(self, *, draw: bool) -> _Runs:
        if self._base.path.resolve() == self._new.path.resolve():
            self._warnings.append("base and new are one profile.")
        base = self._read("base", self._base, draw=draw)
        new = self._read("new", self._new, draw=draw)
        self._warnings += self._operator_warnings(base, new)
        comparison = _compare_figures(base, new, self._operator_names(base, new))
        self._warnings += comparison.warnings
        if self._options.causes:
            self._warnings += _cause_warnings(base, new)
        return _Runs(base, new, comparison, self._gate(comparison))

    def _read(self, name: str, profile: Profile, *, draw: bool) -> JoinedRanks:
        sources = choose_ranks(profile.sources, self._selection, profile.path)
        options = self._options
        ranks = len(self._base.sources) + len(self._new.sources)
        layers = self._selection.layers_of(options.kind)
        request = RankRequest(
            self._selection,
            profile.reading.operators,
            DrawOptions(layers, options.merge_graphs),
            options.args,
            merging_limit(options, ranks),
            ranks,
            self._target.path,
            draw=draw,
            clock=profile.reading.clock,
            questions=self._questions(ranks),
            on_disk=frozenset(profile.ranks),
        )
        with worker_pool_for(sources, profile.reading, profile.progress) as workers:
            joined = read_ranks(sources, request, workers, profile.path)
        before = (*profile.notes, *workers.left_out())
        warnings = (*before, *warnings_of(joined, self._selection, layers))
        self._notes += [f"{name}: {note}" for note in (*before, *joined.notes)]
        self._warnings += [f"{name}: {warning}" for warning in warnings]
        return joined

    def _questions(self, ranks: int) -> Questions:
        """Return the questions to each rank; ranks: number of ranks of both runs."""
        rules = OperatorRules(self._more.max_kernels or 0, self._more.match_shapes)
        causes = self._options.causes
        return Questions(
            causes=causes,
            named_operators=most_names(ranks),
            most_lengths=MOST_LENGTHS // ranks,
            framework=rules if causes else None,
        )

    def _operator_names(self, base: JoinedRanks, new: JoinedRanks) -> OperatorNames:
        """Return the rules by which operators of the framework are matched by name."""
        gpus = {sums.on_gpu for run in (base, new) for sums in _framework_sums(run.facts)}
        return OperatorNames(self._more.map_operators, len(gpus) > 1, self._more.match_shapes)

    def _operator_warnings(self, base: JoinedRanks, new: JoinedRanks) -> Iterator[str]:
        """Warn of operator options without effect, and of modules that are left out."""
        more, runs = self._more, dict(zip(_RUNS, (base, new), strict=True))
        values = {
            "--max-kernels": more.max_kernels,
            "--map-operators": more.map_operators,
            "--match-shapes": more.match_shapes,
        }
        flags = [flag for flag, value in values.items() if value]
        lacking = [run for run, read in runs.items() if not _has_operators(read.facts)]
        if flags and lacking:
            why = (
                f"{' and '.join(lacking)} recorded no operators of a framework"
                if self._options.causes
                else "host calls are not read without causes"
            )
            yield f"{', '.join(flags)}: without effect, as {why}."
        for run, read in runs.items():
            lost = sum(sums.modules_left_out for sums in _framework_sums(read.facts))
            if lost:
                yield f"{run}: {format_count(lost, 'row')} of modules left out."

    def _describe(self, comparison: Comparison, kept: Kept) -> FileNotes:
        """Return the attributes, notes and verdict that are stored in the file."""
        rows = [resolution_row(layer) for layer in kept.layers]
        kind = f"comparison, {self._options.kind.value}"
        filed = FiledVerdict.of_comparison(__version__, kind, comparison, self._notes)
        return FileNotes(
            (
                (MARK, __version__),
                ("io.tlexport.kind", kind),
                ("io.tlexport.base", str(self._base.path)),
                ("io.tlexport.new", str(self._new.path)),
                ("io.tlexport.resolution", "; ".join(row.describe() for row in rows) or "exact"),
                ("io.tlexport.limited_by", kept.limited_by or "nothing"),
                *filed.attributes(self._options.limit_bytes),
            ),
            notes_of(self._warnings, kept.omissions, rows, limited_by=kept.limited_by),
            VerdictRow(WHAT_CHANGED, filed.sentences),
        )

    def _gate(self, comparison: Comparison) -> Gate | None:
        """Return the gate, None if not requested; warn if it is based on few steps."""
        limit = self._more.fail_above
        if limit is None:
            return None
        whole = comparison.whole
        gate = Gate.of(
            limit,
            comparison.base_steps_ns,
            comparison.new_steps_ns,
            (whole["base_ns"], whole["new_ns"]),
        )
        if gate.warning:
            self._warnings.append(gate.warning)
        return gate

    def _report(self, compared: _Runs, written: Written) -> ComparisonReport:
        facts = compared.facts
        return ComparisonReport(
            compared.comparison,
            self._base.path,
            self._new.path,
            output_files(written),
            compared.shift_ns,
            tuple(self._warnings),
            (
                *(omission for rank in facts for omission in rank.omissions),
                *written.kept.omissions,
            ),
            tuple(resolution_row(layer) for layer in written.kept.layers),
            self._options.csv,
            self._options.report,
            self._more.markdown,
            compared.gate,
            _most_changed_step(compared.comparison, compared.base.facts),
            self._options.groups_by_layer,
            written.kept.limited_by,
            tuple(self._notes),
        )

    def _draft_side_files(self, report: ComparisonReport) -> list[tuple[Draft, Path]]:
        """Write drafts of the requested table, page and Markdown."""
        contents, options = list[tuple[bytes, Path]](), self._options
        if options.csv is not None:
            contents.append((report.comparison.all_operators().to_csv().encode(), options.csv))
        if options.report is not None:
            from timeline.reports.html import render_comparison_page

            contents.append((render_comparison_page(report), options.report))
        if self._more.markdown is not None:
            contents.append((comparison_markdown(report).encode(), self._more.markdown))
        return write_drafts(contents)


@dataclass(frozen=True)
class _Arrangement:
    """Function that arranges the tracks of both runs; the first `ranks` are those of the base."""

    ranks: int
    comparison: Comparison
    by_layer: bool
    folds_ranks: bool

    def __call__(self, facts: Sequence[RankFacts], rows: Sequence[RankTracks]) -> tuple[Track, ...]:
        """Return the rows of both runs in one tree, given the facts and rows of all ranks."""
        base, new = (
            RunOfRanks(facts[of_run], rows[of_run])
            for of_run in (slice(self.ranks), slice(self.ranks, None))
        )
        differences = _differences(self.comparison.steps, base.facts)
        remarks = remarks_of_comparison(self.comparison)
        return side_by_side(
            base,
            new,
            differences,
            remarks,
            by_layer=self.by_layer,
            folds_ranks=self.folds_ranks,
        )


_RUNS = ("base", "new")


def _framework_sums(facts: Sequence[RankFacts]) -> Iterator[FrameworkSums]:
    """Return the sums of the framework's operators, of the ranks that have them."""
    return (rank.framework for rank in facts if rank.framework is not None)


def _has_operators(facts: Sequence[RankFacts]) -> bool:
    return any(sums.has_operators for sums in _framework_sums(facts))


def _compare_figures(base: JoinedRanks, new: JoinedRanks, names: OperatorNames) -> Comparison:
    """Compare the ordinary steps of both runs, or the whole runs if either has no steps."""
    runs = (base, new)
    if all(run.has_steps for run in runs):
        figures = (Figures.of(*base.ordinary()), Figures.of(*new.ordinary()))
        chosen = tuple(ordinary_steps(run.facts, with_first=False) for run in runs)
    else:
        figures = (Figures.of(base.facts, base.waiting), Figures.of(new.facts, new.waiting))
        chosen = (measured_steps(base.facts), measured_steps(new.facts))
    layers = [_host_layers(run.facts) for run in runs]
    times_ns = (longest_periods_ns(base.facts, chosen[0]), longest_periods_ns(new.facts, chosen[1]))
    return Comparison.of(*figures, *times_ns, causes_alike=layers[0] == layers[1], names=names)


def _host_layers(facts: Sequence[RankFacts]) -> frozenset[str]:
    """Return the recorded host layers, without marks and AI CPUs, which explain no idle time."""
    layers = frozenset(layer for rank in facts for layer in rank.profile.host_layers)
    return layers - {MARKS, AI_CPU}


def _cause_warnings(base: JoinedRanks, new: JoinedRanks) -> Iterator[str]:
    """Warn if causes of idle time are not compared because the runs' host layers differ."""
    layers = [_host_layers(run.facts) for run in (base, new)]
    if layers[0] != layers[1]:
        recorded = [" and ".join(sorted(of_run)) or "none" for of_run in layers]
        yield (
            f"host calls recorded are {recorded[0]} before, {recorded[1]} now, so causes of idle "
            "time are not compared."
        )


def _most_changed_step(comparison: Comparison, base: Sequence[RankFacts]) -> ChangedStep | None:
    """Return the pair of steps with the largest increase, or the largest decrease if none grew."""
    steps = comparison.steps
    if not len(steps):
        return None
    delta_ns = steps["delta_ns"]
    at = int(np.argmax(delta_ns)) if delta_ns.max() > 0 else int(np.argmin(delta_ns))
    pair = steps.take(np.array([at]))
    start_ns = int(_differences(pair, base).start_ns[0])
    end_ns = start_ns + max(int(pair["base_ns"][0]), int(pair["new_ns"][0]))
    return ChangedStep(int(pair["base_step"][0]), int(pair["new_rank"][0]), start_ns, end_ns)


def _differences(steps: Table, base: Sequence[RankFacts]) -> StepDifferences:
    starts_ns = step_starts_ns(base)
    graphs = np.ma.filled(steps["base_graph"], NO_GRAPH).tolist()
    keys = list(zip(graphs, steps["base_step"].tolist(), strict=True))
    starts = [starts_ns[key if key in starts_ns else (NO_GRAPH, key[1])] for key in keys]
    start_ns = np.array(starts, np.int64)
    ordered = steps.take(np.argsort(start_ns, kind="stable"))
    return StepDifferences(
        ordered["base_step"],
        ordered["new_step"],
        np.sort(start_ns),
        ordered["base_ns"],
        ordered["new_ns"],
    )


def _shift_ns(base: Sequence[RankFacts], new: Sequence[RankFacts]) -> int:
    """Return the offset from the new run's first step to the base's, or of starts without steps."""
    starts = [list(step_starts_ns(run).values()) for run in (base, new)]
    if not all(starts):
        starts = [
            [rank.span_ns[0] for rank in run if rank.span_ns is not None] for run in (base, new)
        ]
    first_ns = [min(run_starts, default=0) for run_starts in starts]
    return first_ns[0] - first_ns[1]


def _not_redrawn(_chosen: ChosenDetail) -> NoReturn:
    """Raise an error: comparisons are always merged, so steps are never redrawn."""
    raise AssertionError("a comparison is merged")
