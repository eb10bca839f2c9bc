"""Drops captures whose records another capture holds, and numbers the ranks of replicas."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
    recorded_time,
    time_in_name,
)
from timeline.sources.source import PROF, ReadRequest, SourceAround
from timeline.units import format_count

MOST_REPLICAS_NAMED = 8
"""Maximum number of replicas named in a note."""
_COORDINATE = re.compile(
    r"(?<![a-z])(?<!local[-_])(dp|pp|tp|rank)[-_]?(\d{1,9})(?!\d)", re.IGNORECASE
)
"""Parallel coordinates in file names of vLLM (dp0_pp0_tp1_rank1) and SGLang (TP-1-DP-0)."""
_BY_NAME = "no capture tells its rank; they are numbered by pp and tp in their names."


def number_replicas(claims: Sequence[Claim]) -> list[Claim]:
    """Give the captures of data-parallel replicas ranks that are unique in the whole run.

    The rank inside a replica is the stated one, else it follows from pp and tp in the name of the
    capture. If no two replicas share a rank, these ranks are final. Otherwise the ranks in names
    are used if they all differ; else replica N begins at N times the size of a replica.
    """
    coordinates = [_coordinates(claim.capture) for claim in claims]
    ranked = list(claims)
    if not any(claim.evidence for claim in claims):
        ranked = _rank_by_stage(claims, coordinates)
    inside = [claim.rank for claim in ranked if claim.rank is not None]
    in_replicas = [at for at, numbers in enumerate(coordinates) if "dp" in numbers]
    if not in_replicas or len(inside) < len(ranked):
        return ranked
    replicas = [coordinates[at]["dp"] for at in in_replicas]
    local_ranks = [inside[at] for at in in_replicas]
    if not _are_shared(replicas, local_ranks):
        return ranked
    size = max(max(ranked[at].world or 0, inside[at] + 1) for at in in_replicas)
    ranks = [coordinates[at]["rank"] for at in in_replicas if "rank" in coordinates[at]]
    by_rank = len(ranks) == len(in_replicas) and not _are_shared(replicas, ranks)
    if not by_rank:
        ranks = [replica * size + rank for replica, rank in zip(replicas, local_ranks, strict=True)]
    if not all(map(is_rank, ranks)):
        return ranked
    note = _describe_replicas(replicas, ranks, by_rank=by_rank)
    for at, number, rank in zip(in_replicas, replicas, ranks, strict=True):
        claim, replica = ranked[at], Replica(f"dp {number}", rank - inside[at], size)
        where = f"{claim.evidence[0].where}: rank {inside[at]} of {replica.name}"
        ranked[at] = replace(
            claim,
            evidence=(Evidence(rank, where),),
            replica=replica,
            note=f"{claim.note} {note}".strip(),
        )
    return ranked


def _coordinates(capture: Capture) -> dict[str, int]:
    """Return the dp, pp, tp and rank in a capture's name, for PROF_* in the parent's name."""
    directory = capture.directory
    name = directory.parent.name if directory.name.startswith(PROF) else directory.name
    return {key.lower(): int(number) for key, number in _COORDINATE.findall(name)}


def _rank_by_stage(claims: Sequence[Claim], places: Sequence[dict[str, int]]) -> list[Claim]:
    """Return the claims with ranks computed from pp and tp in their names.

    They are returned unchanged unless all names have a tp and one yields rank 0: without rank 0,
    the numbers are tensor-parallel sizes (tp2 and tp4 are two runs).
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
    """Return whether two replicas have a rank in common."""
    return len(set(zip(replicas, ranks, strict=True))) > len(set(ranks))


def _describe_replicas(replicas: Sequence[int], ranks: Sequence[int], *, by_rank: bool) -> str:
    by_replica: dict[int, list[int]] = defaultdict(list)
    for replica, rank in zip(replicas, ranks, strict=True):
        by_replica[replica].append(rank)
    listed = [f"dp {replica} is {format_ids(of)}" for replica, of in sorted(by_replica.items())]
    if (more := len(listed) - MOST_REPLICAS_NAMED) > 0:
        listed[MOST_REPLICAS_NAMED:] = [f"and {more} more"]
    how = "the rank" if by_rank else "dp, pp and tp"
    return (
        f"{format_count(len(by_replica), 'replica')} count their ranks from 0 each, so ranks are "
        f"numbered by {how} in names of files: {', '.join(listed)}."
    )


