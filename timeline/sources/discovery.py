"""Turns a path into one source per rank, the newest capture of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from timeline.errors import RankIdentityError, SourceError, UsageError, did_you_mean
from timeline.sources.base import Source
from timeline.sources.captures import find_captures
from timeline.sources.companions import with_companions
from timeline.sources.file_names import plain_database
from timeline.sources.identity import Root, identify, is_nameless, raw_error
from timeline.sources.layouts import RAW_LAYOUTS, Capture, Layout
from timeline.sources.readers import nothing_in, source_of
from timeline.sources.rivals import Candidate, newest, several_runs

__all__ = ["Discovered", "discover"]


@dataclass(frozen=True)
class Discovered:
    """One source per rank, ascending, and notes on captures that were passed over."""

    sources: tuple[Source, ...]
    notes: tuple[str, ...]


def discover(
    path: Path,
    assigned: Mapping[str, int] | None = None,
    *,
    keep_going: bool = False,
    above: tuple[Path, ...] | None = None,
    unpacked: Callable[[Path], Path] | None = None,
) -> Discovered:
    """Find the profile of every rank at, below or around a path.

    Args:
        path: a capture, a file of one, or any directory around one.
        assigned: rank by directory, as given with --assign-rank.
        keep_going: pass over captures that cannot be identified, and over directories that cannot
            be read, as long as there is another capture.
        above: the directories above the path, where it is a copy that lies elsewhere.
        unpacked: unpacks a compressed database and tells where to.

    Raises:
        NoProfileError: there is none.
        RankIdentityError: the rank of a capture is missing, contradicted, or taken twice.
        UsageError: an assigned directory is not among the captures.
    """
    unreadable: list[SourceError] | None = [] if keep_going else None
    captures, empty = _without_empty(find_captures(path, unreadable))
    root = Root(path, above)
    ranks = _assigned_ranks(captures, assigned or {})
    captures, passed_logs = _without_logs_of_texts(captures)
    captures, notes = _without_nameless_raw(captures, root, ranks)
    notes = [*(f"left out: {error}" for error in unreadable or ()), *empty, *notes, *passed_logs]
    candidates: list[Candidate] = []
    for capture in captures:
        try:
            held = _unpacked(capture, unpacked)
            candidates += _candidates(held, root, ranks.get(capture))
        except SourceError as error:
            if not keep_going or (capture is captures[-1] and not candidates):
                raise
            notes.append(f"{capture.directory.name} is left out: {error}")
    by_rank: dict[int, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_rank[candidate.identity.rank].append(candidate)
    chosen: list[Candidate] = []
    for rank in sorted(by_rank):
        one, passed = newest(rank, by_rank[rank])
        chosen.append(one)
        notes += passed
    notes += several_runs(chosen)
    return Discovered(tuple(found.source for found in chosen), tuple(notes))


def _unpacked(capture: Capture, unpacked: Callable[[Path], Path] | None) -> Capture:
    is_packed = plain_database(capture.content.name) != capture.content.name
    if capture.layout is not Layout.DATABASE or not is_packed:
        return capture
    if unpacked is None:
        raise SourceError(capture.content, "is compressed.", do="Unpack it first.")
    return replace(capture, unpacked=unpacked(capture.content))


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
            known = sorted({capture.directory.name for capture in captures})
            raise UsageError(
                f"--assign-rank {name}={rank}: there is no such capture{did_you_mean(name, known)}",
                do=f"Name one of {', '.join(known)}.",
            )
        if len(hits) > 1:
            names = ", ".join(f"{hit.directory.name}/device_{hit.device}" for hit in hits)
            raise UsageError(
                f"--assign-rank {name}={rank} fits several captures: {names}.",
                do="Name the device too.",
            )
        ranks[hits[0]] = rank
    return ranks


def _without_nameless_raw(
    captures: list[Capture], root: Root, assigned: Mapping[Capture, int]
) -> tuple[list[Capture], list[str]]:
    """Pass over raw captures of no known rank where better ones are; alone they are errors.

    So are PROF_* directories beside text outputs, which MindSpore made of them.
    """
    layouts = {capture.layout for capture in captures}
    poor = RAW_LAYOUTS if layouts - RAW_LAYOUTS else frozenset({Layout.RAW})
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
        raise nothing_in(empty[0])
    return kept, [
        f"{capture.directory.name} holds nothing that can be read in {capture.content.name}."
        for capture in empty
    ]


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


def _candidates(capture: Capture, root: Root, assigned: int | None) -> list[Candidate]:
    return [
        Candidate(
            capture,
            identity,
            with_companions(source_of(capture, identity, clock, several), capture, several),
        )
        for identity, clock, several in identify(capture, root, assigned)
    ]
