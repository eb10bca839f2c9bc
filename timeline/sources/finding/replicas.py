"""Replicas of a model below one path, whose ranks each count from 0: their ranks and groups."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from timeline.columns.distinct import distinct, rows_by_value
from timeline.columns.strings import NO_NAME
from timeline.errors import spell_ids
from timeline.records.not_given import NO_ID
from timeline.records.tables import Records
from timeline.sources.capture import Capture, Claim, Evidence, Replica
from timeline.sources.common.identity import is_rank
from timeline.sources.source import PROF, ReadRequest, SourceAround
from timeline.units import spell_count

MOST_NAMED = 8
"""So many replicas are named in a note."""
_COORDINATE = re.compile(
    r"(?<![a-z])(?<!local[-_])(dp|pp|tp|rank)[-_]?(\d{1,9})(?!\d)", re.IGNORECASE
)
"""A place in the parallel run, as vLLM (dp0_pp0_tp1_rank1) and SGLang (TP-1-DP-0) name files."""
_BY_NAME = "no capture tells its rank; they are numbered by pp and tp in their names."


def number_replicas(claims: Sequence[Claim]) -> list[Claim]:
    """Give the captures of several replicas ranks that count through all of them.

    The rank inside a replica is what the capture tells, else its place by pp and tp in its name.
    Where no two replicas share such a rank, these are the ranks. Where two do and the ranks in
    names all differ, those are; else replica N begins at N times the size of a replica.
    """
    places = [_place(claim.capture) for claim in claims]
    made = list(claims)
    if not any(claim.evidence for claim in claims):
        made = _by_stage(claims, places)
    inside = [claim.rank for claim in made if claim.rank is not None]
    of_replicas = [at for at, place in enumerate(places) if "dp" in place]
    if not of_replicas or len(inside) < len(made):
        return made
    replicas = [places[at]["dp"] for at in of_replicas]
    first = [inside[at] for at in of_replicas]
    if not _are_shared(replicas, first):
        return made
    size = max(max(made[at].world or 0, inside[at] + 1) for at in of_replicas)
    ranks = [places[at]["rank"] for at in of_replicas if "rank" in places[at]]
    by_rank = len(ranks) == len(of_replicas) and not _are_shared(replicas, ranks)
    if not by_rank:
        ranks = [replica * size + rank for replica, rank in zip(replicas, first, strict=True)]
    if not all(map(is_rank, ranks)):
        return made
    note = _note(replicas, ranks, by_rank=by_rank)
    for at, number, rank in zip(of_replicas, replicas, ranks, strict=True):
        claim, replica = made[at], Replica(f"dp {number}", rank - inside[at], size)
        where = f"{claim.evidence[0].where}: rank {inside[at]} of {replica.name}"
        made[at] = replace(
            claim,
            evidence=(Evidence(rank, where),),
            replica=replica,
            note=f"{claim.note} {note}".strip(),
        )
    return made


def _place(capture: Capture) -> dict[str, int]:
    """Return the numbers in the name of a capture; a session of msprof has that of its parent."""
    directory = capture.directory
    name = directory.parent.name if directory.name.startswith(PROF) else directory.name
    return {key.lower(): int(number) for key, number in _COORDINATE.findall(name)}


def _by_stage(claims: Sequence[Claim], places: Sequence[dict[str, int]]) -> list[Claim]:
    """Return the claims with ranks by pp and tp in their names, as they are where that is unclear.

    Without rank 0 the numbers are widths: tp2 and tp4 are two runs.
    """
    width = 1 + max((place.get("tp", 0) for place in places), default=0)
    ranks = [place.get("pp", 0) * width + place["tp"] for place in places if "tp" in place]
    if len(ranks) < len(claims) or 0 not in ranks or not all(map(is_rank, ranks)):
        return list(claims)
    return [
        replace(
            claim,
            evidence=(Evidence(rank, f"file name {claim.capture.directory.name}"),),
            note=_BY_NAME,
        )
        for claim, rank in zip(claims, ranks, strict=True)
    ]


def _are_shared(replicas: Sequence[int], ranks: Sequence[int]) -> bool:
    """Return whether several replicas have a rank in common."""
    return len(set(zip(replicas, ranks, strict=True))) > len(set(ranks))


def _note(replicas: Sequence[int], ranks: Sequence[int], *, by_rank: bool) -> str:
    found: dict[int, list[int]] = defaultdict(list)
    for replica, rank in zip(replicas, ranks, strict=True):
        found[replica].append(rank)
    said = [f"dp {replica} is {spell_ids(found[replica])}" for replica in sorted(found)]
    more = [f"and {len(said) - MOST_NAMED} more"] if len(said) > MOST_NAMED else []
    how = "the rank" if by_rank else "dp, pp and tp"
    return (
        f"{spell_count(len(found), 'replica')} count their ranks from 0 each, so ranks are "
        f"numbered by {how} in names of files: {', '.join([*said[:MOST_NAMED], *more])}."
    )


@dataclass(frozen=True)
class ReplicaSource(SourceAround):
    """A source of one of several replicas, whose groups are numbered inside the replica.

    A group is local to its replica where it has the rank of the capture, no rank that a replica
    has not, and the run is as large as the replica, as far as these are told. Groups of experts
    may span replicas, and stay.
    """

    replica: Replica

    def read(self, wanted: ReadRequest) -> Records:
        """Read at least what is wanted; members of local groups are ranks among all replicas.

        Raises:
            SourceError: a file cannot be read.
        """
        records = self.source.read(wanted)
        members = records.members
        whole = members.group == NO_NAME
        if members.size[whole].max(initial=0) > self.replica.size:
            return records
        spanning = {
            code
            for code, rows in rows_by_value(members.group, distinct(members.group[~whole]))
            if not self._is_local(members.rank[rows].tolist(), int(members.size[rows].max()))
        }
        is_local = ~np.isin(members.group, sorted(spanning)) & (members.rank != NO_ID)
        moved = np.where(is_local, members.rank + self.replica.first, members.rank)
        records = replace(records, members=replace(members, rank=moved))
        return records if records.numbered_ops else self._with_names(records, spanning)

    def _is_local(self, ranks: Sequence[int], size: int) -> bool:
        known = {rank for rank in ranks if rank != NO_ID}
        own = self.identity.rank - self.replica.first
        return (own in known or not known) and max(*known, size - 1) < self.replica.size

    def _with_names(self, records: Records, spanning: set[int]) -> Records:
        """Name local groups apart, as ops are matched by the names of their groups."""
        strings, ops = records.strings, records.ops
        group = np.where(ops.group_name == NO_NAME, ops.group, ops.group_name)
        names = np.arange(len(strings), dtype=np.int32)
        for code in distinct(group).tolist():
            if code not in spanning and code != NO_NAME:
                names[code] = strings.code(f"{strings[code]} of {self.replica.name}")
        members = records.members
        return replace(
            records,
            ops=replace(ops, group_name=names[group]),
            members=replace(members, group=names[members.group]),
        )
