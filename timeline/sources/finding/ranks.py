"""The ranks of captures: as they tell them, counted on for further devices, or in their order."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from operator import itemgetter
from pathlib import Path

from timeline.errors import RankIdentityError
from timeline.sources.capture import NOT_DISTRIBUTED, Claim, Evidence
from timeline.sources.finding.runs import spell_ranks

MOST_NAMED = 4
"""So many captures are named in one message."""


@dataclass(frozen=True)
class ResolvedRanks:
    """The captures of a run by rank, and what is wrong with the others.

    problems: by capture, what is wrong with it. error: all of that as one error. is_partial:
    whether the ranks are right without those. notes: what was assumed.
    """

    ranks: Mapping[int, Claim]
    problems: tuple[tuple[Path, str], ...] = ()
    error: RankIdentityError | None = None
    is_partial: bool = False
    notes: tuple[str, ...] = ()


def count_ranks_on(claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims with a rank of its own for each device of a process that tells one rank.

    The devices are numbered in the order in which they are given, from that rank on.
    """
    made, counted = list(claims), Counter[tuple[Path, int | None]]()
    for at, claim in enumerate(claims):
        if claim.part is not None and claim.device is not None:
            key = claim.capture.content, claim.rank
            made[at] = _counted_on(claim, counted[key])
            counted[key] += 1
    return made


def _counted_on(claim: Claim, by: int) -> Claim:
    evidence = (Evidence(one.rank + by, one.where, one.counted + by) for one in claim.evidence)
    return replace(claim, evidence=tuple(evidence))


def resolve_ranks(claims: Sequence[Claim], path: Path) -> ResolvedRanks:
    """Return the rank of each capture of a run.

    Captures of which none tells a rank are not distributed: they are numbered by host, device and
    path. Beside captures that tell one, and where two tell the same or one tells two, it is not
    known which they are.

    path: where they were found, for the commands that errors name.
    """
    if not any(claim.evidence for claim in claims):
        return _number_in_order(claims) if claims else ResolvedRanks({})
    claims = _with_free_ranks(claims)
    by_rank: dict[int, list[Claim]] = defaultdict(list)
    for claim in claims:
        if claim.rank is not None:
            by_rank[claim.rank].append(claim)
    known = dict(sorted(by_rank.items()))
    places, error = tell_apart(claims, "path", "file"), None
    nameless = sorted((claim for claim in claims if claim.rank is None), key=_order)
    nameless.sort(key=lambda claim: not claim.evidence)  # contradictions first
    told = f"tells no rank, while others of its run are {spell_ranks(known)}."
    problems = [
        (one, f"contradictory rank ids: {one.contradiction}." if one.evidence else told)
        for one in nameless
    ]
    shared = {rank: same for rank, same in known.items() if len(same) > 1}
    for rank, same in shared.items():
        for one in same:
            others = [places[id(other)] for other in same[: MOST_NAMED + 1] if other is not one]
            said = ", ".join(others[:MOST_NAMED])
            said += f" and {len(same) - 1 - MOST_NAMED} more" if len(same) > MOST_NAMED + 1 else ""
            problems.append((one, f"is rank {rank} by {one.evidence[0].where}, as {said} is."))
    if nameless:
        first, said = problems[0]
        ask = "Say which is right:" if first.evidence else "Say which it is, as in:"
        do = f"{ask} {_assign_command(path, nameless, claims)}"
        error = RankIdentityError(Path(places[id(first)]), said, do=do)
    elif shared:
        rank, same = next(iter(shared.items()))
        ways = "; ".join(
            f"{places[id(one)]} by {one.evidence[0].where}" for one in same[:MOST_NAMED]
        )
        further = [one for same in shared.values() for one in same[1:]]
        error = RankIdentityError(
            path,
            f"rank {rank} appears twice, in captures of one time: {ways}. Using neither.",
            do=f"Pass one of them: {shlex.join(['tlexport', str(same[-1].capture.directory)])}; or "
            f"give the others ranks of their own: {_assign_command(path, further, claims)}",
        )
    return ResolvedRanks(
        {rank: same[0] for rank, same in known.items() if rank not in shared},
        tuple((Path(places[id(claim)]), said) for claim, said in problems),
        error,
        is_partial=not shared,
        notes=() if shared else tuple(_notes_on_parts(claims)),
    )


