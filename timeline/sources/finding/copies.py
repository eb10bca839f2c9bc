"""Chooses among captures of the same records: other exports, copies, and replicas of a rank."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from timeline.columns.distinct import distinct, rows_by_value
from timeline.columns.strings import NO_NAME
from timeline.errors import SourceError, format_ids
from timeline.records.not_given import NO_ID
from timeline.records.tables import Records
from timeline.sources.capture import Capture, Claim, Evidence, Extent, FormatKind, Replica
from timeline.sources.common.export_files import how_to_export, raw_error
from timeline.sources.common.identity import is_rank
from timeline.sources.files.opened import open_decompressed, open_regular_file
from timeline.sources.files.remote_path import RemotePath
from timeline.sources.finding.runs import (
    LONGEST_NS,
    SAME_RUN_NS,
    format_ranks,
    named_time,
    recorded_time,
)
from timeline.sources.source import PROF, ReadRequest, SourceAround
from timeline.units import format_count

MOST_REPLICAS_NAMED = 8
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
    return len(set(zip(replicas, ranks, strict=True))) > len(set(ranks))


def _note(replicas: Sequence[int], ranks: Sequence[int], *, by_rank: bool) -> str:
    found: dict[int, list[int]] = defaultdict(list)
    for replica, rank in zip(replicas, ranks, strict=True):
        found[replica].append(rank)
    said = [f"dp {replica} is {format_ids(found[replica])}" for replica in sorted(found)]
    more = (
        [f"and {len(said) - MOST_REPLICAS_NAMED} more"] if len(said) > MOST_REPLICAS_NAMED else []
    )
    how = "the rank" if by_rank else "dp, pp and tp"
    return (
        f"{format_count(len(found), 'replica')} count their ranks from 0 each, so ranks are "
        f"numbered by {how} in names of files: {', '.join([*said[:MOST_REPLICAS_NAMED], *more])}."
    )


@dataclass(frozen=True)
class ReplicaSource(SourceAround):
    """A source of one of several replicas, whose groups are numbered inside the replica.

    A group is local to its replica where it has the rank of the capture, no rank that a replica
    has not, and the run is as large as the replica, as far as these are known. Groups of experts
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


# -- copies ----------------------------------------------------------------------------------------


_RAW_KINDS = frozenset({FormatKind.RAW, FormatKind.UNREADABLE})
"""What CANN recorded and nothing was made of."""
MOST_NAMED = 3
"""So many copies are named."""
COMPARED_BYTES = 1 << 16
"""Of the beginning and of the end of each file."""
_GZIP = b"\x1f\x8b"
_GZIP_SIZES = 1 << 32
"""Gzip notes the size of its content modulo this."""
_PACKED = re.compile(r"\.(?:gz|bz2|xz)$")
_Passed = Iterator[tuple[Claim, str]]
"""Captures that are not read, each with a note, which may be empty."""


def drop_copies(claims: list[Claim]) -> tuple[list[Claim], list[str]]:
    """Return the captures without those that give way to others, and notes on them."""
    notes: dict[str, None] = {}
    for find in _RULES:
        passed = list(find(claims))
        gone = {id(claim) for claim, _ in passed}
        claims = [claim for claim in claims if id(claim) not in gone]
        notes |= dict.fromkeys(note for _, note in passed if note)
    return claims, list(notes)


def _merged(claims: Sequence[Claim]) -> _Passed:
    """Return parts of merged traces whose own traces are there as well.

    Those are traces of the same rank and time; where they tell no rank, as many as were merged.
    """
    merged: dict[Path, list[Claim]] = defaultdict(list)
    for claim in claims:
        if claim.part is not None and claim.part.processes:
            merged[claim.capture.content].append(claim)
    for parts in merged.values():
        whole = [
            claim
            for claim in claims
            if claim.capture.format is parts[0].capture.format
            and claim.capture.content not in merged
            and _are_of_one_time(claim, parts[0], SAME_RUN_NS, recorded_time)
        ]
        known = {claim.rank for claim in whole}
        is_known = sum(claim.rank is None for claim in whole) >= len(parts)
        beside = [one for one in parts if is_known or one.rank in known]
        name = parts[0].capture.directory.name
        note = f"{name} is left out: it was merged from traces that are beside it."
        if len(beside) < len(parts):
            ranks = format_ranks([one.rank for one in beside if one.rank is not None])
            note = f"{name} was merged; the traces of {ranks} beside it are read."
        yield from ((one, note) for one in beside)


