"""The bubbles of pipelines as a table, beside the ideal ones, and as a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.pipeline import Bubbles, measure_bubbles
from timeline.analysis.waits.waiting import Pairs
from timeline.columns.columns import Bool, Int64
from timeline.figures.table import Table
from timeline.records.not_given import NO_ID
from timeline.units import spell_count, spell_share

__all__ = ["pipeline_sentences", "pipeline_table"]

NOTABLE = 0.01
"""Bubbles of a smaller share of the time are not worth a sentence."""


def pipeline_table(facts: Sequence[RankFacts], pairs: Pairs, ordinary: Sequence[Bool]) -> Table:
    """See `Figures.pipeline`."""
    exposed = [rank.exposed for rank in facts]
    bubbles = measure_bubbles([rank.collectives for rank in facts], exposed, pairs)
    if not len(bubbles):
        return Table({})
    ranks = np.array([rank.rank for rank in facts], np.int64)
    spans_ns, plain = _steps_of(facts, bubbles, ordinary)
    unknown = (bubbles.stages == NO_ID) | (bubbles.micro_batches == NO_ID)
    between = bubbles.stages - 1
    ideal = between / np.where(unknown, 1, bubbles.micro_batches + between)
    return Table(
        {
            "rank": ranks[bubbles.rank],
            "step": np.ma.masked_equal(bubbles.iteration, NO_ID),
            "stage": np.ma.masked_equal(bubbles.stage, NO_ID),
            "stages": np.ma.masked_equal(bubbles.stages, NO_ID),
            "micro_batches": np.ma.masked_equal(bubbles.micro_batches, NO_ID),
            "receives": bubbles.receives,
            "matched": bubbles.matched,
            "bubble_ns": bubbles.bubble_ns,
            "exposed_ns": bubbles.exposed_ns,
            "share": _shares(bubbles.bubble_ns, spans_ns),
            "exposed_share": _shares(bubbles.exposed_ns, spans_ns),
            "ideal_share": np.ma.masked_array(np.round(ideal, 6), unknown),
            "ordinary": plain.astype(object),
        }
    )


def _shares(times_ns: Int64, spans_ns: Int64) -> npt.NDArray[Any]:
    return np.ma.masked_array(np.round(times_ns / np.maximum(spans_ns, 1), 6), spans_ns == 0)


def _steps_of(
    facts: Sequence[RankFacts], bubbles: Bubbles, ordinary: Sequence[Bool]
) -> tuple[Int64, Bool]:
    """How long each step took on its rank, 0 where that is not known, and whether it is ordinary.

    Without any steps it is all that is selected, and ordinary.
    """
    found = list[tuple[int, bool]]()
    for position, rank in enumerate(facts):
        steps, totals = rank.steps.iteration, rank.step_totals
        whole_ns = rank.span_ns[1] - rank.span_ns[0] if rank.span_ns and not len(steps) else 0
        for iteration in bubbles.iteration[bubbles.rank == position].tolist():
            its = steps == iteration
            span_ns = int(totals.span_ns[its & totals.known].sum())
            plain = bool(ordinary[position][its].any()) or not len(steps)
            found.append((span_ns if iteration != NO_ID else whole_ns, plain))
    return np.array([one for one, _ in found], np.int64), np.array([one for _, one in found])


def pipeline_sentences(pipeline: Table, filed_stages: int | None = None) -> Iterator[str]:
    """What is to be said of bubbles, over the ordinary steps; nothing where there are none.

    pipeline: see `Figures.pipeline`. filed_stages: how many stages a file says that there are.
    """
    if not len(pipeline):
        return
    known = pipeline.take(
        pipeline["ordinary"].astype(np.bool_) & ~np.ma.getmaskarray(pipeline["share"])
    )
    if not len(known) or float(np.ma.mean(known["share"])) < NOTABLE:
        return
    shape = Counter(
        (stages, micro_batches)
        for stages, micro_batches in zip(
            known["stages"].tolist(), known["micro_batches"].tolist(), strict=True
        )
        if stages is not None and micro_batches is not None
    )
    if not shape:
        rank, share = _largest(known, "rank")
        stages_are = "the stages of the pipeline are not known"
        if filed_stages is not None and filed_stages > 1:
            stages_are = f"the pipeline has {filed_stages} stages"
        yield (
            f"Ranks wait {_mean_share(known)} of a step in receives, most on rank {rank} "
            f"({share}){_exposed(known)}; {stages_are}."
        )
        return
    (stages, micro_batches), _ = shape.most_common(1)[0]
    alike = (np.ma.filled(known["stages"], 0) == stages) & (
        np.ma.filled(known["micro_batches"], 0) == micro_batches
    )
    chosen = known.take(alike)
    stage, share = _largest(chosen, "stage")
    ideal = (stages - 1) / (micro_batches + stages - 1)
    yield (
        f"Pipeline of {spell_count(stages, 'stage')} and "
        f"{_micro_batches(micro_batches)}: stages wait {_mean_share(chosen)} of a "
        f"step to receive (the ideal bubble is {spell_share(ideal, 1)}), most in stage {stage} "
        f"({share}){_exposed(chosen)}."
    )


def _micro_batches(count: int) -> str:
    return f"{count} micro-batch" + ("" if count == 1 else "es")


def _mean_share(rows: Table, name: str = "share") -> str:
    return spell_share(float(np.ma.mean(rows[name])), 1)


def _exposed(rows: Table) -> str:
    """How much of the waiting nothing hides, where that is another number."""
    share = _mean_share(rows, "exposed_share")
    return "" if share == _mean_share(rows) else f"; {share} while nothing computes"


def _largest(rows: Table, name: str) -> tuple[int, str]:
    """The rank or stage with the largest mean share, and that share."""
    shares: dict[int, list[float]] = {}
    for which, share in zip(rows[name].tolist(), rows["share"].tolist(), strict=True):
        shares.setdefault(which, []).append(share)
    means = {which: sum(its) / len(its) for which, its in shares.items()}
    largest = max(means, key=lambda which: (means[which], -which))
    return largest, spell_share(means[largest], 1)
