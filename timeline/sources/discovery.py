"""Turns a path into one source per rank, the newest capture of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from timeline.errors import NoProfileError, RankIdentityError, SourceError, UsageError, spell_ids
from timeline.sources.base import Clock, Identity, Source
from timeline.sources.captures import Capture, Layout, find_captures
from timeline.sources.companions import with_companions
from timeline.sources.database_source import DatabaseSource
from timeline.sources.identity import Root, how_to_export, identify, is_nameless, raw_error
from timeline.sources.kineto_source import KinetoSource
from timeline.sources.mindspore_raw import MindSporeRawSource
from timeline.sources.mindspore_text import MindSporeTextSource
from timeline.sources.parsed_source import ParsedSource
from timeline.sources.raw_source import RawSlicesSource
from timeline.sources.table_source import KernelTableSource
from timeline.sources.trace_sources import (
    GraphTimelineSource,
    MindStudioSource,
    RawSource,
    TraceViewSource,
)

__all__ = ["Discovered", "discover"]

SAME_RUN_SECONDS = 60
"""Captures of two processes that start closer than this belong to one run."""
_RAW = frozenset({Layout.RAW, Layout.RAW_SLICES})


@dataclass(frozen=True)
class Discovered:
    """One source per rank, ascending, and notes on captures that were passed over."""

    sources: tuple[Source, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Candidate:
    capture: Capture
    identity: Identity
    source: Source


def discover(
    path: Path,
    assigned: Mapping[str, int] | None = None,
    *,
    keep_going: bool = False,
    above: tuple[Path, ...] | None = None,
) -> Discovered:
    """Find the profile of every rank at, below or around a path.

    Args:
        path: a capture, a file of one, or any directory around one.
        assigned: rank by directory, as given with --assign-rank.
        keep_going: pass over captures that cannot be identified, as long as another one can.
        above: the directories above the path, where it is a copy that lies elsewhere.

    Raises:
        NoProfileError: there is none.
        RankIdentityError: the rank of a capture is missing, contradicted, or taken twice.
        UsageError: an assigned directory is not among the captures.
    """
    captures, empty = _without_empty(find_captures(path))
    root = Root(path, above)
    ranks = _assigned_ranks(captures, assigned or {})
    captures, passed_logs = _without_logs_of_texts(captures)
    captures, notes = _without_nameless_raw(captures, root, ranks)
    notes = [*empty, *notes, *passed_logs]
    candidates: list[_Candidate] = []
    for capture in captures:
        try:
            candidates += _candidates(capture, root, ranks.get(capture))
        except SourceError as error:
            if not keep_going or (capture is captures[-1] and not candidates):
                raise
            notes.append(f"{capture.directory.name} is left out: {error}")
    by_rank: dict[int, list[_Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_rank[candidate.identity.rank].append(candidate)
    chosen: list[_Candidate] = []
    for rank in sorted(by_rank):
        newest, passed = _newest(rank, by_rank[rank])
        chosen.append(newest)
        notes += passed
    notes += _several_runs(chosen)
    return Discovered(tuple(found.source for found in chosen), tuple(notes))


def _assigned_ranks(captures: Sequence[Capture], assigned: Mapping[str, int]) -> dict[Capture, int]:
    ranks = {}
    for name, rank in assigned.items():
        wanted = Path(name)
        hits = [
            capture
            for capture in captures
            if name in (capture.directory.name, f"{capture.directory.name}/device_{capture.device}")
            or (
                wanted.exists()
                and wanted.resolve()
                in (capture.directory.resolve(), *capture.directory.resolve().parents)
            )
            or (
                wanted.name == f"device_{capture.device}"
                and wanted.parent.resolve() == capture.directory.resolve()
            )
        ]
        if not hits:
            known = ", ".join(sorted({capture.directory.name for capture in captures}))
            raise UsageError(f"--assign-rank {name}={rank}: no such capture; found {known}.")
        if len(hits) > 1:
            names = ", ".join(f"{hit.directory.name}/device_{hit.device}" for hit in hits)
            raise UsageError(f"--assign-rank {name}={rank} fits several captures: {names}.")
        ranks[hits[0]] = rank
    return ranks


def _without_nameless_raw(
    captures: list[Capture], root: Root, assigned: Mapping[Capture, int]
) -> tuple[list[Capture], list[str]]:
    """Pass over raw captures of no known rank where better ones are; alone they are errors.

    So are PROF_* directories beside text outputs, which MindSpore made of them.
    """
    layouts = {capture.layout for capture in captures}
    poor = _RAW if layouts - _RAW else frozenset({Layout.RAW})
    texts = {capture.directory for capture in captures if capture.layout is Layout.TEXT}
    if not layouts - poor:
        return captures, []
    kept, notes = [], []
    for capture in captures:
        try:
            if capture.directory.parent in texts:
                identify(capture, root, assigned.get(capture))
            elif capture.layout in poor and capture not in assigned and is_nameless(capture, root):
                raise raw_error(capture.directory)
        except RankIdentityError as error:
            notes.append(f"{error} The text outputs beside it are read instead.")
            continue
        except SourceError as error:
            notes.append(str(error))
            continue
        kept.append(capture)
    return kept, notes


def _without_empty(captures: list[Capture]) -> tuple[list[Capture], list[str]]:
    """Pass over the outputs of profilers that hold nothing; alone they are errors."""
    kept = [capture for capture in captures if capture.layout is not Layout.EMPTY]
    empty = [capture for capture in captures if capture.layout is Layout.EMPTY]
    if empty and not kept:
        raise _nothing_in(empty[0])
    return kept, [
        f"{capture.directory.name} holds nothing that can be read in {capture.content.name}."
        for capture in empty
    ]


def _nothing_in(capture: Capture) -> NoProfileError:
    return NoProfileError(
        capture.directory,
        f"holds nothing that can be read in {capture.content.name}.",
        do="Parse the profile again, or copy all of it.",
    )


def _without_logs_of_texts(captures: list[Capture]) -> tuple[list[Capture], list[str]]:
    """Pass over raw files beside the text outputs that MindSpore made of them.

    Their ids cannot be compared: those of raw files are devices, those of text may be ranks.
    """
    texts = {capture.directory for capture in captures if capture.layout is Layout.TEXT}
    around = texts | {directory.parent for directory in texts}
    kept, notes = [], []
    for capture in captures:
        own = {capture.directory, *capture.directory.parents}
        if capture.layout is Layout.HARDWARE_LOG and own & around:
            notes.append(
                f"the raw files of device {capture.device} in {capture.directory.name} were not "
                "read: MindSpore's text outputs are beside them."
            )
        else:
            kept.append(capture)
    return kept, notes


def _candidates(capture: Capture, root: Root, assigned: int | None) -> list[_Candidate]:
    return [
        _Candidate(
            capture,
            identity,
            with_companions(_source(capture, identity, clock, several), capture, several),
        )
        for identity, clock, several in identify(capture, root, assigned)
    ]


def _source(capture: Capture, identity: Identity, clock: Clock, several: bool) -> Source:
    match capture.layout:
        case Layout.DATABASE:
            return DatabaseSource(identity, clock, capture.content, several)
        case Layout.TRACE_VIEW:
            return TraceViewSource(identity, clock, capture.content)
        case Layout.MINDSTUDIO:
            return MindStudioSource(identity, clock, capture.content, several)
        case Layout.GRAPH_TIMELINE:
            return GraphTimelineSource(identity, clock, capture.content)
        case Layout.RAW:
            return RawSource(identity, clock)
        case Layout.RAW_SLICES:
            return RawSlicesSource(identity, clock, capture.content)
        case Layout.PARSED:
            return ParsedSource(identity, clock, capture.content)
        case Layout.KERNEL_TABLE:
            return KernelTableSource(identity, clock, capture.content, several)
        case Layout.KINETO:
            return KinetoSource(identity, clock, capture.content)
        case Layout.TEXT:
            assert capture.device is not None
            return MindSporeTextSource(identity, clock, capture.content, capture.device)
        case Layout.HARDWARE_LOG:
            assert capture.device is not None
            return MindSporeRawSource(identity, clock, capture.content, capture.device)
        case Layout.EMPTY:
            raise _nothing_in(capture)


def _newest(rank: int, candidates: list[_Candidate]) -> tuple[_Candidate, list[str]]:
    """The newest capture of a rank, and a note for each one passed over.

    Captures follow each other when one process took them or their times are apart; captures of
    one moment by two processes are two cards that claim one rank.
    """
    candidates, passed = _without_poorer(rank, _without_raw_twins(candidates))
    candidates, twins = _without_text_twins(rank, candidates)
    passed += twins
    ordered = sorted(candidates, key=lambda found: found.identity.taken)
    newest = ordered[-1]
    for older in ordered[:-1]:
        if not _follows(older.identity, newest.identity):
            listed = "; ".join(_spell(found) for found in ordered)
            raise RankIdentityError(
                newest.capture.directory,
                f"rank {rank} appears twice: {listed}. Using neither.",
                do="Pass the one you want as PATH, or give another id: --assign-rank DIR=RANK",
            )
    passed += [
        f"rank {rank}: {older.capture.directory.name} is older than "
        f"{newest.capture.directory.name} and was not read."
        for older in ordered[:-1]
    ]
    return newest, passed


def _without_poorer(rank: int, candidates: list[_Candidate]) -> tuple[list[_Candidate], list[str]]:
    """The captures that were exported; without any, raw ones that can be read; else all.

    And a note for each raw capture passed over that is newer than all of those.
    """
    for poor in (_RAW, frozenset({Layout.RAW})):
        kept = [found for found in candidates if found.capture.layout not in poor]
        if kept:
            latest = max(found.identity.taken for found in kept)
            return kept, [
                f"rank {rank}: {found.capture.directory.name} is newer, but was not read. "
                f"{how_to_export(found.capture.directory)}"
                for found in candidates
                if found.capture.layout in poor and found.identity.taken > latest
            ]
    return candidates, []


def _several_runs(chosen: list[_Candidate]) -> list[str]:
    """A note where the newest captures of ranks were taken far apart."""
    times = {found.identity.rank: found.identity.taken for found in chosen if found.identity.taken}
    if not times:
        return []
    latest = max(_moment(taken) for taken in times.values())
    older = [rank for rank, taken in times.items() if latest - _moment(taken) >= SAME_RUN_SECONDS]
    if not older:
        return []
    return [
        f"the newest captures of ranks {spell_ids(older)} are older than those of the other ranks; "
        "they may be of another run."
    ]


def _without_raw_twins(candidates: list[_Candidate]) -> list[_Candidate]:
    """Drop msprof's own data that lies beside what the framework made of it (MindSpore to 2.4)."""
    made = {
        found.capture.directory.parent
        for found in candidates
        if found.capture.directory.name.endswith(("_ascend_ms", "_ascend_pt"))
    }
    kept = [
        found
        for found in candidates
        if not (
            found.capture.directory.name.startswith("PROF_")
            and found.capture.directory.parent in made
        )
    ]
    return kept or candidates