@dataclass(frozen=True)
class ReplicaSource(SourceAround):
    """A source of one data-parallel replica, whose files count ranks inside the replica.

    A communication group is local to the replica if the capture's own rank is a member, all
    members are ranks inside the replica, and the run has no more ranks than the replica. Facts that
    the file does not state are taken to hold. Other groups, such as expert groups, may span
    replicas and are left unchanged.
    """

    replica: Replica

    def read(self, wanted: ReadRequest) -> Records:
        """Read at least the requested parts, with members of local groups as global ranks.

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
        global_ranks = np.where(is_local, members.rank + self.replica.first, members.rank)
        records = replace(records, members=replace(members, rank=global_ranks))
        return records if records.numbered_ops else self._rename_groups(records, spanning)

    def _is_local(self, ranks: Sequence[int], size: int) -> bool:
        stated = {rank for rank in ranks if rank != NO_ID}
        own = self.identity.rank - self.replica.first
        return (own in stated or not stated) and max(*stated, size - 1) < self.replica.size

    def _rename_groups(self, records: Records, spanning: set[int]) -> Records:
        """Add the replica to the names of local groups.

        Ops of different ranks are matched by group name, and replicas use the same names.
        """
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
"""Kinds of raw data of CANN that was never exported."""
MOST_NAMED = 3
"""Maximum number of copies named in notes."""
COMPARED_BYTES = 1 << 16
"""Bytes that are compared at the beginning and at the end of each file."""
_GZIP = b"\x1f\x8b"
_GZIP_SIZES = 1 << 32
"""Gzip stores the size of its content modulo this number."""
_COMPRESSED = re.compile(r"\.(?:gz|bz2|xz)$")
_Dropped = Iterator[tuple[Claim, str]]
"""Captures to drop, each with a note, which may be empty."""


def drop_copies(claims: list[Claim]) -> tuple[list[Claim], list[str]]:
    """Return the captures to read, and notes on the dropped ones."""
    notes: dict[str, None] = {}
    for find in _RULES:
        dropped = list(find(claims))
        ids = {id(claim) for claim, _ in dropped}
        claims = [claim for claim in claims if id(claim) not in ids]
        notes |= dict.fromkeys(note for _, note in dropped if note)
    return claims, list(notes)


def _find_merged(claims: Sequence[Claim]) -> _Dropped:
    """Yield parts of merged traces whose original traces are captures too.

    An original trace has the same format, time and rank as the part. If traces of that time state
    no rank, all parts are dropped if there are at least as many such traces as parts.
    """
    merged: dict[Path, list[Claim]] = defaultdict(list)
    for claim in claims:
        if claim.part is not None and claim.part.processes:
            merged[claim.capture.content].append(claim)
    for parts in merged.values():
        originals = [
            claim
            for claim in claims
            if claim.capture.format is parts[0].capture.format
            and claim.capture.content not in merged
            and _are_of_one_time(claim, parts[0], SAME_RUN_NS, recorded_time)
        ]
        ranks = {claim.rank for claim in originals}
        are_all_there = sum(claim.rank is None for claim in originals) >= len(parts)
        duplicates = [one for one in parts if are_all_there or one.rank in ranks]
        name = parts[0].capture.directory.name
        note = f"{name} is left out: it was merged from traces that are beside it."
        if len(duplicates) < len(parts):
            named = format_ranks([one.rank for one in duplicates if one.rank is not None])
            note = f"{name} was merged; the traces of {named} beside it are read."
        yield from ((one, note) for one in duplicates)


def _find_same_files(claims: Sequence[Claim]) -> _Dropped:
    """Yield all but one of the captures that have the same name, device, rank, time and files.

    A plain file is preferred to a compressed one. If two directories hold captures of the same
    name with different files, they are two runs, and no capture is a copy of one in the other.
    """
    read: dict[tuple[object, ...], list[Claim]] = defaultdict(list)
    copies, differing = list[tuple[Claim, Claim]](), set[tuple[Path, Path]]()
    by_path = sorted(claims, key=lambda one: str(one.capture.directory))
    for claim in sorted(by_path, key=lambda one: len(one.capture.directory.parts)):
        capture = claim.capture
        name = _COMPRESSED.sub("", capture.directory.name)
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


def _find_logs_of_texts(claims: Sequence[Claim]) -> _Dropped:
    """Yield raw files of a framework beside the text files that it derived from them.

    Their ids are not compared: raw files are numbered by device, text files possibly by rank.
    """
    texts = [claim.capture for claim in claims if claim.capture.format.kind is FormatKind.TEXT]
    around = {one.directory for one in texts} | {one.directory.parent for one in texts}
    logs: dict[Path, list[Claim]] = defaultdict(list)
    for claim in claims:
        directory = claim.capture.directory
        is_log = claim.capture.format.kind is FormatKind.LOG
        if is_log and not around.isdisjoint((directory, *directory.parents)):
            logs[directory].append(claim)
    for directory, raw in logs.items():
        note = (
            f"the {raw[0].capture.format.noun} of device "
            f"{format_ids([one.capture.device or 0 for one in raw])} in {directory.name} were "
            f"not read: {texts[0].format.writer}'s {texts[0].format.noun} are beside them."
        )
        yield from ((claim, note) for claim in raw)


def _find_raw_without_rank(claims: Sequence[Claim]) -> _Dropped:
    """Yield raw captures that state no rank, if there are captures of better kinds.

    Also yield PROF_* directories without a rank beside text files derived from them.
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
            problem = claim.contradiction or "no rank id in its metadata or name"
            noun = nouns[directory.parent]
            yield claim, f"{directory}: {problem}. The {noun} beside it are read instead."
        elif claim.capture.format.kind in poor and not claim.evidence:
            yield claim, str(raw_error(directory))