def _same_files(claims: Sequence[Claim]) -> _Passed:
    """Return all but one of the captures that have name, device, rank, time and files in common.

    Of a file that lies there packed too, the plain one is kept. Directories in which others of a
    name differ are two runs, and hold no copies of each other.
    """
    read: dict[tuple[object, ...], list[Claim]] = defaultdict(list)
    copies, differing = list[tuple[Claim, Claim]](), set[tuple[Path, Path]]()
    for claim in sorted(claims, key=_depth_and_path):
        capture = claim.capture
        name = _PACKED.sub("", capture.directory.name)
        key = (name, capture.format.name, claim.device, claim.rank, claim.taken)
        for other in read[key]:
            if have_same_files(capture.content, other.capture.content):
                copies.append((claim, other))
                break
            differing.add((capture.directory.parent, other.capture.directory.parent))
        else:
            read[key].append(claim)
    notes: dict[str, list[Claim]] = defaultdict(list)
    for claim, other in copies:
        copy, kept = claim.capture.directory, other.capture.directory
        if (copy.parent, kept.parent) not in differing:
            notes[f"{copy} is a copy of {kept}."].append(claim)
    more = f"{len(notes) - MOST_NAMED} more captures are copies of others."
    for number, (note, same) in enumerate(notes.items()):
        yield from ((claim, note if number < MOST_NAMED else more) for claim in same)


def _depth_and_path(claim: Claim) -> tuple[int, str]:
    directory = claim.capture.directory
    return len(directory.parts), str(directory)


def _logs_of_texts(claims: Sequence[Claim]) -> _Passed:
    """Return raw files beside the text that a framework made of them.

    Their ids cannot be compared: those of raw files are devices, those of text may be ranks.
    """
    texts = [claim.capture for claim in claims if claim.capture.format.kind is FormatKind.TEXT]
    around = {one.directory for one in texts} | {one.directory.parent for one in texts}
    logs: dict[Path, list[Claim]] = defaultdict(list)
    for claim in claims:
        directory = claim.capture.directory
        is_log = claim.capture.format.kind is FormatKind.LOG
        if is_log and not around.isdisjoint((directory, *directory.parents)):
            logs[directory].append(claim)
    for directory, passed in logs.items():
        note = (
            f"the {passed[0].capture.format.noun} of device "
            f"{format_ids([one.capture.device or 0 for one in passed])} in {directory.name} were "
            f"not read: {texts[0].format.writer}'s {texts[0].format.noun} are beside them."
        )
        yield from ((claim, note) for claim in passed)


def _nameless_raw(claims: Sequence[Claim]) -> _Passed:
    """Return raw captures of no known rank where better ones are.

    So are PROF_* directories beside text, which the framework made of them.
    """
    kinds = {claim.capture.format.kind for claim in claims}
    poor = _RAW_KINDS if kinds - _RAW_KINDS else frozenset({FormatKind.UNREADABLE})
    if not kinds - poor:
        return
    nouns = {
        claim.capture.directory: claim.capture.format.noun
        for claim in claims
        if claim.capture.format.kind is FormatKind.TEXT
    }
    for claim in claims:
        directory = claim.capture.directory
        if claim.rank is None and directory.parent in nouns:
            said = claim.contradiction or "no rank id in its metadata or name"
            noun = nouns[directory.parent]
            yield claim, f"{directory}: {said}. The {noun} beside it are read instead."
        elif claim.capture.format.kind in poor and not claim.evidence:
            yield claim, str(raw_error(directory))


def _sessions_of_exports(claims: Sequence[Claim]) -> _Passed:
    """Find data of msprof beside what a framework made of it (MindSpore to 2.4)."""
    exports: dict[Path, list[Claim]] = defaultdict(list)
    for claim in claims:
        directory = claim.capture.directory
        is_named = directory.name.endswith(("_ascend_ms", "_ascend_pt"))
        if is_named and claim.capture.format.kind is not FormatKind.SUMS:
            exports[directory.parent].append(claim)
    for claim in claims:
        directory = claim.capture.directory
        for export in exports.get(directory.parent, []) if directory.name.startswith(PROF) else []:
            if claim.rank in (None, export.rank) and _are_of_one_time(claim, export):
                yield claim, ""
                break


