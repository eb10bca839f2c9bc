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

from timeline.analysis.clocks import check_offsets
from timeline.analysis.ordinary_steps import longest_periods_ns, measured_steps, ordinary_steps
from timeline.analysis.questions import Questions
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.selected_rank import ChosenDetail, DrawOptions
from timeline.analysis.work.framework_calls import MARKS
from timeline.analysis.work.framework_sums import FrameworkSums, OperatorRules
from timeline.columns.columns import Bool
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
from timeline.comparison.sides import BASE, NEW, Sides, pairs_in, select_sides
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
from timeline.reports.first_look import FirstLook
from timeline.reports.report_rows import notes_of
from timeline.selection import Selection
from timeline.sources.finding.discovery import FindingOptions
from timeline.sources.source import Source
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
    new: Profile | str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    *,
    selection: Selection | None = None,
    **keywords: Unpack[CompareKeywords],
) -> ComparisonReport:
    """Compare two runs, whatever their layouts, or two parts of one; write a timeline of both.

    Args:
        base, new: open profiles, or paths as for `open_profile`; the selection applies to both.
            Without `new`, two parts of the base are compared, which `steps` and `ranks` name as
            text: steps="7:3" compares step 7 (base) with step 3 (new), ranks="5:4" rank 5 with rank
            4; "3-6:7" is fine too, and ranks of both are paired in order.
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
            causes, limit, max_events, lang, force: as for `export`.
        assign_rank, align, offset, fp_start, bp_end, jobs, executor, peak_flops, keep_going,
            progress: as for `open_profile`, if paths are passed; open profiles have their own.

    Raises:
        TimelineError: nothing was written; the message says what to do.
    """
    options = {"output": output, **keywords}
    with _opened(base, new, selection, options) as comparer:
        return comparer.write()


@with_keywords(ChangeKeywords, Selection, ExportOptions, CompareOptions, ReadingOptions)
def find_changes(
    base: Profile | str | os.PathLike[str],
    new: Profile | str | os.PathLike[str] | None = None,
    *,
    selection: Selection | None = None,
    **keywords: Unpack[ChangeKeywords],
) -> ComparisonReport:
    """Compare as `compare` does, without writing files: the report has no outputs.

    Args:
        base, new, selection, ranks, graphs, steps, window, causes, fail_above, max_kernels,
            map_operators, match_shapes: as for `compare`.
        assign_rank, align, offset, fp_start, bp_end, jobs, executor, peak_flops, keep_going,
            progress: as for `open_profile`, if paths are passed; open profiles have their own.

    Raises:
        TimelineError: something selected does not exist, or a file cannot be read.
    """
    with _opened(base, new, selection, keywords) as comparer:
        return comparer.compare()


@contextlib.contextmanager
def _opened(
    base: Profile | str | os.PathLike[str],
    new: Profile | str | os.PathLike[str] | None,
    selection: Selection | None,
    keywords: Mapping[str, Any],
) -> Iterator[_Comparer]:
    """Open both runs, and yield an object that compares them, until the context ends."""
    selections, sides = select_sides(selection, keywords)
    _check_runs(new, keywords)
    options, more = fill(ExportOptions, keywords), fill(CompareOptions, keywords)
    of_base, of_new = (with_drawn_layers(one, options) for one in selections)
    check_can_draw(options)
    reading, either = cast("ReadingKeywords", keywords), FindingOptions(of_several=new is not None)
    own: ReadingKeywords = {} if new is None else reading
    with (
        open_if_path(base, reading, either) as before,
        open_if_path(before if new is None else new, own, either) as after,
    ):
        before.check_open()
        after.check_open()
        for name in sorted(before.found.unassigned & after.found.unassigned):
            raise UsageError(
                f"--assign-rank {name}: neither run has such a capture.",
                do="Use --list to see what each has.",
            )
        try:
            yield _Comparer(before, after, (of_base, of_new), sides, options, more)
        finally:
            before.progress.finish()
            after.progress.finish()