def _without_text_twins(
    rank: int, candidates: list[_Candidate]
) -> tuple[list[_Candidate], list[str]]:
    """Drop MindSpore's text outputs where the export they were made of lies beside them."""
    exported = [found for found in candidates if found.capture.layout is not Layout.TEXT]
    kept, notes = list(exported), []
    for found in candidates:
        if found.capture.layout is Layout.TEXT:
            own = found.capture.directory
            richer = [one for one in exported if own in one.capture.directory.parents]
            if richer:
                notes.append(
                    f"rank {rank}: the text outputs in {own.name} hold less than "
                    f"{richer[-1].capture.directory.name} and were not read."
                )
            else:
                kept.append(found)
    return kept, notes


def _follows(older: Identity, newer: Identity) -> bool:
    if not older.taken or not newer.taken or older.taken == newer.taken:
        return False
    if older.worker and older.worker == newer.worker:
        return True
    return (_moment(newer.taken) - _moment(older.taken)) >= SAME_RUN_SECONDS


def _moment(taken: str) -> float:
    try:
        return datetime.strptime(taken[:14] + "+0000", "%Y%m%d%H%M%S%z").timestamp()
    except ValueError:
        return float(int(taken[:14]))


def _spell(found: _Candidate) -> str:
    taken = found.identity.taken
    when = f" ({taken[8:10]}:{taken[10:12]}:{taken[12:14]})" if taken else ""
    return f"{found.capture.directory.name}{when} by {found.identity.evidence}"
