"""Turns captures into the runs that they are of, each with its time and what opens it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from timeline.errors import spell_ids
from timeline.sources.common.identity import Claim
from timeline.sources.finding.capture_times import Extent, named_time, read_time, recorded_time
from timeline.sources.finding.runs import Session, are_certain, runs_of
from timeline.sources.source import Layout

__all__ = ["FoundRun", "found_runs", "note_of_runs"]

MOST_PASSED = 3
"""So many older runs are named in the note on them; --list names all."""


@dataclass(frozen=True)
class FoundRun:
    """The captures of one run.

    ranks: ascending; the places of its captures where none tells its rank. sources: where they
    lie. start_ns and end_ns: wall time, None where not known. when: its start for people. path:
    what opens this run and no other, None where there is no such path.
    """

    ranks: tuple[int, ...]
    sources: tuple[Path, ...]
    start_ns: int | None
    end_ns: int | None
    when: str
    path: Path | None
    claims: tuple[Claim, ...] = ()

    def renamed(self, name: Callable[[str], str]) -> FoundRun:
        """The same under the names that people know."""
        return replace(
            self,
            sources=tuple(Path(name(str(own))) for own in self.sources),
            path=None if self.path is None else Path(name(str(self.path))),
        )

    def spelled(self) -> str:
        """Its time and ranks for people."""
        noun = "rank" if len(self.ranks) == 1 else "ranks"
        return f"{self.when}, {noun} {spell_ids(self.ranks)}"


def found_runs(claims: Sequence[Claim], *, with_times: bool = False) -> list[FoundRun]:
    """The runs that captures are of, oldest first.

    Names tell when they were taken, then files, and what they recorded only where that leaves it
    open which belong together.

    with_times: whether files are asked for start and end where names tell runs apart, too.
    """
    if not claims:
        return []
    groups, extents = _grouped(claims)
    if extents == _named(claims):
        # Names tell the order, and not the wall time.
        extents = [recorded_time(claim) if with_times else (None, None) for claim in claims]
    return [_run([claims[at] for at in own], [extents[at] for at in own], claims) for own in groups]


def _grouped(claims: Sequence[Claim]) -> tuple[list[list[int]], list[Extent]]:
    """The runs as places of claims, and the times that tell them apart."""
    tried = list[tuple[list[list[int]], list[Extent]]]()
    for extents in _ever_better(claims):
        sessions = _sessions(claims, extents)
        groups = runs_of(sessions)
        if are_certain(sessions, groups):
            return groups, extents
        tried.append((groups, extents))
    whole = [own for own in tried if all(start is not None for start, _ in own[1])]
    return (whole or tried)[-1]


def _ever_better(claims: Sequence[Claim]) -> Iterator[list[Extent]]:
    """When captures were taken, by what takes ever longer to ask."""
    named = _named(claims)
    if named is not None:
        yield named
    recorded = [recorded_time(claim) for claim in claims]
    yield recorded
    yield [
        known if known[1] is not None else _better(known, read_time(claim))
        for claim, known in zip(claims, recorded, strict=True)
    ]


def _named(claims: Sequence[Claim]) -> list[Extent] | None:
    """The times in names, where all have one: those of PyTorch's traces are in UTC, others not."""
    named = [named_time(claim) for claim in claims]
    of_kineto = {claim.capture.layout is Layout.KINETO for claim in claims}
    is_whole = len(of_kineto) == 1 and all(start is not None for start, _ in named)
    return named if is_whole else None


def _better(known: Extent, read: Extent) -> Extent:
    return known if read == (None, None) else read


def _sessions(claims: Sequence[Claim], extents: Sequence[Extent]) -> list[Session]:
    return [
        Session(
            str(claim.capture.directory),
            claim.rank,
            claim.clock.host,
            claim.device,
            claim.worker,
            start_ns,
            end_ns,
            "GPU" if claim.capture.layout is Layout.KINETO else "NPU",
        )
        for claim, (start_ns, end_ns) in zip(claims, extents, strict=True)
    ]


def _run(own: Sequence[Claim], extents: Sequence[Extent], claims: Sequence[Claim]) -> FoundRun:
    starts = [start for start, _ in extents if start is not None]
    ends = [end for _, end in extents if end is not None]
    start_ns = min(starts) if starts else None
    end_ns = max(ends) if len(ends) == len(own) else None
    told = sorted({claim.rank for claim in own if claim.rank is not None})
    return FoundRun(
        tuple(told) if told else tuple(range(len(own))),
        tuple(dict.fromkeys(claim.capture.directory for claim in own)),
        start_ns,
        end_ns,
        _when(own, start_ns),
        _path(own, claims),
        tuple(own),
    )


def _when(own: Sequence[Claim], start_ns: int | None) -> str:
    """The start of a run: as names tell it, else in UTC."""
    stamps = sorted(claim.taken for claim in own if claim.taken)
    if stamps:
        first = stamps[0]
        date, time = (first[:4], first[4:6], first[6:8]), (first[8:10], first[10:12], first[12:14])
        zone = " UTC" if own[0].capture.layout is Layout.KINETO else ""
        return f"{'-'.join(date)} {':'.join(time)}{zone}"
    if start_ns is None:
        return "time not known"
    moment = datetime.fromtimestamp(start_ns // 10**9, timezone.utc)
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _path(own: Sequence[Claim], claims: Sequence[Claim]) -> Path | None:
    """The nearest directory around a run, or its one capture, if no other run lies there."""
    places = {claim.capture.directory for claim in own}
    around = Path(os.path.commonpath(places))
    ours = set(map(id, own))
    others = [claim.capture.directory for claim in claims if id(claim) not in ours]
    if any(other == around or around in other.parents for other in others):
        return None
    return around


def note_of_runs(runs: Sequence[FoundRun], path: Path) -> list[str]:
    """A note on the runs that are passed over, and how to read each; none for one run."""
    if len(runs) < 2:
        return []
    older = runs[-2::-1]
    said = [f"{run.spelled()}: {_how(run)}" for run in older[:MOST_PASSED]]
    if len(older) > MOST_PASSED:
        said.append(
            f"{len(older) - MOST_PASSED} more: {shlex.join(['tlexport', str(path)])} --list"
        )
    return [
        f"{len(runs)} runs lie in {path}; the newest is read ({runs[-1].spelled()}). "
        f"Not read: {'; '.join(said)}."
    ]


def _how(run: FoundRun) -> str:
    """What opens a run, or what to do so that something does."""
    if run.path is not None:
        return shlex.join(["tlexport", str(run.path)])
    names = ", ".join(own.name for own in run.sources[:2])
    more = f" and {len(run.sources) - 2} more" if len(run.sources) > 2 else ""
    return f"put {names}{more} into a directory of their own"
