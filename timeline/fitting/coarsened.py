"""One file at the finest resolutions that keep the limit."""

from __future__ import annotations

from dataclasses import replace

from timeline.encoders.common import BEST_LEVEL, FAST_LEVEL
from timeline.fitting.resolve import Plan, resolve, with_resolutions
from timeline.fitting.search import TRY_EXACT_BELOW, Search
from timeline.fitting.size_model import SizeModel
from timeline.fitting.writer import MOST_WRITES, TARGET_FILL, Drawing, Writer, Written, too_small
from timeline.records.tables import Omission, OmissionCode
from timeline.tracks.model import ARROW_REASON, element_count

__all__ = ["write_coarsened"]

GOOD_FILL = 0.8
"""A file that takes this much of the limit is not worth another try."""
FAST_COMPRESSION_HEADROOM = 1.25
"""How many times the expected size the limit must be, that fast compression is safe."""
FAST_COMPRESSION_ELEMENTS = 1 << 18
"""Below so many slices and samples the best compression takes no time."""
TRY_COARSEST_FIRST_BELOW = 3
"""Limits below so many times the coarsest file: that is written first, to know that one fits."""


def write_coarsened(writer: Writer, drawing: Drawing) -> Written:
    """Write at the finest resolutions that fit; each try tells what layers really cost."""
    writer.progress.report("Measuring", 0, 0)
    model = SizeModel(drawing.tracks, writer.measure, drawing.floors)
    search = Search(model, writer.limit)
    tries = MOST_WRITES
    best: Written | None = None
    plan = model.rough_plan()
    if plan.expected_bytes > writer.limit:
        plan = model.finest_plan()
    if plan.expected_bytes > writer.limit * TRY_EXACT_BELOW:
        coarsest = model.coarsest_plan()
        if coarsest.expected_bytes * TRY_COARSEST_FIRST_BELOW > writer.limit:
            best = _coarsest(writer, drawing, model)
            search.add(coarsest, best.parts[0].draft.size_bytes)
            model.learn(coarsest, best.parts[0].layer_bytes)
            tries -= 1
        plan = model.plan(writer.limit * TARGET_FILL)
        if best is not None and plan.resolutions == coarsest.resolutions:
            plan = search.next_plan()
    level = _level(drawing, plan, writer.limit)
    for _ in range(tries):
        tried = _resolved(writer, drawing, plan, level)
        part = tried.parts[0]
        size = part.draft.size_bytes
        if size > writer.limit and level != BEST_LEVEL:
            tried.discard()
            level = BEST_LEVEL
            continue
        search.add(plan, size)
        if size <= writer.limit:
            best = _larger(best, tried)
            if plan.finest or size >= writer.limit * GOOD_FILL:
                break
        else:
            tried.discard()
        if search.plain(plan):
            model.learn(plan, part.layer_bytes)
        plan = search.next_plan()
    if best is None:
        best = _coarsest_that_fits(writer, drawing, model)
    return replace(best, exact_bytes=search.exact_bytes)


def _coarsest_that_fits(writer: Writer, drawing: Drawing, model: SizeModel) -> Written:
    """Estimates failed: aim ever lower, in the end at the coarsest there is."""
    aim = writer.limit * TARGET_FILL
    coarsest = model.coarsest_plan()
    while (aim := aim / 2) > coarsest.expected_bytes:
        tried = _resolved(writer, drawing, model.plan(aim))
        if tried.parts[0].draft.size_bytes <= writer.limit:
            return tried
        tried.discard()
    return _coarsest(writer, drawing, model)


def _coarsest(writer: Writer, drawing: Drawing, model: SizeModel) -> Written:
    """The smallest file there is.

    Raises:
        LimitError: it is too large.
    """
    tried = _resolved(writer, drawing, model.coarsest_plan())
    size = tried.parts[0].draft.size_bytes
    if size > writer.limit:
        tried.discard()
        exact = _resolved(writer, drawing, model.finest_plan())
        exact.discard()
        raise too_small(writer.limit, min(size, exact.parts[0].draft.size_bytes))
    return tried


def _level(drawing: Drawing, plan: Plan, limit: int) -> int:
    """How hard a file is compressed: one that has room and is large need not be the smallest."""
    has_room = plan.finest and plan.expected_bytes * FAST_COMPRESSION_HEADROOM <= limit
    return (
        FAST_LEVEL
        if has_room and element_count(drawing.tracks) > FAST_COMPRESSION_ELEMENTS
        else BEST_LEVEL
    )


def _resolved(writer: Writer, drawing: Drawing, plan: Plan, level: int = BEST_LEVEL) -> Written:
    writer.progress.report("Gathering what is short", 0, 0)
    tracks, resolved, lost = resolve(drawing.tracks, plan)
    omissions = drawing.omissions
    if lost:
        omissions += (Omission(ARROW_REASON, lost, code=OmissionCode.ARROW_CUT),)
    shown = tuple(resolved) if any(layer.gathered for layer in resolved) else ()
    explained = with_resolutions(tracks, resolved)
    part = writer.write(explained, omissions, shown, drawing.steps, level=level)
    return Written((part,), drawing.facts, drawing.steps, omissions, shown)


def _larger(best: Written | None, tried: Written) -> Written:
    if best is None:
        return tried
    keep, drop = (
        (tried, best)
        if (tried.parts[0].draft.size_bytes >= best.parts[0].draft.size_bytes)
        else (best, tried)
    )
    drop.discard()
    return keep