def _check_runs(new: object, keywords: Mapping[str, Any]) -> None:
    """Make sure that two runs are given, or two parts of one.

    Raises:
        UsageError: neither is, or both.
    """
    pairs = " ".join(f"--{name} {text}" for name, text in pairs_in(keywords).items())
    if new is None and not pairs:
        raise UsageError(
            "there is one profile, and nothing to compare it with: NEW is missing.",
            do="Name a second profile, or two parts of this one, as in --steps 7:3 or --ranks 5:4.",
        )
    if new is not None and pairs:
        raise UsageError(
            f"{pairs}: a colon separates two parts of one run, but there is a second profile, "
            f"{new.path if isinstance(new, Profile) else new}.",
            do="Leave that out, or select the same ranks and steps of both.",
        )


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
    """Compares two open profiles, or parts of one, writes the results and collects warnings."""

    def __init__(
        self,
        base: Profile,
        new: Profile,
        selections: tuple[Selection, Selection],
        sides: Sides,
        options: ExportOptions,
        more: CompareOptions,
    ) -> None:
        self._base, self._new = base, new
        self._selections, self._sides = selections, sides
        self._options, self._more = options, more
        paths = [base.path] if sides.in_one_run else [base.path, new.path]
        name = comparison_name(paths, options.kind, selections)
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
            partial(self._describe, compared),
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
        if self._selections[0] == self._selections[1]:
            if self._sides.in_one_run:
                self._warnings.append("both sides are one part of the run.")
            elif self._base.path.resolve() == self._new.path.resolve():
                self._warnings.append("base and new are one profile.")
        chosen = [
            choose_ranks(profile.sources, selection, profile.path)
            for profile, selection in zip((self._base, self._new), self._selections, strict=True)
        ]
        ranks = sum(map(len, chosen))
        for profile in (self._base, self._new):
            check_offsets(
                profile.reading.clock, (one.identity.rank for side in chosen for one in side)
            )
        base, new = (self._read(at, chosen[at], ranks, draw=draw) for at in (0, 1))
        if self._sides.in_one_run:
            self._notes, self._warnings = map(self._of_both_once, (self._notes, self._warnings))
        self._warnings += self._operator_warnings(base, new)
        comparison = _compare_figures(base, new, self._operator_names(base, new), self._sides)
        self._warnings += comparison.warnings
        if self._options.causes:
            self._warnings += _cause_warnings(base, new)
        return _Runs(base, new, comparison, self._gate(comparison))

    def _read(self, side: int, sources: Sequence[Source], ranks: int, *, draw: bool) -> JoinedRanks:
        """Read one side.

        side: 0 for the base, 1 for the new one. ranks: their number on both sides.
        """
        profile, selection = (self._base, self._new)[side], self._selections[side]
        options, name = self._options, self._sides.labels[side]
        layers = selection.layers_of(options.kind)
        request = RankRequest(
            selection,
            profile.reading.operators,
            DrawOptions(layers, options.merge_graphs),
            options.args,
            merging_limit(options, ranks),
            ranks,
            self._target.path,
            draw=draw,
            clock=profile.reading.clock.of_ranks({source.identity.rank for source in sources}),
            questions=self._questions(ranks),
            on_disk=frozenset(profile.ranks),
        )
        with worker_pool_for(sources, profile.reading, profile.progress) as workers:
            joined = read_ranks(sources, request, workers, profile.path)
        before = (*profile.notes, *workers.left_out())
        warnings = (*before, *warnings_of(joined, selection, layers))
        self._notes += [f"{name}: {note}" for note in (*before, *joined.notes)]
        self._warnings += [f"{name}: {warning}" for warning in warnings]
        return joined

    def _of_both_once(self, lines: Sequence[str]) -> list[str]:
        """Return warnings without the side where both have the same one."""
        base, new = (f"{label}: " for label in self._sides.labels)
        given, once = set(lines), list[str]()
        for line in lines:
            text = line.removeprefix(base)
            if text != line and new + text in given:
                once.append(text)
            elif base + line.removeprefix(new) not in given or not line.startswith(new):
                once.append(line)
        return once

    def _questions(self, ranks: int) -> Questions:
        """Return the questions to each rank; ranks: number of ranks of both runs."""
        rules = OperatorRules(self._more.max_kernels or 0, self._more.match_shapes)
        causes = self._options.causes
        return Questions(
            causes=causes,
            calls=causes,
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

    def _describe(self, compared: _Runs, kept: Kept) -> FileNotes:
        """Return the attributes, notes and verdict that are stored in the file."""
        comparison = compared.comparison
        changed = _most_changed_step(comparison, compared.base.facts)
        look = FirstLook.of_comparison(comparison, changed, by_layer=self._options.groups_by_layer)
        rows = [resolution_row(layer) for layer in kept.layers]
        kind = f"comparison, {self._options.kind.value}"
        filed = FiledVerdict.of_comparison(__version__, kind, comparison, self._notes)
        return FileNotes(
            (
                (MARK, __version__),
                ("io.tlexport.kind", kind),
                *self._paths(),
                ("io.tlexport.resolution", "; ".join(row.describe() for row in rows) or "exact"),
                ("io.tlexport.limited_by", kept.limited_by or "nothing"),
                *filed.attributes(self._options.limit_bytes),
                *look.attributes(),
            ),
            notes_of(self._warnings, kept.omissions, rows, limited_by=kept.limited_by),
            VerdictRow(WHAT_CHANGED, filed.sentences),
        )

    def _paths(self) -> Iterator[tuple[str, str]]:
        """Yield the attributes that name both runs, with the part where they are one."""
        profiles, labels = (self._base, self._new), self._sides.labels
        for run, profile, label in zip(_RUNS, profiles, labels, strict=True):
            part = f": {label}" if self._sides.in_one_run else ""
            yield f"io.tlexport.{run}", f"{profile.path}{part}"

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


_RUNS = (BASE, NEW)


def _framework_sums(facts: Sequence[RankFacts]) -> Iterator[FrameworkSums]:
    """Return the sums of the framework's operators, of the ranks that have them."""
    return (rank.framework for rank in facts if rank.framework is not None)


def _has_operators(facts: Sequence[RankFacts]) -> bool:
    return any(sums.has_operators for sums in _framework_sums(facts))


def _compare_figures(
    base: JoinedRanks, new: JoinedRanks, names: OperatorNames, sides: Sides
) -> Comparison:
    """Compare the ordinary steps of both runs, or the whole runs if either has no steps."""
    runs = (base, new)
    measured = tuple(measured_steps(run.facts) for run in runs)
    if all(run.has_steps for run in runs):
        figures = (Figures.of(*base.ordinary()), Figures.of(*new.ordinary()))
        chosen = tuple(ordinary_steps(run.facts, with_first=False) for run in runs)
    else:
        figures = (Figures.of(base.facts, base.waiting), Figures.of(new.facts, new.waiting))
        chosen = measured
    layers = [_host_layers(run.facts) for run in runs]
    times_ns = (longest_periods_ns(base.facts, chosen[0]), longest_periods_ns(new.facts, chosen[1]))
    return Comparison.of(
        *figures,
        *times_ns,
        without_first=(
            _lacks_first(base.facts, measured[0], chosen[0]),
            _lacks_first(new.facts, measured[1], chosen[1]),
        ),
        causes_alike=layers[0] == layers[1],
        names=names,
        called=sides,
    )


def _lacks_first(
    facts: Sequence[RankFacts], measured: Sequence[Bool], chosen: Sequence[Bool]
) -> bool:
    """Return whether a first step that is not cut is not among the chosen ones."""
    return any(
        bool((rank.recorded.first & ~rank.recorded.cut & of_rank & ~mask).any())
        for rank, of_rank, mask in zip(facts, measured, chosen, strict=True)
    )


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
