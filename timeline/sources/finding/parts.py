"""Captures that hold several ranks: the rank of each part, and parts with captures of their own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from timeline.errors import spell_ids
from timeline.sources.capture import Claim, Evidence
from timeline.sources.finding.runs import LONGEST_NS
from timeline.sources.finding.times import recorded_time

__all__ = ["count_ranks_on", "find_free_ranks", "without_merged"]

MOST_NAMED = 4
"""So many parts of one capture are named in a note."""


def count_ranks_on(claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims with a rank of its own for each device of a process that tells one rank.

    The devices are numbered in their order, from that rank on. Ranks that differ are left as they
    are, and so are devices of a process that tells none.
    """
    made = list(claims)
    by_content: dict[Path, list[int]] = defaultdict(list)
    for at, claim in enumerate(claims):
        if claim.part is not None and claim.device is not None:
            by_content[claim.capture.content].append(at)
    for places in by_content.values():
        if len({claims[at].rank for at in places}) == 1:
            ordered = sorted(places, key=lambda at: claims[at].device or 0)
            for counted, at in enumerate(ordered):
                made[at] = _counted_on(claims[at], counted)
    return made


def _counted_on(claim: Claim, counted: int) -> Claim:
    return replace(
        claim,
        evidence=tuple(
            Evidence(one.rank - one.counted + counted, one.where, counted) for one in claim.evidence
        ),
    )


def find_free_ranks(claims: Sequence[Claim]) -> tuple[list[Claim], list[str]]:
    """Return the claims of one run, with each rank that was counted on moved to the next free one.

    Ranks that captures tell themselves are never free. And a note for each capture that holds
    several ranks, unless it tells them itself.
    """
    counted = {id(one): one for one in claims if one.evidence and one.evidence[0].counted}
    taken = {one.rank for one in claims if id(one) not in counted}
    moved = dict[int, Claim]()
    for claim in sorted(counted.values(), key=_told_rank):
        rank = claim.rank
        if rank is None:  # contradicted, which whoever resolves ranks reports
            continue
        free = next(number for number in range(rank, rank + len(claims) + 1) if number not in taken)
        taken.add(free)
        moved[id(claim)] = _counted_on(claim, claim.evidence[0].counted + free - rank)
    made = [moved.get(id(claim), claim) for claim in claims]
    split = {one.capture.content for one in made if _is_numbered_here(one)}
    notes = [_note([one for one in made if one.capture.content == path]) for path in sorted(split)]
    return made, notes


def _told_rank(claim: Claim) -> tuple[int, int]:
    first = claim.evidence[0]
    return first.rank - first.counted, first.counted


def _is_numbered_here(claim: Claim) -> bool:
    """Whether the part is of a merged trace, or of a rank that was counted on."""
    if claim.part is None or not claim.evidence:
        return False
    return bool(claim.part.processes) or claim.evidence[0].counted > 0


def _note(claims: Sequence[Claim]) -> str:
    """Return what the parts of one capture are, as a note."""
    named = [
        f"{claim.part.name} is rank {claim.rank}"
        for claim in claims[:MOST_NAMED]
        if claim.part is not None
    ]
    more = [f"and {len(claims) - MOST_NAMED} more"] if len(claims) > MOST_NAMED else []
    is_merged = any(claim.part is not None and claim.part.processes for claim in claims)
    what = "merged traces" if is_merged else "devices of one process"
    parts = ", ".join((*named, *more))
    return f"{claims[0].capture.directory.name} holds {len(claims)} {what}: {parts}."


def without_merged(claims: Sequence[Claim]) -> tuple[list[Claim], list[str]]:
    """Return the claims without those parts of merged traces whose own traces are there as well.

    Those are traces of the same rank and time; where they tell no rank, as many as were merged.
    And a note for each merged trace.
    """
    merged: dict[Path, list[Claim]] = defaultdict(list)
    for claim in claims:
        if claim.part is not None and claim.part.processes:
            merged[claim.capture.content].append(claim)
    passed, notes = set[int](), list[str]()
    for parts in merged.values():
        whole = [
            claim
            for claim in claims
            if claim.capture.format is parts[0].capture.format
            and claim.capture.content not in merged
            and _may_be_of_one_time(claim, parts[0])
        ]
        known = {claim.rank for claim in whole}
        nameless = [claim for claim in whole if claim.rank is None]
        left = (
            [] if len(nameless) >= len(parts) else [one for one in parts if one.rank not in known]
        )
        if len(left) < len(parts):
            passed |= {id(one) for one in parts} - {id(one) for one in left}
            notes.append(_note_on_merged(parts[0].capture.directory.name, left))
    return [claim for claim in claims if id(claim) not in passed], notes


def _note_on_merged(name: str, left: Sequence[Claim]) -> str:
    if not left:
        return f"{name} is left out: it was merged from traces that are beside it."
    ranks = spell_ids([claim.rank for claim in left if claim.rank is not None])
    return f"{name} was merged from traces that are beside it; of it, only rank {ranks} is read."


def _may_be_of_one_time(one: Claim, other: Claim) -> bool:
    (one_ns, _), (other_ns, _) = recorded_time(one), recorded_time(other)
    return one_ns is None or other_ns is None or abs(one_ns - other_ns) < LONGEST_NS
