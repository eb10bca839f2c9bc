"""The ranks of the captures of one run, or what is wrong with those that tell none."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from timeline.errors import RankIdentityError, spell_ids
from timeline.frozen import dataclass
from timeline.sources.capture import NOT_DISTRIBUTED, Claim

__all__ = ["ResolvedRanks", "resolve_ranks"]

MOST_NAMED = 4
"""So many captures are named in one message."""


@dataclass(frozen=True)
class ResolvedRanks:
    """The captures of a run by rank, and what is wrong with the others.

    problems: by directory, what is wrong there. error: all of that as one error. is_partial:
    whether the ranks are right without those. note: what was assumed of captures without a rank.
    """

    ranks: Mapping[int, Claim]
    problems: tuple[tuple[Path, str], ...] = ()
    error: RankIdentityError | None = None
    is_partial: bool = False
    note: str = field(default="")


def resolve_ranks(claims: Sequence[Claim], path: Path) -> ResolvedRanks:
    """The rank of each capture of a run.

    Captures of which none tells a rank are not distributed: they are numbered by host, device and
    path. Beside captures that tell one, and where two tell the same or one tells two, it is not
    known which they are.

    path: where they were found, for the commands that errors name.
    """
    if not any(claim.evidence for claim in claims):
        return _number_in_order(claims)
    if torn := [claim for claim in claims if claim.contradiction]:
        return _contradicted(claims, torn, path)
    if nameless := [claim for claim in claims if claim.rank is None]:
        return _partly_known(claims, nameless, path)
    by_rank = _by_rank(claims)
    if any(len(same) > 1 for same in by_rank.values()):
        return _with_duplicates(by_rank, path)
    return ResolvedRanks({rank: same[0] for rank, same in by_rank.items()})


def _number_in_order(claims: Sequence[Claim]) -> ResolvedRanks:
    ordered = sorted(claims, key=_order)
    said = [f"{_short(claim)} is rank {rank}" for rank, claim in enumerate(ordered[:MOST_NAMED])]
    if len(ordered) > MOST_NAMED:
        said.append(f"and so on up to rank {len(ordered) - 1}")
    by = "" if len(ordered) == 1 else " in order of host, device and path"
    what = "the capture tells" if len(ordered) == 1 else "the captures tell"
    note = f"{what} no rank ({NOT_DISTRIBUTED}), so they are numbered{by}: {', '.join(said)}."
    if len(ordered) == 1:
        note = f"{what} no rank ({NOT_DISTRIBUTED}): {said[0]}."
    return ResolvedRanks(dict(enumerate(ordered)), note=note)


def _order(claim: Claim) -> tuple[str, int, str]:
    device = -1 if claim.device is None else claim.device
    return claim.clock.host, device, str(claim.capture.directory)


def _contradicted(claims: Sequence[Claim], torn: Sequence[Claim], path: Path) -> ResolvedRanks:
    """Some captures tell several ranks each."""
    problems = tuple(
        (claim.capture.directory, f"contradictory rank ids: {claim.contradiction}.")
        for claim in torn
    )
    first = torn[0]
    command = _assign_command(path, [(claim, claim.evidence[0].rank) for claim in torn], claims)
    error = RankIdentityError(
        first.capture.directory, problems[0][1], do=f"Say which is right: {command}"
    )
    whole = _by_rank([claim for claim in claims if claim.rank is not None])
    if any(len(same) > 1 for same in whole.values()):
        return ResolvedRanks({}, problems, error)
    return ResolvedRanks(
        {rank: same[0] for rank, same in whole.items()}, problems, error, is_partial=True
    )


def _partly_known(claims: Sequence[Claim], nameless: Sequence[Claim], path: Path) -> ResolvedRanks:
    """Some captures tell a rank, and others of the same run do not."""
    by_rank = _by_rank([claim for claim in claims if claim.rank is not None])
    free = (rank for rank in range(len(claims) + len(by_rank)) if rank not in by_rank)
    command = _assign_command(
        path, list(zip(sorted(nameless, key=_order), free, strict=False)), claims
    )
    noun = "rank" if len(by_rank) == 1 else "ranks"
    said = f"tells no rank, while others of its run are {noun} {spell_ids(by_rank)}."
    problems = tuple((claim.capture.directory, said) for claim in sorted(nameless, key=_order))
    error = RankIdentityError(*problems[0], do=f"Say which it is, as in: {command}")
    if any(len(same) > 1 for same in by_rank.values()):
        return ResolvedRanks({}, problems, error)
    return ResolvedRanks(
        {rank: same[0] for rank, same in by_rank.items()}, problems, error, is_partial=True
    )


def _with_duplicates(by_rank: Mapping[int, Sequence[Claim]], path: Path) -> ResolvedRanks:
    """Several captures of one run tell the same rank."""
    twice = {rank: same for rank, same in by_rank.items() if len(same) > 1}
    claims = [claim for same in by_rank.values() for claim in same]
    problems = tuple(
        (
            claim.capture.directory,
            f"is rank {rank} by {claim.evidence[0].where}, as {_others(claim, same)} is.",
        )
        for rank, same in twice.items()
        for claim in same
    )
    rank, same = min(twice.items())
    found = "; ".join(
        f"{claim.capture.directory} by {claim.evidence[0].where}" for claim in same[:MOST_NAMED]
    )
    free = (number for number in range(len(claims) + len(by_rank)) if number not in by_rank)
    moved = [claim for others in twice.values() for claim in others[1:]]
    command = _assign_command(path, list(zip(moved, free, strict=False)), claims)
    error = RankIdentityError(
        path,
        f"rank {rank} appears twice, in captures of one time: {found}. Using neither.",
        do=f"Pass one of them: {_open_command(same[-1].capture.directory)}; "
        f"or give the others ranks of their own: {command}",
    )
    alone = {rank: same[0] for rank, same in by_rank.items() if rank not in twice}
    return ResolvedRanks(alone, problems, error)


def _others(claim: Claim, same: Sequence[Claim]) -> str:
    return ", ".join(str(one.capture.directory) for one in same if one is not claim)


def _by_rank(claims: Sequence[Claim]) -> dict[int, list[Claim]]:
    found: dict[int, list[Claim]] = defaultdict(list)
    for claim in claims:
        if claim.rank is not None:
            found[claim.rank].append(claim)
    return dict(sorted(found.items()))


def _short(claim: Claim) -> str:
    name = claim.capture.directory.name
    return name if claim.device is None else f"{name} (device {claim.device})"


def _assign_command(path: Path, ranks: Sequence[tuple[Claim, int]], claims: Sequence[Claim]) -> str:
    """The command that gives captures ranks; by path where names are not enough."""
    names = [claim.name for claim in claims]
    words = ["tlexport", str(path)]
    for claim, rank in ranks[:MOST_NAMED]:
        name = claim.name if names.count(claim.name) == 1 else claim.path
        words += ["--assign-rank", f"{name}={rank}"]
    rest = len(ranks) - MOST_NAMED
    more = f" ... (and {rest} more)" if rest > 0 else ""
    return shlex.join(words) + more


def _open_command(directory: Path) -> str:
    return shlex.join(["tlexport", str(directory)])
