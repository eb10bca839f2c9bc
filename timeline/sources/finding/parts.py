"""Captures that hold several ranks: the rank of each part, and parts with captures of their own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from timeline.errors import spell_ids
from timeline.sources.capture import Claim, Evidence
from timeline.sources.finding.runs import SAME_RUN_NS
from timeline.sources.finding.times import recorded_time

__all__ = ["count_ranks_on", "find_free_ranks", "without_merged"]

MOST_NAMED = 4
"""So many parts of one capture are named in a note."""


def count_ranks_on(claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims with a rank of its own for each device of a process that tells one rank.

    The devices are numbered in the order in which they are given, from that rank on. A process that
    tells no rank is left as it is.
    """
    made = list(claims)
    told: dict[tuple[Path, int | None], int] = defaultdict(int)
    for at, claim in enumerate(claims):
        if claim.part is not None and claim.device is not None:
            key = claim.capture.content, claim.rank
            made[at] = _counted_on(claim, told[key])
            told[key] += 1
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
    for claim in sorted(counted.values(), key=lambda one: one.evidence[0].rank):
        rank = claim.rank
        if rank is None:  # contradicted, which whoever resolves ranks reports
            continue
        free = next(number for number in range(rank, rank + len(claims) + 1) if number not in taken)
        taken.add(free)
        moved[id(claim)] = _counted_on(claim, claim.evidence[0].counted + free - rank)
    made = [moved.get(id(claim), claim) for claim in claims]
    split = {
        one.capture.content
        for one in made
        if one.part and (one.part.processes or any(said.counted for said in one.evidence))
    }
    together = [[one for one in made if one.capture.content == path] for path in sorted(split)]
    return made, [_note(parts) for parts in together if len(parts) > 1]


def _note(claims: Sequence[Claim]) -> str:
    """Return what the parts of one capture are, as a note."""
    named = [(one.part.name, one.rank) for one in claims if one.part is not None]
    is_merged = any(one.part is not None and one.part.processes for one in claims)
    what = "traces that were merged" if is_merged else "devices of one process"
    said = [f"{name} is rank {rank}" for name, rank in named[:MOST_NAMED]]
    if len(named) > MOST_NAMED:
        said.append(f"and so on up to rank {named[-1][1]}")
    return f"{claims[0].capture.directory.name} holds {len(named)} {what}: {', '.join(said)}."


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
        is_known = len(nameless) >= len(parts)
        beside = [one for one in parts if is_known or one.rank in known]
        passed |= set(map(id, beside))
        name = parts[0].capture.directory.name
        if len(beside) == len(parts):
            notes.append(f"{name} is left out: it was merged from traces that are beside it.")
        elif beside:
            ranks = spell_ids([one.rank for one in beside if one.rank is not None])
            noun = "rank" if len(beside) == 1 else "ranks"
            notes.append(f"{name} was merged; the traces of {noun} {ranks} beside it are read.")
    return [claim for claim in claims if id(claim) not in passed], notes


def _may_be_of_one_time(one: Claim, other: Claim) -> bool:
    (one_ns, _), (other_ns, _) = recorded_time(one), recorded_time(other)
    return one_ns is None or other_ns is None or abs(one_ns - other_ns) < SAME_RUN_NS