def _number_in_order(claims: Sequence[Claim]) -> ResolvedRanks:
    ordered = sorted(claims, key=_order)
    named = [claim.capture.directory.name for claim in ordered]
    named = [
        name if claim.device is None else f"{name} (device {claim.device})"
        for name, claim in zip(named, ordered, strict=True)
    ]
    said = _spell_some(named, range(len(named)))
    if len(ordered) == 1:
        return ResolvedRanks(
            {0: ordered[0]}, notes=(f"the capture tells no rank ({NOT_DISTRIBUTED}): {said}.",)
        )
    note = (
        f"the captures tell no rank ({NOT_DISTRIBUTED}), so they are numbered in order of host, "
        f"device and path: {said}."
    )
    return ResolvedRanks(dict(enumerate(ordered)), notes=(note,))


def _spell_some(names: Sequence[str], ranks: Sequence[int]) -> str:
    """Spell which rank each of some names is, of many the first ones and the last rank."""
    said = [f"{name} is rank {rank}" for name, rank in zip(names, ranks[:MOST_NAMED], strict=False)]
    more = [f"and so on up to rank {ranks[-1]}"] if len(ranks) > MOST_NAMED else []
    return ", ".join(said + more)


def _order(claim: Claim) -> tuple[str, int, str]:
    device = -1 if claim.device is None else claim.device
    return claim.clock.host, device, str(claim.capture.directory)


def _with_free_ranks(claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims with each rank that was counted on moved to the next free one.

    Ranks that captures tell themselves are never free.
    """
    counted = {id(one): one for one in claims if one.evidence and one.evidence[0].counted}
    taken = {one.rank for one in claims if id(one) not in counted}
    ranked = [(one.rank, one) for one in counted.values() if one.rank is not None]
    moved, free = dict[int, Claim](), 0
    for rank, claim in sorted(ranked, key=itemgetter(0)):
        free = max(rank, free)
        while free in taken:
            free += 1
        moved[id(claim)] = _counted_on(claim, free - rank)
        free += 1
    return [moved.get(id(claim), claim) for claim in claims]


def _notes_on_parts(claims: Sequence[Claim]) -> Iterator[str]:
    """Return which ranks the parts of captures are that do not tell that themselves."""
    parts: dict[Path, list[Claim]] = defaultdict(list)
    for claim in claims:
        if claim.part is not None:
            parts[claim.capture.content].append(claim)
    for _, same in sorted(parts.items()):
        ranks = [one.rank for one in same if one.rank is not None]
        is_merged = any(one.part is not None and one.part.processes for one in same)
        is_counted = any(said.counted for one in same for said in one.evidence)
        if len(same) == len(ranks) > 1 and (is_merged or is_counted):
            what = "traces that were merged" if is_merged else "devices of one process"
            said = _spell_some([one.part.name for one in same if one.part is not None], ranks)
            yield f"{same[0].capture.directory.name} holds {len(same)} {what}: {said}."


def tell_apart(claims: Sequence[Claim], *ways: str) -> dict[int, str]:
    """Return a name of each claim, by its id(): the first of some that no other claim has.

    ways: properties of claims that hold names, the last of which is taken in any case.
    """
    held = {way: Counter(getattr(claim, way) for claim in claims) for way in ways}
    return {
        id(claim): next(
            name for way in ways if held[way][name := getattr(claim, way)] == 1 or way == ways[-1]
        )
        for claim in claims
    }


def _assign_command(path: Path, asked: Sequence[Claim], claims: Sequence[Claim]) -> str:
    """Return the command that gives captures ranks: those that they tell, or free ones."""
    names = tell_apart(claims, "name", "path", "file")
    taken = {claim.rank for claim in claims}
    free = (rank for rank in count() if rank not in taken)
    words = ["tlexport", str(path)]
    for claim in asked[:MOST_NAMED]:
        rank = claim.evidence[0].rank if claim.contradiction else next(free)
        words += ["--assign-rank", f"{names[id(claim)]}={rank}"]
    rest = len(asked) - MOST_NAMED
    return shlex.join(words) + (f" ... (and {rest} more)" if rest > 0 else "")
