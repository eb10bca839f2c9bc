"""Rows and warnings of the reports of exports and comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from timeline.analysis.clocks import RankMove
from timeline.analysis.rank_facts import RankFacts
from timeline.encoders.formats import format_of
from timeline.errors import format_ids
from timeline.fitting.drawn_layers import DrawnLayer
from timeline.fitting.writer import Kept, Written
from timeline.layers import LAYERS, Layer
from timeline.ranks.read_ranks import JoinedRanks, merge_across_ranks
from timeline.reports.export_report import check_warnings
from timeline.reports.report_rows import (
    ExactStep,
    OutputFile,
    RankReport,
    ResolutionRow,
)
from timeline.selection import Selection
from timeline.sources.finding.runs import format_ranks
from timeline.sources.source import Source
from timeline.tables.parallel import ParallelIndices, parallel_contradictions
from timeline.units import format_count
from timeline.verdict.figures import Figures

MOST_NAMES = 100_000
"""Maximum number of operators by name in a report, over all ranks."""
LEAST_NAMES = 100
"""Number of operators by name that each rank may report, however many ranks there are."""
_REASONS = {
    "unnamed": "HCCL tasks are recorded without names and ranks, as at level 0 of the profiler",
    "alone": "no other rank of the group is {where}",
    "unmatched": "those of the other ranks could not be paired: records are missing, or the "
    "profile names no groups and ends do not tell which ranks ran them together",
    "unknown": "not all ranks of the group are {where}, and no HCCL tasks tell when those came",
}
"""Reasons why the last rank of collectives is unknown, by the column that counts them."""


def most_names(ranks: int) -> int:
    """Return the maximum number of operators by name of each rank, given the number of ranks."""
    return max(LEAST_NAMES, MOST_NAMES // ranks)


def warnings_of(
    joined: JoinedRanks, selection: Selection, layers: frozenset[Layer]
) -> Iterator[str]:
    """Yield warnings about problems of profiles, and records that they lack."""
    yield from joined.warnings
    yield from parallel_contradictions(joined.facts)
    yield from _waiting_warnings(joined, selection)
    yield from merge_across_ranks(_empty_warnings(joined.facts, selection))
    yield from _absent_layers(joined.facts, layers)
    yield from check_warnings(Figures(facts=joined.facts)["checks"])


def _empty_warnings(ranks: Sequence[RankFacts], selection: Selection) -> Iterator[str]:
    """Yield warnings about ranks without records, and marked steps without device tasks."""
    for facts in ranks:
        if facts.profile.tables_only:
            continue  # the reader warns about that
        if not facts.rows and not len(facts.steps) and not len(facts.operators.times):
            chosen = selection.graphs is not None or selection.steps is not None
            yield f"rank {facts.rank}: holds nothing" + (" of the selection." if chosen else ".")
            continue
        empty = facts.steps.iteration[~facts.step_totals.known].tolist()
        if empty and facts.tasks:
            steps = format_ids(empty)
            steps = f"step {steps} is" if len(empty) == 1 else f"steps {steps} are"
            yield f"rank {facts.rank}: {steps} marked, without device tasks in the profile."


def _waiting_warnings(joined: JoinedRanks, selection: Selection) -> Iterator[str]:
    """Yield warnings about collectives whose last rank is unknown."""
    where = "in the profile" if selection.ranks is None else "selected"
    looked = all(facts.collectives.arrivals.recorded for facts in joined.facts)
    reasons = _REASONS if len(joined.facts) > 1 and looked else {"unnamed": _REASONS["unnamed"]}
    all_ns = max(joined.waiting.basis.communication_ns, 1)
    for name, why in reasons.items():
        counts, took_ns = (
            getattr(joined.waiting.stragglers, column) for column in (name, f"{name}_ns")
        )
        ranks = [
            rank.rank for rank, count in zip(joined.facts, counts.tolist(), strict=True) if count
        ]
        if ranks:
            yield (
                f"{format_ranks(ranks)}: of "
                f"{format_count(int(counts.sum()), 'collective')} "
                f"({int(took_ns.sum()) / all_ns:.0%} of communication time) "
                f"{why.format(where=where)}, so who was waited for in them is not known."
            )


def _absent_layers(ranks: Sequence[RankFacts], layers: frozenset[Layer]) -> Iterator[str]:
    """Yield warnings about selected layers without any record.

    For a rank without device tasks, only these are mentioned.
    """
    for layer in LAYERS:
        if layer.missing and layer.option in layers:
            without = [
                facts.rank
                for facts in ranks
                if layer.option in facts.profile.lacks
                and (layer.option is Layer.HARDWARE or Layer.HARDWARE not in facts.profile.lacks)
            ]
            if without:
                yield f"{format_ranks(without)}: {layer.missing} in this profile."


def output_files(written: Written) -> tuple[OutputFile, ...]:
    """Return the written files, as rows of the report."""
    return tuple(
        OutputFile(
            part.target,
            format_of(part.target).name,
            part.draft.size_bytes,
            part.slices,
            int(part.cost.elements),
            written.kept.steps,
            part.drawn_ns,
            part.offset_ns,
            part.target.exists(),
        )
        for part in written.parts
    )


def resolution_row(layer: DrawnLayer) -> ResolutionRow:
    """Return the row of the report on the resolution of a layer."""
    return ResolutionRow(
        layer=layer.layer,
        resolution_ns=layer.width_ns,
        finer_ns=layer.finer_width_ns,
        finer_until_ns=layer.finer_until_ns,
        exact=layer.drawn.exact,
        merged=layer.drawn.merged,
        merged_into=layer.drawn.merged_into,
    )


def exact_steps(kept: Kept, ranks: Sequence[int]) -> tuple[ExactStep, ...]:
    """Return the steps that stayed exact, if any slice is merged; ranks: rank at each place."""
    if not kept.layers:
        return ()
    by_step: dict[int, set[int]] = {}
    for run in kept.exact:
        by_step.setdefault(run.step, set()).add(ranks[run.place])
    return tuple(ExactStep(step, tuple(sorted(by_step[step]))) for step in sorted(by_step))


def rank_report(
    facts: RankFacts, source: Source, move: RankMove, indices: ParallelIndices
) -> RankReport:
    """Return the row of the report on one rank."""
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
        host_offset_ns=facts.profile.host_offset_ns,
        indices=indices,
    )
