"""`--fit coarsen`: one file at the finest resolutions that keep the limit."""

from __future__ import annotations

from dataclasses import replace

from timeline.encoders.compression import BEST_LEVEL, FAST_LEVEL
from timeline.fitting.plan import Plan, apply_plan, describe_resolutions
from timeline.fitting.plan_search import TRY_EXACT_BELOW, PlanSearch
from timeline.fitting.size_model import SizeModel
from timeline.fitting.writer import (
    MOST_WRITES,
    TARGET_FILL,
    Drawing,
    Writer,
    Written,
    too_small_error,
)
from timeline.records.tables import Omission, OmissionCode
from timeline.tracks.model import ARROW_REASON, element_count

__all__ = ["write_coarsened"]

GOOD_FILL = 0.8
"""A file that takes this much of the limit is not worth another try."""
FAST_COMPRESSION_HEADROOM = 1.25
"""How many times the expected size the limit must be, for fast compression to be safe."""
FAST_COMPRESSION_ELEMENTS = 1 << 18
"""Below so many slices and samples the best compression takes no time."""
TRY_COARSEST_FIRST_BELOW = 3
"""Limits below so many times the coarsest file: that is written first, to know that one fits."""


def write_coarsened(writer: Writer, drawing: Drawing) -> Written:
    """Write at the finest resolutions that fit; each try tells what layers really cost."""
    writer.progress.report("Measuring", 0, 0)
    model = SizeModel(drawing.tracks, writer.measure, drawing.floors)
    search = PlanSearch(model, writer.limit_bytes)
    tries = MOST_WRITES
    best: Written | None = None
    plan = model.rough_plan()
    if plan.expected_bytes > writer.limit_bytes:
        plan = model.finest_plan()
    if plan.expected_bytes > writer.limit_bytes * TRY_EXACT_BELOW:
        coarsest = model.coarsest_plan()
        if coarsest.expected_bytes * TRY_COARSEST_FIRST_BELOW > writer.limit_bytes:
            best = _coarsest(writer, drawing, model)
            search.add(coarsest, best.parts[0].draft.size_bytes)
            model.learn(coarsest, best.parts[0].layer_bytes)
            tries -= 1
        plan = model.plan(writer.limit_bytes * TARGET_FILL)
        if best is not None and plan.resolutions == coarsest.resolutions:
            plan = search.next_plan()
    level = _compression_level(drawing, plan, writer.limit_bytes)
    for _ in range(tries):
        tried = _write_plan(writer, drawing, plan, level)
        part = tried.parts[0]
        size = part.draft.size_bytes
        if size > writer.limit_bytes and level != BEST_LEVEL:
            tried.discard()
            level = BEST_LEVEL
            continue
        search.add(plan, size)
        if size <= writer.limit_bytes:
            best = _keep_larger(best, tried)
            if plan.finest or size >= writer.limit_bytes * GOOD_FILL:
                break
        else:
            tried.discard()
        if search.is_plain(plan):
            model.learn(plan, part.layer_bytes)
        plan = search.next_plan()
    if best is None:
        best = _coarsest_that_fits(writer, drawing, model)
    return replace(best, exact_bytes=search.exact_bytes)


def _coarsest_that_fits(writer: Writer, drawing: Drawing, model: SizeModel) -> Written:
    """Estimates failed: aim ever lower, in the end at the coarsest there is."""
    aim = writer.limit_bytes * TARGET_FILL
    coarsest = model.coarsest_plan()
    while (aim := aim / 2) > coarsest.expected_bytes:
        tried = _write_plan(writer, drawing, model.plan(aim))
        if tried.parts[0].draft.size_bytes <= writer.limit_bytes:
            return tried
        tried.discard()
    return _coarsest(writer, drawing, model)


def _coarsest(writer: Writer, drawing: Drawing, model: SizeModel) -> Written:
    """The smallest file there is.

    Raises:
        LimitError: it is too large.
    """
    tried = _write_plan(writer, drawing, model.coarsest_plan())
    size = tried.parts[0].draft.size_bytes
    if size > writer.limit_bytes:
        tried.discard()
        exact = _write_plan(writer, drawing, model.finest_plan())
        exact.discard()
        raise too_small_error(writer.limit_bytes, min(size, exact.parts[0].draft.size_bytes))
    return tried


def _compression_level(drawing: Drawing, plan: Plan, limit: int) -> int:
    """How hard a file is compressed: one that has room and is large need not be the smallest."""
    has_room = plan.finest and plan.expected_bytes * FAST_COMPRESSION_HEADROOM <= limit
    return (
        FAST_LEVEL
        if has_room and element_count(drawing.tracks) > FAST_COMPRESSION_ELEMENTS
        else BEST_LEVEL
    )


def _write_plan(writer: Writer, drawing: Drawing, plan: Plan, level: int = BEST_LEVEL) -> Written:
    writer.progress.report("Merging what is short", 0, 0)
    tracks, drawn_layers, lost = apply_plan(drawing.tracks, plan)
    omissions = drawing.omissions
    if lost:
        omissions += (Omission(ARROW_REASON, lost, code=OmissionCode.ARROW_CUT),)
    shown = tuple(drawn_layers) if any(layer.merged for layer in drawn_layers) else ()
    explained = describe_resolutions(tracks, drawn_layers)
    part = writer.write(explained, omissions, shown, drawing.steps, level=level)
    return Written((part,), drawing.facts, drawing.steps, omissions, shown)


def _keep_larger(best: Written | None, tried: Written) -> Written:
    if best is None:
        return tried
    keep, drop = (
        (tried, best)
        if (tried.parts[0].draft.size_bytes >= best.parts[0].draft.size_bytes)
        else (best, tried)
    )
    drop.discard()
    return keep
