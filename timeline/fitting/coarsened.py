"""Turns pictures into one file at the finest resolutions that keep the limit."""

from __future__ import annotations

from dataclasses import replace

from timeline.encoders.packing import QUICK, SMALL
from timeline.fitting.budget import Budget
from timeline.fitting.resolve import Plan, resolve, with_resolutions
from timeline.fitting.search import WORTH_A_TRY, Search
from timeline.fitting.writer import AIM, MOST_TRIES, Drawing, Writer, Written, too_small
from timeline.records.tables import Omission, OmissionCode
from timeline.tracks.model import ARROW_REASON, element_count

__all__ = ["coarsened"]

GOOD_ENOUGH = 0.8
"""A file this close to the limit is not worth another try."""
ROOMY = 1.25
"""Below the limit by this factor, a file fits even if it is not as small as it can be."""
WELL_COMPRESSED = 1 << 18
"""Slices and samples that are compressed as well as can be, because that takes no time."""
NARROW = 3
"""Below this many times the coarsest file, it is written first, to know that there is one."""


def coarsened(writer: Writer, drawing: Drawing) -> Written:
    """Write at the finest resolutions that fit; each try tells what layers really cost."""
    writer.progress.report("Measuring", 0, 0)
    budget = Budget(drawing.tracks, writer.measure, drawing.floors)
    search = Search(budget, writer.limit)
    tries = MOST_TRIES
    best: Written | None = None
    plan = budget.rough_plan()
    if plan.expected_bytes > writer.limit:
        plan = budget.finest_plan()
    if plan.expected_bytes > writer.limit * WORTH_A_TRY:
        coarsest = budget.coarsest_plan()
        if coarsest.expected_bytes * NARROW > writer.limit:
            best = _coarsest(writer, drawing, budget)
            search.add(coarsest, best.parts[0].draft.size_bytes)
            budget.learn(coarsest, best.parts[0].layer_bytes)
            tries -= 1
        plan = budget.plan(writer.limit * AIM)
        if best is not None and plan.resolutions == coarsest.resolutions:
            plan = search.next_plan()
    level = _level(drawing, plan, writer.limit)
    for _ in range(tries):
        tried = _resolved(writer, drawing, plan, level)
        part = tried.parts[0]
        size = part.draft.size_bytes
        if size > writer.limit and level != SMALL:
            tried.discard()
            level = SMALL
            continue
        search.add(plan, size)
        if size <= writer.limit:
            best = _larger(best, tried)
            if plan.finest or size >= writer.limit * GOOD_ENOUGH:
                break
        else:
            tried.discard()
        if search.plain(plan):
            budget.learn(plan, part.layer_bytes)
        plan = search.next_plan()
    if best is None:
        best = _coarsest_that_fits(writer, drawing, budget)
    return replace(best, exact_bytes=search.exact_bytes)


def _coarsest_that_fits(writer: Writer, drawing: Drawing, budget: Budget) -> Written:
    """Estimates failed: aim ever lower, in the end at the coarsest there is."""
    aim = writer.limit * AIM
    coarsest = budget.coarsest_plan()
    while (aim := aim / 2) > coarsest.expected_bytes:
        tried = _resolved(writer, drawing, budget.plan(aim))
        if tried.parts[0].draft.size_bytes <= writer.limit:
            return tried
        tried.discard()
    return _coarsest(writer, drawing, budget)


def _coarsest(writer: Writer, drawing: Drawing, budget: Budget) -> Written:
    """The smallest file there is.

    Raises:
        LimitError: it is too large.
    """
    tried = _resolved(writer, drawing, budget.coarsest_plan())
    size = tried.parts[0].draft.size_bytes
    if size > writer.limit:
        tried.discard()
        exact = _resolved(writer, drawing, budget.finest_plan())
        exact.discard()
        raise too_small(writer.limit, min(size, exact.parts[0].draft.size_bytes))
    return tried


def _level(drawing: Drawing, plan: Plan, limit: int) -> int:
    """How hard a file is compressed: one that has room and is large need not be the smallest."""
    has_room = plan.finest and plan.expected_bytes * ROOMY <= limit
    return QUICK if has_room and element_count(drawing.tracks) > WELL_COMPRESSED else SMALL


def _resolved(writer: Writer, drawing: Drawing, plan: Plan, level: int = SMALL) -> Written:
    writer.progress.report("Gathering what is short", 0, 0)
    tracks, resolved, lost = resolve(drawing.tracks, plan)
    omissions = drawing.omissions
    if lost:
        omissions += (Omission(ARROW_REASON, lost, code=OmissionCode.ARROW_CUT),)
    shown = tuple(resolved) if any(own.gathered for own in resolved) else ()
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