def _poorer_of_a_rank(claims: Sequence[Claim]) -> _Passed:
    """Find captures that hold less of a rank than others.

    What was not exported, where there is an export, or a raw capture that can be read; a note
    names what is newer than all of those. Sums of steps, where another capture may be of the same
    time. A framework's text, where the export that it was made of lies inside its directory.
    """
    by_rank: dict[int, list[Claim]] = defaultdict(list)
    for claim in claims:
        if claim.rank is not None:
            by_rank[claim.rank].append(claim)
    for rank, copies in sorted(by_rank.items()):
        kinds = {one.capture.format.kind for one in copies}
        poor = _RAW_KINDS if kinds - _RAW_KINDS else frozenset({FormatKind.UNREADABLE})
        better = [one for one in copies if one.capture.format.kind not in poor]
        for claim in copies if better else ():
            capture, kind = claim.capture, claim.capture.format.kind
            name = capture.directory.name
            if kind in poor:
                how = how_to_export(capture.directory)
                is_newer = claim.taken > max(one.taken for one in better)
                note = f"rank {rank}: {name} is newer, but was not read. {how}"
                yield claim, note if is_newer else ""
            others = [
                one for one in better if one.capture.format.kind not in (kind, FormatKind.SUMS)
            ]
            if kind is FormatKind.SUMS and any(_are_of_one_time(claim, one) for one in others):
                yield claim, ""
            places = [one.capture.directory for one in others]
            inside = [place for place in places if capture.directory in place.parents]
            if kind is FormatKind.TEXT and inside:
                note = f"rank {rank}: the {capture.format.noun} in {name} hold less than "
                yield claim, f"{note}{inside[-1].name} and were not read."


_RULES: tuple[Callable[[Sequence[Claim]], _Passed], ...] = (
    _merged,
    _same_files,
    _logs_of_texts,
    _nameless_raw,
    _sessions_of_exports,
    _poorer_of_a_rank,
)
"""What gives way, in order: each rule sees what those before it left."""


def _are_of_one_time(
    one: Claim,
    other: Claim,
    apart_ns: int = LONGEST_NS,
    *times: Callable[[Claim], Extent],
) -> bool:
    """Return whether neither names nor files tell that two captures are so far apart."""
    for time_of in times or (named_time, recorded_time):
        (one_ns, _), (other_ns, _) = time_of(one), time_of(other)
        if one_ns is not None and other_ns is not None:
            return abs(one_ns - other_ns) < apart_ns
    return True


# -- files -----------------------------------------------------------------------------------------


def have_same_files(one: Path, other: Path) -> bool:
    """Return whether two files, or all files below two directories, are copies of each other.

    They are if their names, sizes, first and last bytes are equal, or if one is the other packed.
    Files on other file systems, which would be fetched for that, and those that cannot be read are
    no copies.
    """
    if one == other or isinstance(one, RemotePath) or isinstance(other, RemotePath):
        return False
    try:
        ours, theirs = _files_in(one), _files_in(other)
        return (
            bool(ours)
            and ours.keys() == theirs.keys()
            and all(_have_same_content(ours[name], theirs[name]) for name in ours)
        )
    except (OSError, SourceError):
        return False


def _files_in(place: Path) -> dict[str, Path]:
    if place.is_file():
        return {"": place}
    return {str(path.relative_to(place)): path for path in place.rglob("*") if path.is_file()}


def _have_same_content(one: Path, other: Path) -> bool:
    """Return whether first bytes, size and, unless one alone is packed, last bytes are equal."""
    opened = open_regular_file if one.suffix == other.suffix else open_decompressed
    with opened(one) as ours, opened(other) as theirs:
        first = ours.read(COMPARED_BYTES)
        if first != theirs.read(COMPARED_BYTES):
            return False
        our_bytes = _size_bytes(ours, one, len(first)) % _GZIP_SIZES
        if our_bytes != _size_bytes(theirs, other, len(first)) % _GZIP_SIZES:
            return False
        if not (ours.seekable() and theirs.seekable()):
            return True
        for file in (ours, theirs):
            file.seek(-min(file.tell(), COMPARED_BYTES), os.SEEK_END)
        return ours.read() == theirs.read()


def _size_bytes(file: BinaryIO, path: Path, read_bytes: int) -> int:
    """Return how much a file holds, of which so much was read; gzip notes it at its end."""
    if file.seekable():
        return file.seek(0, os.SEEK_END)
    with path.open("rb") as packed:
        if packed.read(len(_GZIP)) == _GZIP:
            packed.seek(-4, os.SEEK_END)
            return int.from_bytes(packed.read(), "little")
    while more := file.read(COMPARED_BYTES):
        read_bytes += len(more)
    return read_bytes
