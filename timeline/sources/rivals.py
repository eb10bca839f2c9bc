"""Turns the captures that claim one rank into the one to read, and notes on the others."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from timeline.errors import RankIdentityError, spell_ids
from timeline.sources.base import Identity, Source
from timeline.sources.identity import how_to_export
from timeline.sources.layouts import RAW_LAYOUTS, Capture, Layout

__all__ = ["Candidate", "newest", "several_runs"]

SAME_RUN_SECONDS = 60
"""Captures of two processes that start closer than this belong to one run."""


@dataclass(frozen=True)
class Candidate:
    """A capture with the rank that it claims, and what reads it."""

    capture: Capture
    identity: Identity
    source: Source


def newest(rank: int, candidates: list[Candidate]) -> tuple[Candidate, list[str]]:
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


def _without_poorer(rank: int, candidates: list[Candidate]) -> tuple[list[Candidate], list[str]]:
    """The captures that were exported; without any, raw ones that can be read; else all.

    And a note for each raw capture passed over that is newer than all of those.
    """
    for poor in (RAW_LAYOUTS, frozenset({Layout.RAW})):
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


def several_runs(chosen: list[Candidate]) -> list[str]:
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


def _without_raw_twins(candidates: list[Candidate]) -> list[Candidate]:
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
    rank: int, candidates: list[Candidate]
) -> tuple[list[Candidate], list[str]]:
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


def _spell(found: Candidate) -> str:
    taken = found.identity.taken
    when = f" ({taken[8:10]}:{taken[10:12]}:{taken[12:14]})" if taken else ""
    return f"{found.capture.directory.name}{when} by {found.identity.evidence}"
