"""Replicas of a model below one path, whose ranks each count from 0: their ranks and groups."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from timeline.columns.distinct import distinct, rows_by_value
from timeline.columns.strings import NO_NAME
from timeline.errors import spell_ids
from timeline.frozen import dataclass
from timeline.patterns import compile_late
from timeline.records.not_given import NO_ID
from timeline.records.tables import Records
from timeline.sources.capture import Capture, Claim, Evidence, Replica
from timeline.sources.source import PROF, ReadRequest, SourceAround
from timeline.units import spell_count

__all__ = ["ReplicaSource", "number_replicas"]

MOST_NAMED = 8
"""So many replicas are named in a note."""
_COORDINATE = compile_late(
    r"(?<![a-z])(?<!local[-_])(dp|pp|tp|rank)[-_]?(\d{1,9})(?!\d)", re.IGNORECASE
)
"""A place in the parallel run, as vLLM (dp0_pp0_tp1_rank1) and SGLang (TP-1-DP-0) name files."""


@dataclass(frozen=True)
class _Placed:
    """A claim, its replica, its rank in that, and the rank in its name; None where not known."""

    claim: Claim
    replica: int | None
    rank: int
    named: int | None

    @property
    def where(self) -> str:
        """What tells its rank."""
        evidence = self.claim.evidence
        return evidence[0].where if evidence else f"file name {self.claim.capture.directory.name}"

    def as_told(self) -> Claim:
        """The claim to its rank, by its name where it tells none itself."""
        if self.claim.evidence:
            return self.claim
        note = "no capture tells its rank; they are numbered by pp and tp in their names."
        return replace(self.claim, evidence=(Evidence(self.rank, self.where),), note=note)

    def numbered(self, rank: int, size: int, note: str) -> Claim:
        """The claim to a rank among those of all replicas, which have `size` ranks each."""
        replica = Replica(f"dp {self.replica}", rank - self.rank, size)
        where = f"{self.where}: rank {self.rank} of {replica.name}"
        said = f"{self.claim.note} {note}".strip()
        return replace(self.claim, evidence=(Evidence(rank, where),), replica=replica, note=said)


def number_replicas(claims: Sequence[Claim]) -> list[Claim]:
    """Give the captures of several replicas ranks that count through all of them.

    The rank inside a replica is what the capture tells, else its place by pp and tp in its name.
    Where no two replicas share such a rank, these are the ranks. Where two do and the ranks in
    names all differ, those are; else replica N begins at N times the size of a replica.
    """
    placed = _placed(claims)
    if not placed:
        return list(claims)
    of_replicas = [one for one in placed if one.replica is not None]
    if not _are_shared((one.replica, one.rank) for one in of_replicas):
        return [one.as_told() for one in placed]
    size = max(max(one.claim.world or 0, one.rank + 1) for one in of_replicas)
    named = [(one.replica, one.named) for one in of_replicas]
    is_named = all(rank is not None for _, rank in named) and not _are_shared(named)
    ranks = [
        one.named if is_named and one.named is not None else (one.replica or 0) * size + one.rank
        for one in of_replicas
    ]
    note = _note([one.replica or 0 for one in of_replicas], ranks, by_rank=is_named)
    rank_of = dict(zip(map(id, of_replicas), ranks, strict=True))
    return [
        one.claim if id(one) not in rank_of else one.numbered(rank_of[id(one)], size, note)
        for one in placed
    ]


def _placed(claims: Sequence[Claim]) -> list[_Placed]:
    """The claims by replica and rank; none where a rank is neither told nor in the names."""
    names = [_name(claim.capture) for claim in claims]
    places = [{key.lower(): int(at) for key, at in _COORDINATE.findall(name)} for name in names]
    ranks = [claim.rank for claim in claims]
    if not any(claim.evidence for claim in claims):
        stages = [(place.get("pp", 0), place.get("tp")) for place in places]
        width = 1 + max((tp for _, tp in stages if tp is not None), default=0)
        ranks = [None if tp is None else pp * width + tp for pp, tp in stages]
        if 0 not in ranks:  # tp2 and tp4 are two runs of other widths
            return []
    return [
        _Placed(claim, place.get("dp"), rank, place.get("rank"))
        for claim, place, rank in zip(claims, places, ranks, strict=True)
        if rank is not None and None not in ranks
    ]


def _name(capture: Capture) -> str:
    """The name of a capture; of a session of msprof, that of what its framework left around it."""
    directory = capture.directory
    return directory.parent.name if directory.name.startswith(PROF) else directory.name


def _are_shared(numbers: Iterable[tuple[int | None, int | None]]) -> bool:
    """Whether a number is one of several replicas; numbers come with their replica."""
    pairs = set(numbers)
    return len(pairs) > len({number for _, number in pairs})


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