def _find_sessions_of_exports(claims: Sequence[Claim]) -> _Dropped:
    """Yield sessions of msprof (PROF_*) beside a framework's export of them.

    MindSpore up to 2.4 leaves both in one directory.
    """
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


def _find_poorer_of_a_rank(claims: Sequence[Claim]) -> _Dropped:
    """Yield captures that hold less of a rank than another capture of it.

    Raw data gives way to exports, and raw data that cannot be read also to raw data that can;
    a note names raw data that is newer than all of these. Sums of steps give way to another
    capture that may be of the same time. Text files of a framework give way to an export inside
    their directory, from which they were derived.
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


_RULES: tuple[Callable[[Sequence[Claim]], _Dropped], ...] = (
    _find_merged,
    _find_same_files,
    _find_logs_of_texts,
    _find_raw_without_rank,
    _find_sessions_of_exports,
    _find_poorer_of_a_rank,
)
"""Functions that yield captures to drop, applied in order to the captures that are left."""


def _are_of_one_time(
    one: Claim,
    other: Claim,
    apart_ns: int = LONGEST_NS,
    *times: Callable[[Claim], Extent],
) -> bool:
    """Return whether two captures may have started less than `apart_ns` apart.

    times: functions for the start; the first that has a time for both decides. Without such times
    the answer is True.
    """
    for time_of in times or (time_in_name, recorded_time):
        (one_ns, _), (other_ns, _) = time_of(one), time_of(other)
        if one_ns is not None and other_ns is not None:
            return abs(one_ns - other_ns) < apart_ns
    return True


# -- files -----------------------------------------------------------------------------------------


def have_same_files(one: Path, other: Path) -> bool:
    """Return whether two files, or all files below two directories, are copies of each other.

    Copies have the same names, sizes, first and last bytes; one file may be compressed. Remote
    files, which would have to be fetched, and unreadable files never count as copies.
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
    """Compare first bytes, sizes and, unless only one file is compressed, last bytes."""
    opened = open_regular_file if one.suffix == other.suffix else open_decompressed
    with opened(one) as ours, opened(other) as theirs:
        first = ours.read(COMPARED_BYTES)
        if first != theirs.read(COMPARED_BYTES):
            return False
        files = ((ours, one), (theirs, other))
        sizes = [_size_bytes(file, path, len(first)) % _GZIP_SIZES for file, path in files]
        if sizes[0] != sizes[1] and opened is open_decompressed:
            # Gzip data of several parts ends with the size of its last part only.
            sizes = [_count_bytes(path) % _GZIP_SIZES for _, path in files]
        if sizes[0] != sizes[1]:
            return False
        if not (ours.seekable() and theirs.seekable()):
            return True
        for file in (ours, theirs):
            file.seek(-min(file.tell(), COMPARED_BYTES), os.SEEK_END)
        return ours.read() == theirs.read()


def _size_bytes(file: BinaryIO, path: Path, read_bytes: int) -> int:
    """Return the unpacked size of a file, of which `read_bytes` were already read.

    If the file is not seekable, the size is taken from the end of gzip data, else by reading on.
    """
    if file.seekable():
        return file.seek(0, os.SEEK_END)
    with path.open("rb") as compressed:
        if compressed.read(len(_GZIP)) == _GZIP:
            compressed.seek(-4, os.SEEK_END)
            return int.from_bytes(compressed.read(), "little")
    while more := file.read(COMPARED_BYTES):
        read_bytes += len(more)
    return read_bytes


def _count_bytes(path: Path) -> int:
    """Return the unpacked size of a file by reading it."""
    with open_decompressed(path) as file:
        return sum(map(len, iter(partial(file.read, COMPARED_BYTES), b"")))
